"""Which code of a chapter the book folds, and the line that stands in its place.

Parameters, imports, checks and the code of figures and tables are folded; a reader opens them with one click. The
rules read the code, so that a notebook needs no marks; the tag `show-input` on a cell keeps its code open, `hide-input`
folds it.
"""

import ast
import re
from collections.abc import Sequence

from nbformat import NotebookNode

LONGEST = 110  # characters of an assertion on its line
FIGURE_MAKERS = {"figures", "controls"}
PICTURES = {"image/png", "image/svg+xml"}
SHORT = 4  # statements of a cell that only shows a table


def fold(cell: NotebookNode) -> None:
    """Marks a code cell for folding if a rule says so, with the words of its toggle."""
    tags = cell.metadata.setdefault("tags", [])
    if "injected-parameters" in tags:
        words, kind, mode = "Show what this profile changes", "parameters", "hide-cell"
    elif "show-input" in tags:
        return
    else:
        words, kind = toggle_words(cell)
        mode = "hide-input"
    if not words and "hide-input" in tags:
        words, kind = "Show the code", "code"
    if not words:
        return
    cell.metadata["tags"] = [*(tag for tag in tags if tag != mode), mode, f"folded-{kind}"]
    hide = words if kind == "check" else words.replace("Show", "Hide", 1)
    cell.metadata.setdefault("mystnb", {}).update(code_prompt_show=words, code_prompt_hide=hide)


def toggle_words(cell: NotebookNode) -> tuple[str, str]:
    """Returns what the toggle of a cell says and the kind of cell; two empty texts if its code stays open."""
    if "parameters" in cell.metadata.get("tags", []):
        return "Show the parameters", "parameters"
    try:
        statements = ast.parse(cell.source).body
    except SyntaxError:  # a magic of IPython
        return "", ""
    if not statements:
        return "", ""
    if isinstance(statements[0], ast.Import | ast.ImportFrom):
        return "Show the imports and the set-up", "setup"
    if is_check(statements) and not cell.outputs:
        return f"✓ checked: {check_words(cell.source, statements)}", "check"
    if draws(statements) and any(PICTURES & output.get("data", {}).keys() for output in cell.outputs):
        return f"Show the code of this figure{checks_beside(statements)}", "figure"
    if shows_table(statements) and cell.outputs:
        return f"Show the code of this table{checks_beside(statements)}", "table"
    return "", ""


def is_check(statements: list[ast.stmt]) -> bool:
    """Returns whether the code only asserts something, with what it needs for that."""
    allowed = ast.Assert | ast.Assign | ast.For | ast.If
    return all(isinstance(statement, allowed) for statement in statements) and any(
        isinstance(part, ast.Assert) for part in ast.walk(statements[-1])
    )


def draws(statements: list[ast.stmt]) -> bool:
    """Returns whether the last statement makes a figure and no function is defined on the way."""
    if any(
        isinstance(statement, ast.FunctionDef | ast.ClassDef) and statement.name != "draw" for statement in statements
    ):
        return False
    calls = [part for part in ast.walk(statements[-1]) if isinstance(part, ast.Call)]
    return any(_owner(call.func) in FIGURE_MAKERS for call in calls)


def shows_table(statements: list[ast.stmt]) -> bool:
    """Returns whether the code does little more than to show a table."""
    plain = all(isinstance(statement, ast.Assign | ast.Expr | ast.Assert) for statement in statements)
    last = statements[-1].value if isinstance(statements[-1], ast.Expr) else None
    return plain and len(statements) <= SHORT and isinstance(last, ast.Call) and ast.unparse(last.func) == "tables.show"


def checks_beside(statements: Sequence[ast.stmt]) -> str:
    """Returns what is checked on the way to a figure or a table, ready to follow other words."""
    checks = [statement for statement in statements if isinstance(statement, ast.Assert)]
    return f" · ✓ checked: {check_words('', checks)}" if checks else ""


def check_words(source: str, statements: Sequence[ast.stmt]) -> str:
    """Returns what is checked: the comment above the assertions if there is one, or the assertions themselves.

    Example:
        >>> check_words("# The gradient sums to zero.\\nassert total == 0", [])
        'The gradient sums to zero.'
        >>> check_words("", ast.parse("for n in sizes:\\n    assert f(n) == n").body)
        'f(n) == n for n in sizes'
    """
    comment = re.match(r"(?:#[^\n]*\n)+", source + "\n")
    if comment:
        return " ".join(line.lstrip("# ").strip() for line in comment[0].splitlines())
    words = "; ".join(_assertions(statements))
    return words if len(words) <= LONGEST else words[:LONGEST].rsplit(" ", 1)[0] + " …"


def _assertions(statements: Sequence[ast.stmt], loop: str = "") -> list[str]:
    found = []
    for statement in statements:
        if isinstance(statement, ast.Assert):
            found.append(ast.unparse(statement.test) + loop)
        elif isinstance(statement, ast.For):
            over = f" for {ast.unparse(statement.target)} in {ast.unparse(statement.iter)}"
            found += _assertions(statement.body, over + loop)
        elif isinstance(statement, ast.If):
            found += _assertions(statement.body, f" if {ast.unparse(statement.test)}" + loop)
    return found


def _owner(function: ast.expr) -> str:
    while isinstance(function, ast.Attribute | ast.Call):
        function = function.value if isinstance(function, ast.Attribute) else function.func
    return function.id if isinstance(function, ast.Name) else ""
