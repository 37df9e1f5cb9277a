"""The text of a page in, the same text out with the places at which no line may break, such as in 80 % and k = 5."""

import re

LITERAL = re.compile(r"<(pre|code|script|style|svg|select)\b.*?</\1>|<span class=\"math.*?</span>|<[^>]*>", re.DOTALL)
TOGETHER = re.compile(r"(?<=\d) (?=%)|(?<=[^\W\d_]) (?== [−+]?\d)|(?<=[^\W\d_] =) (?=[−+]?\d)")
_K = r'(?:<em>k</em>|<span class="math[^>]*>[^<]*</span>)'
PUNCTUATED = re.compile(rf"(\btop-{_K}[,.;:!?)]*|{_K}-th\b[,.;:!?)]*|<span class=\"math[^>]*>[^<]*</span>[,.;:!?)]+)")
HYPHENATED = re.compile(
    r"\b(?:top|CIFAR)-\d+\b|(?<![\w.])[-−+]?\d[\d.]*e-\d+\b|\b\d{4}-\d\d-\d\d\b"
)  # a browser breaks at hyphens
SHORT_CODE = re.compile(r"<code\b[^>]*>(?:<span class=\"pre\">)?[^<\s]{1,26}(?:</span>)?</code>[,.;:!?)]*")
OPTION = re.compile(r'(?<=</span> )<span class="pre">(?=-{1,2}\w)|<span class="pre">(?=-{1,2}\w[^<\s]*</span> <)')
LONG_NAME = re.compile(r'(?<=<span class="pre">)[^<\s]{27,}(?=</span></code>)')
NO_BREAK = "\N{NO-BREAK SPACE}"


def with_numbers_kept_together(html: str) -> str:
    """Returns a page's HTML in which a percent sign stays with its number, a value with its symbol, a formula or a
    short name in code with the comma behind it; dates, powers of ten and options do not break at their hyphens, and
    long names break behind a dot or an underscore.

    Code, formulas and what stands inside a tag are left as they are.

    Example:
        >>> with_numbers_kept_together("<p title='5 %'>5 % at τ = 0.1</p>").replace(NO_BREAK, "~")
        "<p title='5 %'>5~% at τ~=~0.1</p>"
        >>> with_numbers_kept_together("a decay of 2.5e-4")
        'a decay of <span class="kept-together">2.5e-4</span>'
        >>> with_numbers_kept_together('<code><span class="pre">test_of_a_name_that_is_long</span></code>')
        '<code><span class="pre">test_<wbr>of_<wbr>a_<wbr>name_<wbr>that_<wbr>is_<wbr>long</span></code>'
    """
    place, pieces = 0, []
    for literal in LITERAL.finditer(html):
        pieces += [_together(html[place : literal.start()]), literal[0]]
        place = literal.end()
    joined = "".join([*pieces, _together(html[place:])])
    joined = PUNCTUATED.sub(r'<span class="kept-together">\1</span>', joined)
    joined = OPTION.sub('<span class="pre kept-together">', joined)  # one word of several
    joined = LONG_NAME.sub(lambda name: re.sub(r"(?<!smooth)_|\.", r"\g<0><wbr>", name[0]), joined)
    return SHORT_CODE.sub(r'<span class="kept-together">\g<0></span>', joined)


def _together(words: str) -> str:
    words = TOGETHER.sub(NO_BREAK, words)
    return HYPHENATED.sub(r'<span class="kept-together">\g<0></span>', words)
