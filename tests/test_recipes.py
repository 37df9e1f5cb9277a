"""The programs of the page Recipes run to their end and print what they promise."""

import runpy
from importlib import import_module
from pathlib import Path

import pytest

RECIPES = Path(__file__).parents[1] / "book" / "recipes"
NEEDS = {
    "plain_pytorch": ["torch"],
    "clam_instance_loss": ["torch"],
    "lightning_module": ["lightning"],
    "timm_step": ["timm"],
    "hugging_face_trainer": ["transformers", "accelerate"],
}
PRINTS = {
    "plain_pytorch": "validation top-5",
    "clam_instance_loss": "bags classified correctly: 100.0%",
    "lightning_module": "best validation top-5",
    "timm_step": "validation top-5",
    "hugging_face_trainer": "best validation top-5",
}


def test_every_recipe_is_on_the_page_and_tested():
    names = {path.stem for path in RECIPES.glob("*.py")}
    pages = "".join(
        (RECIPES.parent / f"{page}.md").read_text(encoding="utf-8") for page in ("recipes", "coming_from_topk")
    )
    assert names == set(NEEDS) == set(PRINTS)
    assert all(f"recipes/{name}.py" in pages for name in names)


@pytest.mark.parametrize("name", NEEDS)
def test_no_line_of_a_recipe_is_wider_than_the_page(name):
    lines = (RECIPES / f"{name}.py").read_text(encoding="utf-8").splitlines()
    assert max(map(len, lines)) <= 88


@pytest.mark.parametrize("name", NEEDS)
def test_the_recipe_runs(name, capsys):
    import_module("smooth_topk.study.data.vision")  # timm imports torchvision, which may be built for another torch
    for package in NEEDS[name]:
        pytest.importorskip(package, reason=f"this recipe needs {package}: pip install {package}")
    runpy.run_path(str(RECIPES / f"{name}.py"), run_name="__main__")
    assert PRINTS[name] in capsys.readouterr().out
