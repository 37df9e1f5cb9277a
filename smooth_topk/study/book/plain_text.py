"""Text that people read: from a file or a machine, made safe for a page; times and bytes in the units people use."""

import re


def plain(text: str) -> str:
    """Returns a text that a page shows as it is: what Markdown or HTML would take for markup is escaped.

    Example:
        >>> print(plain("<script>alert(1)</script> on *Linux*"))
        \\<script\\>alert(1)\\</script\\> on \\*Linux\\*
    """
    return re.sub(r"([\\<>&\[\]`*_$|#])", r"\\\1", text)


def seconds_in_words(seconds: float) -> str:
    """Returns a duration in the unit that people would use.

    Example:
        >>> [seconds_in_words(seconds) for seconds in (0.0042, 8, 150, 9_000, 400_000)]
        ['4.2 ms', '8 s', '2.5 min', '2.5 h', '4.6 days']
    """
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:,.1f} {unit}"
    if 0 < seconds < 0.1:
        return f"{1000 * seconds:.1f} ms"
    return f"{seconds:.0f} s" if seconds >= 5 else f"{seconds:.1f} s"


def bytes_in_words(count: float) -> str:
    """Returns a number of bytes in MB or GB.

    Example:
        >>> [bytes_in_words(count) for count in (59_460_096, 3_368_000_000)]
        ['59 MB', '3.4 GB']
    """
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"
