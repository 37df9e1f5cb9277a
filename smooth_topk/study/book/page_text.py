"""The text of a page in, the same text out with the places at which no line may break: 80 %, k = 5, $k$ and a comma."""

import re

LITERAL = re.compile(r"<(pre|code|script|style|svg|select)\b.*?</\1>|<span class=\"math.*?</span>|<[^>]*>", re.DOTALL)
TOGETHER = re.compile(r"(?<=\d) (?=%)|(?<=[^\W\d_]) (?== [−+]?\d)|(?<=[^\W\d_] =) (?=[−+]?\d)")
PUNCTUATED = re.compile(r'(<span class="math[^>]*>[^<]*</span>[,.;:!?)]+)')
HYPHENATED = re.compile(r"(?<![\w.])[-−+]?\d[\d.]*e-\d+\b|\b\d{4}-\d\d-\d\d\b")  # a browser breaks at hyphens
SHORT_CODE = re.compile(r"<code\b[^>]*>(?:<span class=\"pre\">)?[^<\s]{1,26}(?:</span>)?</code>[,.;:!?)]*")
NO_BREAK = "\N{NO-BREAK SPACE}"


def with_numbers_kept_together(html: str) -> str:
    """Returns a page's HTML in which a percent sign stays with its number, a value with its symbol, a formula or a
    short name in code with the comma behind it; dates and powers of ten do not break at their hyphens.

    Code, formulas and what stands inside a tag are left as they are.

    Example:
        >>> with_numbers_kept_together("<p title='5 %'>5 % at τ = 0.1</p>").replace(NO_BREAK, "~")
        "<p title='5 %'>5~% at τ~=~0.1</p>"
        >>> with_numbers_kept_together("a decay of 2.5e-4")
        'a decay of <span class="kept-together">2.5e-4</span>'
    """
    place, pieces = 0, []
    for literal in LITERAL.finditer(html):
        pieces += [_together(html[place : literal.start()]), literal[0]]
        place = literal.end()
    joined = "".join([*pieces, _together(html[place:])])
    joined = PUNCTUATED.sub(r'<span class="kept-together">\1</span>', joined)
    return SHORT_CODE.sub(r'<span class="kept-together">\g<0></span>', joined)


def _together(words: str) -> str:
    words = TOGETHER.sub(NO_BREAK, words)
    return HYPHENATED.sub(r'<span class="kept-together">\g<0></span>', words)
