"""A table as a notebook shows it: losses typeset, what was not run set apart, the index aligned with its cells."""

import hashlib
import re
from html import escape

import pandas as pd
from pandas.io.formats.style import Styler

from smooth_topk.study.tables.cells import NOT_IN_PAPER, NOT_RUN

LOSS = re.compile(r"\b([Ll])_(?:\{([^}]*)\}|(\d+))")
NUMBER = re.compile(r"[-−+]?\d")
SENTENCE = 60  # characters
GREY = "color: var(--pst-color-text-muted, #767676); font-style: italic"  # a colour of the page, where it has one
OURS_NOT_RUN = f"Ours: {NOT_RUN}."


class NotRun:
    """The line that stands in place of a table in which nothing of ours was run."""

    def __init__(self, text: str = OURS_NOT_RUN):
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f'<p class="not-run">{escape(self.text)}</p>'


def show(table: pd.DataFrame, caption: str = "") -> Styler | NotRun:
    """Returns the table for display, as the last line of a cell; one line where nothing of ours was run.

    Args:
        table: one of this package's tables, or any other.
        caption: a line above the table; where one cell shows several tables it tells them apart.
    """
    if nothing_run(table):
        return NotRun(f"{caption}: ours {NOT_RUN}." if caption else OURS_NOT_RUN)
    # Styles are found by this name: tables on one page need their own, and the same table must give the same bytes.
    name = hashlib.sha256(table.to_csv().encode()).hexdigest()[:8]
    hidden = any(table.index.names) and table.columns.nlevels == 1
    if hidden:
        caption = caption or str(table.columns.name or "")
        table = with_index_as_columns(table)
    styled = table.style.format(_cell).set_uuid(name)
    styled = styled.hide() if hidden else styled
    if caption:
        styled = styled.set_caption(typeset(caption))
    for axis, index in (("columns", table.columns), ("index", table.index)):
        styled = styled.format_index(typeset, axis=axis, level=list(range(index.nlevels)))
    if has_sentences(table):
        return styled.set_table_attributes('class="sentences"').map(_grey)
    numbers = [any(NUMBER.match(str(cell)) for cell in table.iloc[:, place]) for place in range(table.shape[1])]
    right = {"text-align": "right", "white-space": "nowrap"}
    styled = styled.set_properties(subset=(slice(None), table.columns[numbers]), **right).map(_grey)
    return styled.apply_index(
        lambda names: ["text-align: right" if number else "text-align: left" for number in numbers],
        axis="columns",
        level=table.columns.nlevels - 1,
    )


def with_index_as_columns(table: pd.DataFrame) -> pd.DataFrame:
    """Returns a table whose named index is its first columns, so that all headings are in one line.

    A value of an outer level is shown once, in the first row that it belongs to.
    """
    keys = table.index.to_frame(index=False).astype(object)
    repeated = [
        keys.iloc[:, : level + 1].eq(keys.iloc[:, : level + 1].shift()).all(axis=1)
        for level in range(keys.shape[1] - 1)
    ]
    for level, same in enumerate(repeated):
        keys.iloc[same.to_numpy(), level] = ""
    keys.columns = [str(name or "") for name in table.index.names]
    return pd.concat([keys, table.reset_index(drop=True)], axis=1)


def nothing_run(table: pd.DataFrame) -> bool:
    """Returns whether every cell of ours says "not run"; headings of our rows or columns begin with "ours"."""
    columns = [column for column in table.columns if _is_ours(column)]
    rows = [row for row in table.index if _is_ours(row)]
    ours = table[columns] if columns else table.loc[rows] if rows else table
    return ours.size > 0 and bool((ours == NOT_RUN).all(axis=None))


def paper_alone(table: pd.DataFrame) -> pd.DataFrame:
    """Returns the table without its rows or columns of ours, for a page on which nothing of ours was run."""
    columns = [column for column in table.columns if not _is_ours(column)]
    rows = [row for row in table.index if not _is_ours(row)]
    return table.loc[rows, columns]


def has_sentences(table: pd.DataFrame) -> bool:
    """Returns whether some cells are so long that their lines must break; the book's tables of numbers do not."""
    return any(len(cell) > SENTENCE for cell in table.to_numpy().flat if isinstance(cell, str))


def typeset(name: object) -> str:
    """Returns a heading as HTML, with losses in the paper's notation.

    Example:
        >>> typeset("L_{5,0.1} margin 0")
        '<i>L</i><sub>5,0.1</sub> margin 0'
    """
    return typeset_losses(escape(str(name)))


def typeset_losses(html: str) -> str:
    """Returns HTML with the losses that it names in the paper's notation, such as L_{5,1}, typeset."""
    return LOSS.sub(lambda found: f"<i>{found[1]}</i><sub>{found[2] or found[3]}</sub>", html)


def _cell(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else typeset(value)


def _is_ours(heading) -> bool:
    parts = heading if isinstance(heading, tuple) else (heading,)
    return any(str(part).startswith("ours") for part in parts)


def _grey(cell) -> str:
    return GREY if cell in (NOT_RUN, NOT_IN_PAPER) else ""
