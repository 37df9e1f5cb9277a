"""Text from a file or a machine, made safe for a page."""

import re


def plain(text: str) -> str:
    """Returns a text that a page shows as it is: what Markdown or HTML would take for markup is escaped.

    Example:
        >>> print(plain("<script>alert(1)</script> on *Linux*"))
        \\<script\\>alert(1)\\</script\\> on \\*Linux\\*
    """
    return re.sub(r"([\\<>&\[\]`*_$|#])", r"\\\1", text)
