"""The text of a page in, the same text out with the places at which no line may break: 80 %, k = 5, $k$ and a comma."""

import re

LITERAL = re.compile(r"<(pre|code|script|style)\b.*?</\1>|<span class=\"math.*?</span>|<[^>]*>", re.DOTALL)
TOGETHER = re.compile(r"(?<=\d) (?=%)|(?<=[^\W\d_]) (?== [−+]?\d)|(?<=[^\W\d_] =) (?=[−+]?\d)")
PUNCTUATED = re.compile(r'(<span class="math[^>]*>[^<]*</span>[,.;:!?)]+)')
NO_BREAK = "\N{NO-BREAK SPACE}"


def with_numbers_kept_together(html: str) -> str:
    """Returns a page's HTML in which a percent sign stays with its number, a value with its symbol, and a formula with
    the comma behind it.

    Code, formulas and what stands inside a tag are left as they are.

    Example:
        >>> with_numbers_kept_together("<p title='5 %'>5 % at τ = 0.1</p>").replace(NO_BREAK, "~")
        "<p title='5 %'>5~% at τ~=~0.1</p>"
    """
    place, pieces = 0, []
    for literal in LITERAL.finditer(html):
        pieces += [TOGETHER.sub(NO_BREAK, html[place : literal.start()]), literal[0]]
        place = literal.end()
    joined = "".join([*pieces, TOGETHER.sub(NO_BREAK, html[place:])])
    return PUNCTUATED.sub(r'<span class="kept-together">\1</span>', joined)
