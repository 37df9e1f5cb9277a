"""The files that install the project agree with one another."""

import re
import subprocess
import sys
import tomllib
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


def test_the_loss_depends_on_torch_alone():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [Requirement(line).name for line in project["dependencies"]] == ["torch"]


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


def test_this_environment_is_the_locked_one():
    printed = subprocess.run(
        [sys.executable, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    here = {canonicalize_name(name): version.split("+")[0] for name, version in re.findall(r"(\S+)==(\S+)", printed)}
    if "smooth-topk" not in here:
        pytest.skip("smooth_topk is not installed here by scripts/setup.sh")
    wrong = {name: here.get(name) for name, version in locked().items() if here.get(name) != version}
    assert not wrong


def test_citation_names_the_paper_first():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["preferred-citation"]["title"] == "Smooth Loss Functions for Deep Top-k Classification"
    assert citation["version"] == smooth_topk.__version__
