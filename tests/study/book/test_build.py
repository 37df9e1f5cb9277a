"""What the book is made of, before Sphinx sees it; the built book is read in tests/browser."""

import base64
import importlib
import inspect
import io
import os
import re
from fnmatch import fnmatch
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from markdown_it import MarkdownIt
from nbformat import v4
from PIL import Image

import smooth_topk
from smooth_topk.study.book import build, executed_chapters, pictures, results_page
from smooth_topk.study.experiments import registry
from smooth_topk.study.records.published import publish
from smooth_topk.study.records.runs import write_record

ROOT = Path(__file__).parents[3]

WIDGET = "application/vnd.jupyter.widget-view+json"


def page(name: str) -> str:
    return (ROOT / "book" / name).read_text(encoding="utf-8")


def notation_rows() -> list[tuple[str, str]]:
    """(name in code, where defined) of every row of the notation page."""
    text = re.sub(r"`(\w+)` in `([\w.]+)`", r"`\2.\1`", page("notation.md"))  # a function in its module
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines()]
    return [(row[1].strip("`"), row[3].strip("` |")) for row in rows if len(row) == 4 and row[1].startswith("`")]


def find(path: str) -> object:
    """The module, function or class of a dotted path."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise AssertionError(f"{path} does not exist")


def test_the_notation_page_has_rows():
    assert len(notation_rows()) >= 15


@pytest.mark.parametrize(("name", "where"), notation_rows())
def test_every_name_of_the_notation_page_exists_where_it_says(name, where):
    owner = find(where)
    if inspect.isfunction(owner):
        code = owner.__code__
        assert name in (*inspect.signature(owner).parameters, *code.co_varnames, *code.co_cellvars)
    else:
        assert hasattr(owner, name)


def test_the_reference_documents_every_public_name():
    documented = re.findall(r"auto(?:function|class):: smooth_topk\.(\w+)", page("api.md"))
    assert sorted(documented) == sorted(smooth_topk.__all__)


def test_the_reference_of_the_study_names_documented_functions_of_its_modules():
    pages = build.study_reference()
    explorer = ".. automodule:: smooth_topk.study.chapters.tau_explorer\n   :members: TauExplorer"
    assert explorer in pages["api_study_chapters"]
    grid = "## grid\n\n```{eval-rst}\n.. automodule:: smooth_topk.study.grid\n   :members: run_grid\n"
    assert grid in pages["api_study_grid"]
    assert not any("__init__" in text or "_within" in text for text in pages.values())


def test_the_reference_of_the_study_has_one_page_per_room_and_links_to_each():
    pages = build.study_reference()
    rooms = {path.parent.name for path in (ROOT / "smooth_topk" / "study").glob("*/__init__.py")}
    assert {name.removeprefix("api_study_") for name in pages} == {"api_study", *rooms}
    assert all(f"- [{room}](api_study_{room}): " in pages["api_study"] for room in rooms)


def test_every_page_is_in_the_table_of_contents():
    generated = {"results", "api_study"}
    pages = {path.stem for path in (ROOT / "book").glob("*.md")} | generated
    assert {"errata", "index"} <= pages
    for name in pages - {"index"}:
        assert re.search(rf"^{name}$", page("index.md"), re.MULTILINE), name


def test_every_reference_is_cited_and_every_citation_has_a_reference():
    entries = set(re.findall(r"^@\w+\{(\w+),", page("references.bib"), re.MULTILINE))
    pages = "".join(page(path.name) for path in (ROOT / "book").glob("*.md"))
    assert entries == {key for keys in re.findall(r"\{cite:\w\}`([^`]+)`", pages) for key in keys.split(",")}


def test_parts_without_a_chapter_are_left_out_of_the_contents():
    index = build.without_empty_parts(page("index.md"), {"00_start_here", "13_use_it_in_your_project"})
    assert ":caption: The loss" in index
    assert "chapters/0[0-2]_*" in index
    assert "chapters/1[34]_*" in index
    assert ":caption: Beyond the paper" not in index
    assert index.count("```") % 2 == 0


def test_the_chapters_follow_each_other_in_the_table_of_contents():
    contents = re.findall(r"```\{toctree\}(.*?)```", page("index.md"), re.DOTALL)
    entries = re.findall(r"^(chapters/.*|(?!experiments$)[a-z_]+)$", "\n".join(contents), re.MULTILINE)
    places = [place for place, entry in enumerate(entries) if entry.startswith("chapters/")]
    names = sorted(path.stem for path in (ROOT / "notebooks").glob("[0-9]*.py"))
    listed = [name for place in places for name in names if fnmatch(f"chapters/{name}", entries[place])]
    assert listed == names
    assert places == list(range(places[0], places[-1] + 1))  # no other page between two chapters


def test_a_whole_book_keeps_its_whole_contents():
    names = {f"{number:02}_chapter" for number in range(16)}
    assert build.without_empty_parts(page("index.md"), names) == page("index.md")


def prepared(tmp_path: Path, notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    nbformat.write(notebook, tmp_path / "executed.ipynb")
    executed_chapters.prepare_chapter(tmp_path / "executed.ipynb", tmp_path / "chapter.ipynb", {"00_start_here"})
    return nbformat.read(tmp_path / "chapter.ipynb", as_version=4)


def png() -> str:
    """A small white picture as a notebook stores it."""
    file = io.BytesIO()
    Image.new("RGB", (4, 3), "white").save(file, "png")
    return base64.b64encode(file.getvalue()).decode()


def test_a_chapter_says_where_its_outputs_come_from_below_its_title(tmp_path):
    notebook = v4.new_notebook(cells=[v4.new_markdown_cell("# Title"), v4.new_code_cell("1")])
    notebook.metadata["smooth_topk"] = {
        "profile": "laptop",
        "machine": "A machine",
        "date": "2026-02-13T00:00:00+00:00",
    }
    chapter = prepared(tmp_path, notebook)
    assert chapter.cells[0].source == "# Title"
    assert "profile **laptop** · A machine · 13 February 2026." in chapter.cells[1].source


def test_what_a_notebook_does_not_know_about_itself_is_called_not_recorded(tmp_path):
    notebook = v4.new_notebook(cells=[v4.new_markdown_cell("# Title")])
    note = prepared(tmp_path, notebook).cells[1].source
    assert "profile not recorded · machine not recorded · date not recorded." in note


def test_the_date_and_time_of_papermill_count_where_nothing_else_is_known(tmp_path):
    notebook = v4.new_notebook(cells=[v4.new_markdown_cell("# Title")])
    notebook.metadata["papermill"] = {"end_time": "2026-02-03T04:05:06.000000+00:00", "duration": 7.2}
    assert "3 February 2026 · 7\N{NO-BREAK SPACE}s." in prepared(tmp_path, notebook).cells[1].source


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        ({"text/plain": "IntSlider()"}, "text/markdown", "JupyterLab"),
        ({"text/plain": "VBox()", "text/markdown": "*Move tau there.*"}, "text/markdown", "*Move tau there.*"),
        ({"text/plain": "Explorer", "text/html": "<div data-figure></div>"}, "text/html", "data-figure"),
    ],
)
def test_no_dead_widget_is_left_on_a_page(tmp_path, data, kind, text):
    output = v4.new_output("display_data", data={**data, WIDGET: {"model_id": "unknown"}})
    notebook = v4.new_notebook(cells=[v4.new_markdown_cell("# T"), v4.new_code_cell("w", outputs=[output])])
    (shown,) = prepared(tmp_path, notebook).cells[2].outputs
    assert text in shown.data[kind]
    assert WIDGET not in shown.data


def test_links_of_a_chapter_to_pages_of_the_book_are_mended(tmp_path):
    notebook = v4.new_notebook(cells=[v4.new_markdown_cell("# T\n\n[notation](../book/notation.md)")])
    assert "[notation](../notation.md)" in prepared(tmp_path, notebook).cells[0].source


def test_a_link_to_a_chapter_that_is_not_in_the_book_becomes_text(tmp_path):
    source = "# T\n\n[0](00_start_here.ipynb#map) and [1 · Hard](01_hard.ipynb)."
    notebook = v4.new_notebook(cells=[v4.new_markdown_cell(source)])
    assert "[0](00_start_here.ipynb#map) and 1 · Hard." in prepared(tmp_path, notebook).cells[0].source


def test_a_figure_is_described_by_the_text_above_it(tmp_path):
    picture = v4.new_output("display_data", data={"image/png": png()})
    cells = [
        v4.new_markdown_cell("# T"),
        v4.new_markdown_cell("## Two\n\nEach *point* is a [sample](00_start_here.ipynb), $s_y > 0$."),
        v4.new_code_cell("draw()", outputs=[picture]),
    ]
    chapter = prepared(tmp_path, v4.new_notebook(cells=cells))
    assert chapter.cells[3].metadata["mystnb"]["image"] == {"alt": "Each point is a sample, s_y > 0."}


def readme_pictures() -> list[tuple[str, Path]]:
    """(alt text, file) of every picture in the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return [(alt, ROOT / path) for alt, path in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", text)]


def test_the_readme_shows_two_small_pictures_and_describes_them():
    assert len(readme_pictures()) >= 2
    for alt, path in readme_pictures():
        assert len(alt) > 40, path
        content = path.read_bytes()
        assert b"<svg" in content[:1000], path
        assert len(content) < 150_000, path


def test_the_committed_pictures_are_those_of_the_recorded_numbers(tmp_path):
    results = ROOT / "book" / "results"
    drawn = pictures.draw_readme_pictures(tmp_path, results)
    committed = [path for path in drawn if (results / path.name).exists()]
    assert {path.name for _, path in readme_pictures()} <= {path.name for path in committed}
    stale = [path.name for path in committed if path.read_bytes() != (results / path.name).read_bytes()]
    assert not stale, "Draw them again: python scripts/book_pictures.py"


def test_the_noise_picture_has_the_papers_numbers_and_ours(tmp_path):
    for run in registry.table_1_noise("quick", seeds=[0])[:2]:
        row = {"run_id": run.run_id, **run.to_dict(), "status": "finished", "test_top5": 0.4321, "train_images": 20_000}
        write_record(tmp_path / "records", row, [])
    publish([tmp_path / "records"], tmp_path)
    (picture,) = pictures.draw_readme_pictures(tmp_path, tmp_path)
    first = picture.read_bytes()
    assert picture.name == "noise.svg"
    pictures.draw_readme_pictures(tmp_path, tmp_path)
    assert picture.read_bytes() == first  # no date, no random name


def test_without_recorded_runs_the_results_page_shows_the_paper_and_says_not_run(tmp_path):
    text = results_page.results_page(tmp_path)
    for table in ("Tables 1 and 9", "Table 2", "Table 3", "Table 4", "Table 5", "Table 6", "Table 7", "Table 8"):
        assert f"## {table}" in text
    assert "76.68" in text
    assert text.count("Ours: not run.") > 10
    assert "ours, " not in text


def test_the_results_page_begins_with_the_figure_and_links_each_claim_to_its_chapter():
    results = ROOT / "book" / "results"
    text = results_page.results_page(results, {"09_noisy_labels_study"})
    above = text[: text.index("```{figure} _static/pictures/claims.svg")]
    assert above.startswith("# Results\n")
    assert above.count(".") == 1  # one sentence
    opening = text[: text.index("## In short")]
    assert opening.count("](chapters/09_noisy_labels_study)") == 5
    assert "](chapters/12_margin_study)" not in text  # this book does not have the chapter
    assert "margin 1 − margin 0, k = 5, top-5: " in opening


def test_measured_times_appear_with_their_machine_beside_those_of_the_paper(tmp_path):
    row = {"algorithm": "pivot", "direction": "forward", "n": 1000, "seconds": 0.00123, "machine": "A machine"}
    pd.DataFrame([row]).to_csv(tmp_path / "speed.csv", index=False)
    text = results_page.results_page(tmp_path)
    forward = text[text.index("## Table 3") : text.index("## Table 4")]
    assert "Ours: A machine." in forward
    assert "<td>1.23</td>" in forward  # milliseconds
    assert "<td>62</td>" in forward  # the paper's summation algorithm at n = 1,000


def test_a_recorded_run_of_a_study_appears_with_its_machine_beside_the_papers_number(tmp_path):
    run = registry.table_1_noise("laptop")[0]
    place = {"device": "cpu", "cpu": "A processor", "machine": "2 cores", "torch": "2.13", "date": "2026-11-16"}
    place["machine"] += " <script>alert(1)</script>"
    found = {"status": "finished", "test_top5": 0.4321, "train_images": 5000}
    write_record(tmp_path / "records", {"run_id": run.run_id, **run.to_dict(), **found, **place}, [])
    publish([tmp_path / "records"], tmp_path)
    text = results_page.results_page(tmp_path)
    noise = text[text.index("## Tables 1 and 9") : text.index("## Table 2")]
    assert "<td>43.21</td>" in noise
    assert "ours, 1 seed" in noise
    assert "**Ours on images**: CIFAR-100 images, 5,000 images, 24 epochs, small network" in noise
    assert "A processor" in noise
    assert "<script>" not in MarkdownIt().render(noise)
    assert "2 cores &lt;script&gt;alert(1)&lt;/script&gt;" in MarkdownIt().render(noise)


def test_a_folder_without_executed_notebooks_is_refused_and_nothing_is_written(tmp_path, capsys):
    code = build.main(["--notebooks", str(tmp_path), "--output", str(tmp_path / "html")])
    assert code == 2
    assert f"{tmp_path} holds no executed notebook" in capsys.readouterr().err
    assert not (tmp_path / "html").exists()


@pytest.mark.parametrize("content", [b"", b"{", b'{"cells": 3}', b"\xff\xfe"])
def test_a_damaged_notebook_is_refused_by_name_and_the_old_book_stays(tmp_path, capsys, content):
    (tmp_path / "00_start_here.ipynb").write_bytes(content)
    (tmp_path / "html").mkdir()
    assert build.main(["--notebooks", str(tmp_path), "--output", str(tmp_path / "html")]) == 2
    assert f"!! {tmp_path}/00_start_here.ipynb cannot be read as a notebook" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00_start_here.ipynb", "html"]


@pytest.mark.parametrize(
    ("output", "sentence"),
    [("file", "file is not a folder"), ("file/html", "Could not write"), ("/proc/nowhere/html", "Could not write")],
)
def test_a_place_where_no_book_can_be_is_refused(tmp_path, capsys, output, sentence):
    nbformat.write(v4.new_notebook(), tmp_path / "00_start_here.ipynb")
    (tmp_path / "file").touch()
    assert build.main(["--notebooks", str(tmp_path), "--output", str(tmp_path / output)]) == 2
    assert sentence in capsys.readouterr().err


def test_a_book_that_cannot_be_built_leaves_the_old_one_in_its_place(tmp_path, monkeypatch, capsys):
    notebook = v4.new_notebook(cells=[v4.new_markdown_cell("# Title")])
    nbformat.write(notebook, tmp_path / "00_start_here.ipynb")
    (tmp_path / "html").mkdir()
    (tmp_path / "html" / "index.html").write_text("the old book")
    monkeypatch.setattr(build.subprocess, "call", lambda *_, **__: 1)
    assert build.main(["--notebooks", str(tmp_path), "--output", str(tmp_path / "html")]) == 1
    assert (tmp_path / "html" / "index.html").read_text() == "the old book"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00_start_here.ipynb", "html"]


def test_what_a_killed_build_left_behind_is_removed(tmp_path, monkeypatch):
    (tmp_path / ".building-abc" / "source").mkdir(parents=True)
    monkeypatch.setattr(build, "stage", lambda notebooks, source, book: source.mkdir())
    monkeypatch.setattr(build.subprocess, "call", lambda command, **_: 1)
    assert not build.build([], tmp_path / "html")
    assert list(tmp_path.iterdir()) == []


def test_a_new_book_takes_the_place_of_the_old_one_whole(tmp_path):
    for name in ("new", "place"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.html").touch()
    build.swap(tmp_path / "new", tmp_path / "place", tmp_path / "aside")
    assert [path.name for path in (tmp_path / "place").iterdir()] == ["new.html"]


def test_ctrl_c_while_the_new_book_takes_its_place_leaves_the_old_one(tmp_path, monkeypatch):
    new, place, aside = (tmp_path / name for name in ("new", "place", "aside"))
    new.mkdir()
    place.mkdir()
    (place / "index.html").write_text("the old book")
    rename = os.rename

    def interrupted(source, target):
        if source == new:
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build.swap(new, place, aside)
    assert (place / "index.html").read_text() == "the old book"
