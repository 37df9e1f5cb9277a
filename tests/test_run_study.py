"""The runner: plans, refusals, failures, a kill half-way, resuming. Each test has a small project of its own."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

PROJECT = Path(__file__).parents[1]
sys.path.insert(0, str(PROJECT / "scripts"))

import run_study  # noqa: E402
import study_plan  # noqa: E402

PATIENCE = 120  # seconds until a process that should have reacted is given up
CHAPTER = """# %% tags=["parameters"{more}]
profile = "quick"
epochs = 2
rate = 0.1

# %%
{code}
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An empty project folder that the runner takes for its own."""
    for folder in ("notebooks", "scripts/profiles", "book/results", "smooth_topk"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setenv("SMOOTH_TOPK_ROOT", str(tmp_path))
    monkeypatch.delenv("SMOOTH_TOPK_RUNS", raising=False)
    monkeypatch.delenv("SMOOTH_TOPK_DATA", raising=False)
    for profile in ("smoke", "quick"):
        write_profile(tmp_path, profile, "{}")
    return tmp_path


def write_chapter(project, name, code="print(epochs)", more=""):
    (project / "notebooks" / f"{name}.py").write_text(CHAPTER.format(code=code, more=more))


def write_profile(project, profile, notebooks):
    (project / "scripts" / "profiles" / f"{profile}.yaml").write_text(f"notebooks: {notebooks}\n")


def refusal(project, *arguments, profile="quick", names=()):
    with pytest.raises(study_plan.Refusal) as caught:
        study_plan.make_plan(project, profile, names, arguments)
    return str(caught.value)


def printed(path):
    return "".join(o.text for c in nbformat.read(path, 4).cells for o in c.get("outputs", []) if "text" in o)


def test_an_unknown_notebook_is_refused(project):
    write_chapter(project, "01_first")
    assert "'07' is not one of 01_first" in refusal(project, names=["07"])


def test_an_ambiguous_beginning_is_refused(project):
    write_chapter(project, "01_first")
    write_chapter(project, "02_second")
    assert "could be 01_first, 02_second" in refusal(project, names=["0"])


def test_an_unknown_parameter_is_refused_with_those_there_are(project):
    write_chapter(project, "01_first")
    assert "no parameter 'epoch': it has profile, epochs, rate" in refusal(project, "01.epoch=3")


def test_an_unknown_parameter_of_a_profile_is_refused(project):
    write_chapter(project, "01_first")
    write_profile(project, "quick", "{01_first: {parameters: {epoch: 3}}}")
    assert "no parameter 'epoch'" in refusal(project)


def test_a_profile_that_names_an_unknown_notebook_is_refused(project):
    write_chapter(project, "01_first")
    write_profile(project, "quick", "{05_gone: {minutes: 1}}")
    assert "05_gone" in refusal(project)


def test_an_unknown_profile_is_refused_with_those_there_are(project):
    write_chapter(project, "01_first")
    assert "choose one of quick, smoke" in refusal(project, profile="fast")


@pytest.mark.parametrize("override", ["01_first", "epochs=3", "01_first.=3"])
def test_an_override_of_another_form_is_refused(project, override):
    write_chapter(project, "01_first")
    assert "NOTEBOOK.NAME=VALUE" in refusal(project, override)


def test_a_value_of_another_type_is_refused(project):
    write_chapter(project, "01_first")
    assert "01_first.epochs is like 2, got 'many'" in refusal(project, "01.epochs=many")


def test_the_yaml_trap_1e_3_is_refused_with_a_hint(project):
    write_chapter(project, "01_first")
    write_profile(project, "quick", "{01_first: {parameters: {rate: 1e-3}}}")
    assert "write 1.0e-3" in refusal(project)


def test_an_override_of_a_notebook_that_does_not_run_is_refused(project):
    write_chapter(project, "01_first")
    write_chapter(project, "02_second")
    assert "not among the notebooks to run" in refusal(project, "02.epochs=3", names=["01"])


def test_a_parameters_cell_with_more_than_literals_is_refused(project):
    path = project / "notebooks" / "01_first.py"
    path.write_text('# %% tags=["parameters"]\nprofile = "quick"\nepochs = 2 * 3\n')
    assert "only NAME = LITERAL" in refusal(project)


def test_missing_data_is_refused_with_the_command_that_prepares_it(project):
    write_chapter(project, "01_first")
    write_profile(project, "quick", "{01_first: {needs: [cifar100]}}")
    assert "python scripts/prepare_data.py cifar100" in refusal(project)
    (project / "data" / "cifar100").mkdir(parents=True)
    (project / "data" / "cifar100" / "train.npy").write_bytes(b"x")
    assert [task.name for task in study_plan.make_plan(project, "quick")] == ["01_first"]


def test_a_refused_study_starts_nothing(project, capsys):
    write_chapter(project, "01_first")
    assert run_study.main(["-p", "01.epoch=3"]) == 2
    assert "no parameter 'epoch'" in capsys.readouterr().err
    assert not (project / "runs").exists()


def test_overrides_are_stronger_than_the_profile_and_only_changes_are_passed(project):
    write_chapter(project, "01_first")
    write_profile(project, "quick", "{01_first: {parameters: {epochs: 7, rate: 0.1}}}")
    (task,) = study_plan.make_plan(project, "quick", [], ["01.epochs=9"])
    assert task.parameters == {"epochs": 9}


def test_the_key_changes_with_source_parameters_package_and_results(project):
    def key(*overrides):
        return study_plan.make_plan(project, "quick", [], overrides)[0].key

    write_chapter(project, "01_first")
    keys = [key(), key("01.epochs=3")]
    write_chapter(project, "01_first", code="print(rate)")
    keys.append(key())
    (project / "smooth_topk" / "losses.py").write_text("new")
    keys.append(key())
    (project / "book" / "results" / "runs.csv").write_text("new")
    keys.append(key())
    assert len(set(keys)) == 5
    assert key() == keys[-1]


def test_chapters_tagged_alone_come_last(project):
    write_chapter(project, "01_timing", more=', "alone"')
    write_chapter(project, "02_second")
    assert [task.name for task in study_plan.make_plan(project, "quick")] == ["02_second", "01_timing"]


def test_the_expected_time_is_that_of_longest_first(project):
    tasks = [study_plan.Task(str(i), project, {}, seconds=60.0 * m) for i, m in enumerate((1, 1, 2))]
    alone = study_plan.Task("alone", project, {}, alone=True, seconds=60.0)
    assert "about 3.0 minutes with 2 at a time" in run_study.expected_time([*tasks, alone], 2)


def test_a_dry_run_shows_the_plan_and_runs_nothing(project, capsys):
    write_chapter(project, "01_first")
    write_profile(project, "quick", "{01_first: {minutes: 2}}")
    assert run_study.main(["--dry-run"]) == 0
    assert "1 of 1 chapters to run, about 2.0 minutes" in capsys.readouterr().out
    assert not (project / "runs").exists()


def test_the_list_shows_the_parameters_of_the_profile(project, capsys):
    write_chapter(project, "01_first")
    write_profile(project, "smoke", "{01_first: {parameters: {epochs: 1}}}")
    assert run_study.main(["--list", "--profile", "smoke"]) == 0
    assert "epochs = 1" in capsys.readouterr().out


def test_the_cluster_reaches_the_notebooks_and_one_thread_is_the_default(project, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    options = run_study.read_options(["--cluster", "ray:host:6379"])
    found = run_study.environment(project, project / "runs" / "quick", options)
    assert found["SMOOTH_TOPK_EXECUTOR"] == "ray:host:6379"
    assert found["SMOOTH_TOPK_ROOT"] == str(project)
    assert found["SMOOTH_TOPK_RUNS"] == str(project / "runs")
    assert found["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize("wrong", [["--cluster", "slurm"], ["--workers", "0"]])
def test_an_impossible_option_is_refused(wrong, capsys):
    with pytest.raises(SystemExit) as caught:
        run_study.read_options(wrong)
    assert caught.value.code == 2
    assert f"got {wrong[1]}" in capsys.readouterr().err.replace("'", "")


def test_the_book_waits_until_every_chapter_has_run(project, capsys):
    write_chapter(project, "01_first")
    assert run_study.build_book(project, project / "runs" / "quick") == 0
    assert "The book is not built: 01_first did not run" in capsys.readouterr().out


@pytest.mark.slow
def test_a_study_runs_fails_says_where_and_resumes_with_what_is_missing(project, capfd, monkeypatch):
    monkeypatch.chdir("/")
    write_chapter(project, "01_first")
    write_chapter(project, "02_broken", code="raise RuntimeError('no luck')")
    assert run_study.main(["--no-book", "-p", "01.epochs=11"]) == 1
    out = capfd.readouterr().out
    assert "02_broken failed: RuntimeError: no luck" in out
    assert "raise RuntimeError('no luck')" in out  # the failing cell's text
    folder = project / "runs" / "quick"
    assert printed(folder / "notebooks" / "01_first.ipynb").strip() == "11"
    assert not (folder / "notebooks" / "02_broken.ipynb").exists()
    rows = {row["notebook"]: row["status"] for row in csv.DictReader((folder / "summary.csv").open())}
    assert rows == {"01_first": "done", "02_broken": "failed"}

    metadata = nbformat.read(folder / "notebooks" / "01_first.ipynb", 4).metadata
    assert set(metadata.smooth_topk) >= {"profile", "machine", "date", "versions", "seconds"}
    assert str(project) not in json.dumps(metadata)  # papermill's paths do not travel

    write_chapter(project, "02_broken", code="print('mended')")
    assert run_study.main(["--no-book", "-p", "01.epochs=11"]) == 0
    assert "1 chapters to run, 1 done already" in capfd.readouterr().out


@pytest.mark.slow
def test_a_study_killed_half_way_leaves_no_process_and_goes_on(project):
    write_chapter(project, "01_first")
    stop = "import os, pathlib, time\npathlib.Path(os.environ['SMOOTH_TOPK_RUNS'], 'pid').write_text(str(os.getpid()))"
    write_chapter(project, "02_long", code=f"{stop}\ntime.sleep({PATIENCE})", more=', "alone"')
    command = [sys.executable, PROJECT / "scripts" / "run_study.py", "--no-book"]
    study = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    pid = project / "runs" / "pid"
    wait_until(pid.exists)
    second = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert second.returncode == 2
    assert "Another study is running" in second.stderr
    os.kill(study.pid, signal.SIGKILL)
    study.wait()
    wait_until(lambda: not alive(int(pid.read_text())))

    write_chapter(project, "02_long", code="print('short')", more=', "alone"')
    resumed = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert resumed.returncode == 0, resumed.stdout
    assert "1 chapters to run, 1 done already" in resumed.stdout


def wait_until(happened):
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, "gave up waiting"
        time.sleep(0.1)


def alive(pid):
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()
