"""A table as a notebook shows it: losses typeset, what was not run set apart, the index aligned with its cells."""

import hashlib
import re
from html import escape

import pandas as pd
from pandas.io.formats.style import Styler

from smooth_topk.study.tables.cells import NOT_IN_PAPER, NOT_RUN

LOSS = re.compile(r"\b([Ll])_(?:\{([^}]*)\}|(\d+))")
SENTENCE = 60  # characters
GREY = "color: #8a8a8a; font-style: italic"


def show(table: pd.DataFrame) -> Styler:
    """Returns the table for display, as the last line of a cell.

    Args:
        table: one of this package's tables, or any other.
    """
    # Styles are found by this name: tables on one page need their own, and the same table must give the same bytes.
    name = hashlib.sha256(table.to_csv().encode()).hexdigest()[:8]
    styled = table.style.format(escape="html", precision=4).set_uuid(name)
    for axis, index in (("columns", table.columns), ("index", table.index)):
        styled = styled.format_index(typeset, axis=axis, level=list(range(index.nlevels)))
    if has_sentences(table):
        styled = styled.set_table_attributes('class="sentences"')
    return styled.map(lambda cell: GREY if cell in (NOT_RUN, NOT_IN_PAPER) else "")


def has_sentences(table: pd.DataFrame) -> bool:
    """Returns whether some cells are so long that their lines must break; the book's tables of numbers do not."""
    return any(len(cell) > SENTENCE for cell in table.to_numpy().flat if isinstance(cell, str))


def typeset(name) -> str:
    """Returns a heading as HTML, with losses in the paper's notation.

    Example:
        >>> typeset("L_{5,0.1} margin 0")
        '<i>L</i><sub>5,0.1</sub> margin 0'
    """
    return LOSS.sub(lambda found: f"<i>{found[1]}</i><sub>{found[2] or found[3]}</sub>", escape(str(name)))
