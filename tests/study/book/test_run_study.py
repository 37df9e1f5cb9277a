"""The study command: what it refuses, what it trains and executes, how it stops and continues."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
import pytest

from smooth_topk.study.book import build, cost, plan, run_study
from smooth_topk.study.experiments import profiles
from smooth_topk.study.experiments.expected_cost import expected_seconds
from smooth_topk.study.experiments.registry import EXPERIMENTS, table_2_small_data
from smooth_topk.study.experiments.selections import study_runs
from smooth_topk.study.grid import run_grid
from smooth_topk.study.records.runs import recorded_ids, write_record

PROJECT = Path(__file__).parents[3]
PATIENCE = 400  # seconds until a process that should have reacted is given up
CHAPTER = """# %% tags=["parameters"{more}]
profile = "quick"
epochs = 2
rate = 0.1
seeds = None

# %%
{code}
"""
RUNS = """
from smooth_topk.study.chapters import trainings
runs = trainings.runs_of("table_8_margin_top5", profile, epochs=epochs)
print(trainings.run_missing(runs, profile)["epochs"].tolist())
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An empty project folder that the command takes for its own."""
    for folder in ("notebooks", "book/results"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setattr(os, "environ", os.environ.copy())  # what the command sets is gone after the test
    for name in ("DATA", "WORKERS", "EXECUTOR", "RUNS"):
        os.environ.pop(f"SMOOTH_TOPK_{name}", None)
    os.environ["SMOOTH_TOPK_ROOT"] = str(tmp_path)
    monkeypatch.setattr(profiles, "PARAMETERS", {profile: {} for profile in profiles.PROFILES})
    return tmp_path


def write_chapter(project, name, code="print(epochs)", more=""):
    (project / "notebooks" / f"{name}.py").write_text(CHAPTER.format(code=code, more=more))


def printed(path):
    return "".join(o.text for c in nbformat.read(path, 4).cells for o in c.get("outputs", []) if "text" in o)


# What is refused


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (["07"], "'07'"),
        (["0"], "01_first, 02_second"),
        (["--profile", "fast"], "'fast'"),
        (["-p", "01.epoch=3"], "'epoch'"),
        (["-p", "01_first"], "01_first"),
        (["-p", "epochs=3"], "epochs=3"),
        (["-p", "01.epochs=many"], "'many'"),
        (["-p", "01.epochs=1.5"], "1.5"),
        (["-p", "01.seeds=abc"], "'abc'"),
        (["-p", "01.profile=paper"], "--profile paper"),
        (["01", "-p", "02.epochs=3"], "02_second"),
        (["--trainings", "table_9"], "'table_9'"),
        (["--profile", "paper", "--trainings", "one_night"], "cifar100"),
        (["--cluster", "slurm"], "'slurm'"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_starts(project, capsys, arguments, value):
    write_chapter(project, "01_first")
    write_chapter(project, "02_second")
    before = sorted(project.rglob("*"))
    assert run_study.main(arguments) == 2
    assert value in capsys.readouterr().err
    assert sorted(project.rglob("*")) == before


@pytest.mark.parametrize("wrong", [["--workers", "0"], ["--calibrate"], ["--trainings", "all", "-p", "01.epochs=3"]])
def test_an_impossible_option_is_refused(wrong, capsys):
    with pytest.raises(SystemExit) as caught:
        run_study.read_options(wrong)
    assert caught.value.code == 2
    assert wrong[0] in capsys.readouterr().err


@pytest.mark.parametrize("cell", ['profile = "quick"\nepochs = 2 * 3', "import os"])
def test_a_parameters_cell_with_more_than_literals_is_refused(project, cell):
    (project / "notebooks" / "01_first.py").write_text(f'# %% tags=["parameters"]\n{cell}\n')
    with pytest.raises(ValueError, match="01_first"):
        plan.make_plan("quick")


def test_missing_data_is_named_with_the_command_that_prepares_it(project):
    found = plan.missing_data(["cifar100", "synthetic", "constructed_1000", "constructed_10000", "cifar100_features"])
    assert list(found) == ["cifar100"]
    assert "prepare_data.py cifar100" in found["cifar100"]
    (project / "data" / "cifar100").mkdir(parents=True)
    (project / "data" / "cifar100" / "train.npy").write_bytes(b"x")
    assert plan.missing_data(["cifar100"]) == {}


# Plans and costs


def test_parameters_come_from_the_chapter_the_profile_and_the_command_line(project):
    write_chapter(project, "01_first", more=', "alone"')
    profiles.PARAMETERS["quick"] = {"01_first": {"epochs": 7, "rate": 0.1}}
    (chapter,) = plan.make_plan("quick")
    assert (chapter.changed, chapter.trains_itself, chapter.alone) == ({"epochs": 7}, False, True)
    (chapter,) = plan.make_plan("quick", ["01", "01_first"], ["01.epochs=9", "01.seeds=[0, 1]", "01.rate=1"])
    assert chapter.changed == {"epochs": 9, "seeds": [0, 1], "rate": 1}
    assert chapter.trains_itself


@pytest.mark.parametrize("profile", profiles.PROFILES)
def test_the_cost_of_every_experiment_is_known_and_fits_the_terminal(project, profile):
    runs = {name: experiment.runs(profile) for name, experiment in EXPERIMENTS.items()}
    speed = cost.read_speed(profile)
    table = cost.cost_table(profile, runs, 8, speed)
    assert set(table.index) == {"all", *(name for name in runs if runs[name])}
    assert (table["disk"] > 0).all()
    assert max(map(len, cost.shown(table, speed, 8).splitlines())) <= cost.WIDTH


def test_the_time_that_is_left_shrinks_with_what_is_recorded(project):
    runs = table_2_small_data("paper")
    speed = cost.read_speed("paper")
    before = cost.cost_table("paper", {"table_2": runs}, 8, speed).loc["all"]
    write_record(project / "runs/paper/records", {"run_id": runs[-1].run_id, **runs[-1].to_dict()}, [])
    after = cost.cost_table("paper", {"table_2": runs}, 8, speed).loc["all"]
    assert before["seconds"] - after["seconds"] == pytest.approx(expected_seconds(runs[-1], "gpu"))
    assert after["recorded"] == 1
    assert before["seconds"] / 8 <= before["together"] < before["seconds"]


def test_a_dry_run_shows_parameters_runs_and_missing_data_and_writes_nothing(project, capsys):
    write_chapter(project, "09_noisy_labels_study")
    before = sorted(project.rglob("*"))
    assert run_study.main(["--dry-run", "--profile", "paper", "-p", "09.epochs=3", "--workers", "4"]) == 0
    output = capsys.readouterr().out
    assert sorted(project.rglob("*")) == before
    assert all(len(line) <= cost.WIDTH for line in output.splitlines())
    (line,) = (line.split() for line in output.splitlines() if line.startswith("table_1_noise"))
    assert (line[1:3], line[-1]) == (["66", "0"], "cifar100")
    for shown in ("epochs=3", "rate=0.1", "4 GPUs", "prepare_data.py cifar100"):
        assert shown in output


def test_calibrating_times_this_device_and_a_dry_run_then_uses_it(project, capsys):
    arguments = ["--profile", "smoke", "--trainings", "one_night", "--dry-run"]
    assert run_study.main([*arguments, "--calibrate"]) == 0
    first = capsys.readouterr().out
    (file,) = (project / "runs" / "smoke").iterdir()
    assert str(file) in first
    assert run_study.main(arguments) == 0
    second = capsys.readouterr().out
    assert "measurement on" in second
    assert first.endswith(second)


def test_quick_trains_one_seed_and_the_other_profiles_all(project):
    chapters = {experiment.chapter for experiment in EXPERIMENTS.values()}
    quick = [run for runs in study_runs("quick", chapters).values() for run in runs]
    assert {run.seed for run in quick} == {0}
    assert {run.dataset for run in quick} == {"cifar100_features"}
    assert len({run.run_id for run in quick}) == len(quick)
    paper = study_runs("paper", chapters)
    assert sum(len(runs) for runs in paper.values()) == 88


# Training and executing


@pytest.mark.slow
def test_a_study_trains_first_executes_its_chapters_and_trains_nothing_twice(project, capsys):
    write_chapter(project, "12_margin_study", code=RUNS.replace(", epochs=epochs", ""))
    write_chapter(project, "01_first", more=', "alone"')
    runs = project / "runs" / "smoke"
    assert run_study.main(["--profile", "smoke", "--no-book"]) == 0
    assert "0 found, 4 trained" in capsys.readouterr().out
    assert "2 runs: 2 found, 0 trained now." in printed(runs / "notebooks" / "12_margin_study.ipynb")
    assert len(recorded_ids(runs / "records")) == 4
    assert run_study.main(["12", "--profile", "smoke", "--no-book"]) == 0
    assert "4 found, 0 trained" in capsys.readouterr().out
    assert not any((project / "book" / "results").iterdir())
    notebook = nbformat.read(runs / "notebooks" / "01_first.ipynb", 4)
    assert notebook.metadata["smooth_topk"]["profile"] == "smoke"
    assert "papermill" not in json.dumps(notebook)
    assert printed(runs / "notebooks" / "01_first.ipynb") == "2\n"


@pytest.mark.slow
def test_a_chapter_with_other_parameters_trains_its_own_runs(project, capsys):
    write_chapter(project, "12_margin_study", code=RUNS)
    assert run_study.main(["--profile", "smoke", "--no-book", "-p", "12.epochs=1"]) == 0
    output = printed(project / "runs/smoke/notebooks/12_margin_study.ipynb")
    assert "2 runs: 0 found, 2 trained now.\n[1, 1]" in output
    assert len(recorded_ids(project / "runs/smoke/records")) == 2


@pytest.mark.slow
def test_experiments_are_trained_by_name(project, capsys):
    arguments = ["--profile", "smoke", "--trainings", "table_8_margin_top5", "--workers", "1"]
    assert run_study.main(arguments) == 0
    assert "0 found, 2 trained" in capsys.readouterr().out
    assert not (project / "runs/smoke/notebooks").exists()


@pytest.mark.slow
def test_chapters_that_fail_are_named_with_their_reason_and_the_others_are_done(project, capsys):
    write_chapter(project, "01_fails", code="print(1 / 0)")
    write_chapter(project, "02_dies", code="import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    write_chapter(project, "03_works")
    assert run_study.main(["--no-book"]) == 1
    errors = capsys.readouterr().err
    assert "ZeroDivisionError: division by zero" in errors
    assert "02_dies failed" in errors
    assert [path.stem for path in (project / "runs/quick/notebooks").iterdir()] == ["03_works"]
    assert (project / "runs/quick/failed/01_fails.ipynb").exists()
    assert not list((project / "runs/quick").glob(".executing-*"))


def test_the_book_is_built_when_every_chapter_has_run(project, capsys, monkeypatch):
    built = []
    monkeypatch.setattr(build, "main", lambda arguments: built.append(arguments) or 0)
    write_chapter(project, "01_first")
    folder = project / "runs" / "quick"
    assert run_study.build_book(folder) == 0
    assert "01_first" in capsys.readouterr().out
    (folder / "notebooks").mkdir(parents=True)
    (folder / "notebooks" / "01_first.ipynb").touch()
    assert run_study.build_book(folder) == 0
    assert built == [["--notebooks", str(folder / "notebooks")]]


# Stopping


def start_study(project, *arguments):
    command = [sys.executable, PROJECT / "scripts" / "run_study.py", "--no-book", *arguments]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(PROJECT), *sys.path])}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True)


def wait_until(happened, process):
    end = time.monotonic() + PATIENCE
    while not happened():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end, "gave up waiting"
        time.sleep(0.02)


def stop(process, number):
    """Sends a signal as a terminal does, to the group of the process; returns what it said, once nothing is left."""
    children = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, number)
    errors = process.communicate(timeout=PATIENCE)[1]
    assert not psutil.wait_procs(children, timeout=PATIENCE)[1]
    return errors


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_study_that_is_stopped_while_it_trains_continues_from_its_checkpoints(project, number, code):
    for file in (PROJECT / "book" / "results").glob("cifar100_features.*"):
        (project / "book" / "results" / file.name).symlink_to(file)
    folder = project / "runs" / "quick"
    study = start_study(project, "--trainings", "table_8_margin_top5", "--workers", "1")
    log = folder / "checkpoints" / "worker-0.log"
    wait_until(lambda: log.exists() and "epoch 1/" in log.read_text(), study)
    errors = stop(study, number)
    assert study.returncode == code
    assert "Traceback" not in errors
    (unfinished,) = {path.parent.name for path in folder.glob("checkpoints/*/checkpoint-*.pt")}
    runs = [run for run in EXPERIMENTS["table_8_margin_top5"].runs("quick") if run.run_id == unfinished]
    table = run_grid(runs, records_folder=folder / "records", checkpoints_folder=folder / "checkpoints")
    assert table["resumes"].tolist() == [1]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_study_that_is_stopped_while_a_chapter_runs_leaves_no_process(project, number, code):
    write_chapter(project, "01_long", code=f"import time\nopen('begun', 'w').close()\ntime.sleep({PATIENCE})")
    study = start_study(project)
    wait_until(lambda: list(project.rglob("begun")), study)
    errors = stop(study, number)
    assert study.returncode == code
    assert "Traceback" not in errors


@pytest.mark.slow
def test_two_studies_at_once_do_no_harm(project):
    write_chapter(project, "12_margin_study", code=RUNS)
    both = [start_study(project, "--profile", "smoke", "--workers", "1") for _ in range(2)]
    assert [study.wait(PATIENCE) for study in both] == [0, 0]
    records = [json.loads(path.read_text())["row"] for path in (project / "runs/smoke/records").glob("*.json")]
    assert [record["resumes"] for record in records] == [0] * 4
    assert (project / "runs/smoke/notebooks/12_margin_study.ipynb").exists()
