"""The numbers and pictures of README and of the first page are those of the recorded results."""

import re

import pytest

from smooth_topk.study.book import numbers, pictures


def test_the_pages_have_the_recorded_numbers():
    assert numbers.main(["--check"]) == 0


def test_a_number_that_was_edited_is_found_and_mended(tmp_path, monkeypatch, capsys):
    page = tmp_path / "README.md"
    text = "Before.\n<!-- numbers: hyper_parameters -->\n9.9 points\n<!-- end of numbers -->\nAfter 9.9.\n"
    page.write_text(text)
    monkeypatch.setattr(numbers, "PAGES", (page,))
    monkeypatch.setattr(numbers, "draw_pictures", lambda folder: None)
    assert numbers.main(["--check"]) == 1
    assert "README.md" in capsys.readouterr().err
    assert page.read_text() == text
    assert numbers.main([]) == 0
    assert "9.9 points" not in page.read_text()
    assert page.read_text().endswith("After 9.9.\n")
    assert numbers.main(["--check"]) == 0


def test_the_two_by_two_is_of_four_means():
    lead = numbers.two_by_two()
    smooth = lead["tuned", "paper"] - lead["paper", "paper"]
    assert lead["tuned", "tuned"] - lead["paper", "tuned"] == pytest.approx(smooth)
    assert lead["paper", "tuned"] < 0 < lead["tuned", "tuned"] < lead["paper", "paper"]


def test_every_block_of_the_pages_is_known():
    used = {name for page in numbers.PAGES for name in re.findall(r"<!-- numbers: (\w+) -->", page.read_text("utf-8"))}
    assert used == set(numbers.BLOCKS)


def test_the_committed_pictures_are_those_of_the_recorded_numbers(tmp_path):
    pictures.draw_pictures(tmp_path)
    drawn = sorted(tmp_path.iterdir())
    assert [path.name for path in drawn] == ["names.svg", "noise.svg", "spider.svg"]
    stale = [path.name for path in drawn if path.read_bytes() != (numbers.RESULTS / path.name).read_bytes()]
    assert not stale, "Draw them again: python scripts/readme_numbers.py"


def test_readme_describes_its_pictures():
    readme = numbers.PAGES[0].read_text(encoding="utf-8")
    found = re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", readme)
    assert len(found) >= 2
    for words, path in found:
        assert len(words) > 40
        assert (numbers.ROOT / path).stat().st_size < 150_000
    assert len(readme.splitlines()) <= 150
