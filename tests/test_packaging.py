"""The files that install the project agree with one another."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_bytes
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import smooth_topk

ROOT = Path(__file__).resolve().parents[1]
CONDA_NAMES = {"pytorch-gpu": "torch", "matplotlib-base": "matplotlib", "ray-default": "ray"}
NOT_PACKAGES = {"python", "pip"}


def declared() -> dict[str, Requirement]:
    """Every requirement of pyproject.toml, of the package and of its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    requirements = [Requirement(line) for group in groups for line in group]
    return {canonicalize_name(requirement.name): requirement for requirement in requirements}


def locked() -> dict[str, str]:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def conda_environment() -> dict[str, str]:
    """Package -> range of environment.yml, conda's names turned into those of pyproject.toml."""
    from rattler import MatchSpec

    entries = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    ranges = {}
    for entry in entries:
        if isinstance(entry, dict):
            ranges |= {Requirement(line).name: str(Requirement(line).specifier) for line in entry["pip"]}
        else:
            spec = MatchSpec(entry)
            name = spec.name.normalized if hasattr(spec.name, "normalized") else str(spec.name)
            ranges[CONDA_NAMES.get(name, name)] = str(spec.version) if spec.version else ""
    return {canonicalize_name(name): value for name, value in ranges.items() if name not in NOT_PACKAGES}


TORCH_ALONE = """
import sys

sys.modules |= dict.fromkeys(["numba", "triton", "pandas", "scipy"])  # importing them fails
import torch, smooth_topk
scores = torch.tensor([[2.0, 1.0, 0.5, -1.0]], requires_grad=True)
loss = smooth_topk.smooth_topk_loss(scores, torch.tensor([2]), k=2, tau=0.1)
loss.backward()
print(smooth_topk.__file__, smooth_topk.__version__, round(loss.item(), 4), round(scores.grad.sum().item(), 4))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the tracked sources, as pip does it, without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "smooth_topk", folder / "smooth_topk", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder / "dist", folder)
    return next((folder / "dist").glob("*.whl"))


def pip(*arguments: object) -> str:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_wheel_holds_the_losses_with_their_types_and_needs_torch_alone(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata_file,) = (name for name in names if name.endswith("/METADATA"))
        requirements = message_from_bytes(archive.read(metadata_file)).get_all("Requires-Dist")
    assert {"smooth_topk/py.typed", "smooth_topk/pivot/__init__.py", "smooth_topk/polynomials/__init__.py"} <= {*names}
    assert not [name for name in names if name.startswith(("smooth_topk/study", "tests", "scripts", "book"))]
    assert [Requirement(line).name for line in requirements if "extra ==" not in line] == ["torch"]


def test_the_installed_wheel_computes_a_loss_with_torch_alone(wheel, tmp_path):
    pip("install", "--no-deps", "--no-index", "--target", tmp_path / "site", wheel)
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    command = [sys.executable, "-c", TORCH_ALONE]
    printed = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    place, version, loss, total = printed.split()
    assert Path(place).is_relative_to(tmp_path)
    assert version == smooth_topk.__version__
    assert (float(loss), float(total)) == (1.2493, 0.0)


def test_the_lock_file_pins_every_declared_package_within_its_range():
    versions = locked()
    for name, requirement in declared().items():
        assert name in versions, f"{name} is not in requirements.lock"
        assert requirement.specifier.contains(versions[name]), f"{name} is locked at {versions[name]}"


def test_every_locked_package_runs_on_the_oldest_python_that_the_project_promises():
    """The system's own Python of a distribution is often the first of its series: Debian 12 has 3.11.2."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = project["requires-python"].removeprefix(">=") + ".0"
    here = [name for name, version in locked().items() if installed_version(name) == version]
    ranges = {name: metadata.metadata(name)["Requires-Python"] or "" for name in here}
    assert len(ranges) > 50
    assert {name: wanted for name, wanted in ranges.items() if not SpecifierSet(wanted).contains(oldest)} == {}


def installed_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def test_the_lock_file_names_no_build_variant_and_no_address():
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9._!]+", line), line


def test_the_conda_environment_has_the_packages_and_ranges_of_pyproject():
    expected = {name: str(requirement.specifier) for name, requirement in declared().items()}
    assert conda_environment() == expected


def test_workflows_and_hooks_name_the_versions_of_the_project():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert hooks[0]["rev"] == f"v{locked()['ruff']}"
    jobs = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["jobs"]
    oldest = jobs["losses"]["strategy"]["matrix"]["include"][0]["python"]
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"] == f">={oldest}"


def test_this_environment_is_the_locked_one():
    printed = pip("list", "--format=freeze")
    here = {canonicalize_name(name): version.split("+")[0] for name, version in re.findall(r"(\S+)==(\S+)", printed)}
    if "smooth-topk" not in here:
        pytest.skip("smooth_topk is not installed here by scripts/setup.sh")
    wrong = {name: here.get(name) for name, version in locked().items() if here.get(name) != version}
    assert not wrong


def test_citation_names_the_paper_first():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["preferred-citation"]["title"] == "Smooth Loss Functions for Deep Top-k Classification"
    assert citation["version"] == smooth_topk.__version__
