"""The tables of a page in, the same tables out with what the style needs to know about their cells.

The cells of a column that holds nothing but numbers get the class `number`, and so does its heading: a column stands
right or left as a whole. A short cell gets the class `short`, because breaking its line would gain nothing, and a cell
of several lines the class `long`, because a narrow column would make it a tower. A cell of a table of sentences gets
the name of its column as `data-label`: on a phone such a table is read row by row, and so is a table written in
Markdown whose rows are too long for a phone; an empty cell, of class `empty`, is not shown there. All this works on
finished HTML, because the tables of chapters, of results and of the book's own pages come from three different makers.
"""

import re
from html import escape, unescape

TABLE = re.compile(r"<table\b.*?</table>", re.DOTALL)
ROW = re.compile(r"<tr\b.*?</tr>", re.DOTALL)
CELL = re.compile(r"<(?P<tag>t[dh])\b(?P<attributes>[^>]*)>(?P<content>.*?)</(?P=tag)>", re.DOTALL)
NUMBER = re.compile(
    r"[~<>≤≥≈]? ?[-−+±]?\d[\d,]*(\.\d+)?(e[-−+]?\d+)?"  # 1,234.5 or 1e-06, but not version 1.2.3
    r"( ?\(±?[\d.]+\)| ?± ?[\d.]+)?"  # a standard deviation
    r" ?(%|×|x|s|ms|µs|h|min|kB|MB|GB|points?)?"
    r"( \([-−+\d][^()]*\))?"  # an interval or a ratio: (−0.2 to +0.1), (1.9x)
)
NO_NUMBER = {"", "—", "–", "-", "not run", "nan", "NaN", "not in the paper"}  # what may stand in a column of numbers
SHORT = 14  # characters
LONG = 30  # characters
LONG_ROW = 70  # characters, more than a line of a phone


def with_cells_marked(html: str) -> str:
    """Returns a page's HTML with the classes and labels of table cells.

    Example:
        >>> with_cells_marked("<table><tr><th>top-5</th></tr><tr><td>75.2 (0.3)</td></tr></table>")
        '<table><tr><th class="number">top-5</th></tr><tr><td class="number">75.2 (0.3)</td></tr></table>'
    """
    return TABLE.sub(lambda table: _marked_table(table[0]), html)


def _marked_table(table: str) -> str:
    table = with_one_heading(table)
    rows = [list(CELL.finditer(row)) for row in ROW.findall(table)]
    columns = _columns([row for row in rows if not _spans_columns(row)])
    opening = table[: table.index(">") + 1]
    sentences = "sentences" in opening
    lengths = [sum(len(text(cell)) for cell in row) for row in rows if any(cell["tag"] == "td" for cell in row)]
    stacked = 'class="table"' in opening and max(lengths, default=0) > LONG_ROW
    if stacked and not sentences:
        table = with_class(opening[:-1], "stacked sentences") + table[len(opening) - 1 :]

    def marked_row(row: re.Match) -> str:
        cells = list(CELL.finditer(row[0]))
        is_heading = all(cell["tag"] == "th" for cell in cells)
        places = iter(reversed(range(len(cells))))
        above_several = _spans_columns(cells)

        def marked_cell(cell: re.Match) -> str:
            place = next(places)
            name, numbers = columns[place] if place < len(columns) and not above_several else ("", False)
            attributes = cell["attributes"]
            needs_name = numbers or len(columns) > 2  # one sentence beside the first cell explains itself
            if (sentences or stacked) and cell["tag"] == "td" and is_empty(cell):
                attributes = with_class(attributes, "empty")
            elif (sentences or stacked) and name and cell["tag"] == "td" and needs_name:
                attributes += f' data-label="{escape(name)}"'
            if sentences:
                pass
            elif is_heading:
                attributes = with_class(attributes, "number") if numbers else attributes
            elif cell["tag"] == "td" and (numbers or above_several) and is_numeric(text(cell)):
                attributes = with_class(attributes, "number")
            elif len(text(cell)) <= SHORT:
                attributes = with_class(attributes, "short")
            elif cell["tag"] == "td" and len(text(cell)) > LONG and not stacked:
                attributes = with_class(attributes, "long")
            return f"<{cell['tag']}{attributes}>{cell['content']}</{cell['tag']}>"

        return CELL.sub(marked_cell, row[0])

    return ROW.sub(marked_row, table)


def with_one_heading(table: str) -> str:
    """Returns a table whose index has its names in the line of the columns; pandas gives them a line of their own.

    What pandas writes above the last of these names becomes the caption of the table, such as the number of seeds; but
    above columns of numbers it is their name, and stays.

    Example:
        >>> with_one_heading("<tr><th></th><th>top-5</th></tr><tr><th>p</th><th></th></tr><tr><td>0</td></tr>")
        '<tr><th>p</th><th>top-5</th></tr><tr><td>0</td></tr>'
    """
    headings = [row for row in ROW.finditer(table) if "<td" not in row[0] and "</thead>" not in table[: row.start()]]
    if len(headings) < 2:
        return table
    above, below = headings[-2:]
    columns, names = list(CELL.finditer(above[0])), list(CELL.finditer(below[0]))
    named = [place for place, name in enumerate(names) if text(name)]
    if len(columns) != len(names) or not named or any(text(columns[place]) for place in named[:-1]):
        return table
    last = named[-1]
    numbers = all(NUMBER.fullmatch(text(column)) for column in columns[last + 1 :])
    if text(columns[last]) and (numbers or len(headings) > 2):
        return table
    cells = iter([name if text(name) else column for column, name in zip(columns, names, strict=True)])
    heading = CELL.sub(lambda _: next(cells)[0], above[0])
    opening = re.match(r"\s*<table\b[^>]*>", table)
    about = f"<caption>{columns[last]['content']}</caption>" if opening and text(columns[last]) else ""
    start = opening.end() if opening else 0
    return table[:start] + about + table[start : above.start()] + heading + table[below.end() :]


def _spans_columns(row: list[re.Match]) -> bool:
    return any(re.search(r'\bcolspan="(?!1")', cell["attributes"]) for cell in row)


def _columns(rows: list[list[re.Match]]) -> list[tuple[str, bool]]:
    """The name of every column, and whether it holds numbers, from the right: rows may miss cells at their left."""
    headings = [row for row in rows if all(cell["tag"] == "th" for cell in row)]
    body = [row for row in rows if row not in headings]
    columns = []
    for place in range(max((len(row) for row in rows), default=0)):
        names = [text(row[-1 - place]) for row in headings if place < len(row)]
        cells = [text(row[-1 - place]) for row in body if place < len(row) and row[-1 - place]["tag"] == "td"]
        columns.append((next(filter(None, reversed(names)), ""), is_numbers(cells)))
    return columns


def is_numeric(word: str) -> bool:
    """Returns whether a cell of a column of numbers stands right: a number, or what stands in the place of one."""
    return bool(NUMBER.fullmatch(word)) or (bool(word) and word in NO_NUMBER)


def is_numbers(column: list[str]) -> bool:
    """Returns whether a column holds numbers, and nothing else but words for a missing one."""
    kinds = [bool(NUMBER.fullmatch(cell)) for cell in column if cell not in NO_NUMBER]
    return bool(kinds) and all(kinds)


def text(cell: re.Match) -> str:
    """Returns what a reader sees in a cell."""
    return " ".join(unescape(re.sub(r"<[^>]*>", "", cell["content"])).split())


def is_empty(cell: re.Match) -> bool:
    """Returns whether a cell shows nothing: no text, and no picture either."""
    return not text(cell) and not re.search(r"<(img|svg|input)\b", cell["content"])


def with_class(attributes: str, name: str) -> str:
    """Returns the attributes of an element with one class more."""
    if re.search(r'\bclass="', attributes):
        return re.sub(r'\bclass="', f'class="{name} ', attributes, count=1)
    return f'{attributes} class="{name}"'
