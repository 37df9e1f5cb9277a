"""What `smooth_topk.study` offers by itself: light to import, and the example of CONTRIBUTING.md runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from smooth_topk import study

ROOT = Path(__file__).resolve().parents[2]


def test_importing_the_study_imports_none_of_its_subpackages():
    program = "import sys, smooth_topk.study; print([m for m in sys.modules if m.startswith('smooth_topk.study.')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_found_and_another_is_not():
    assert all(callable(getattr(study, name)) for name in study.__all__)
    with pytest.raises(AttributeError, match="'fits'"):
        study.fits  # noqa: B018


def test_the_training_of_the_page_for_contributors_runs(tmp_path, monkeypatch):
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(example.strip().splitlines()) <= 12
    monkeypatch.chdir(tmp_path)
    found: dict = {}
    exec(example, found)
    assert len(study.read_runs(tmp_path / "runs/mine/records")) == 2
    assert len(found["axes"].lines) == 2
