"""The runner: plans, refusals, failures, a kill half-way, resuming. Each test has a small project of its own."""

import contextlib
import csv
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import nbformat
import pandas as pd
import psutil
import pytest

from smooth_topk.study import grid
from smooth_topk.study.book import build, chapter_queue, dry_run, plan, run_study
from smooth_topk.study.experiments import profiles
from smooth_topk.study.experiments.expected_cost import expected_seconds
from smooth_topk.study.experiments.registry import EXPERIMENTS, table_1_noise, table_2_small_data
from smooth_topk.study.grid import cluster_address
from smooth_topk.study.records import files
from smooth_topk.study.records.endings import ended_in_order
from smooth_topk.study.records.runs import read_runs, write_record

PROJECT = Path(__file__).parents[3]

PATIENCE = 400  # seconds until a process that should have reacted is given up
pytestmark = pytest.mark.usefixtures("hears_of_its_terminal")
NEEDS_RAY = "needs Ray: pip install 'smooth-topk[cluster]'"
CHAPTER = """# %% tags=["parameters"{more}]
profile = "quick"
epochs = 2
rate = 0.1
seeds = None

# %%
{code}
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An empty project folder that the runner takes for its own."""
    for folder in ("notebooks", "book/results", "smooth_topk"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setenv("SMOOTH_TOPK_ROOT", str(tmp_path))
    monkeypatch.delenv("SMOOTH_TOPK_RUNS", raising=False)
    for name in ("DATA", "WORKERS", "EXECUTOR"):
        monkeypatch.delenv(f"SMOOTH_TOPK_{name}", raising=False)
    monkeypatch.setattr(profiles, "MINUTES", {})
    monkeypatch.setattr(profiles, "CHANGES", {profile: {} for profile in profiles.PROFILES})
    return tmp_path


def write_chapter(project, name, code="print(epochs)", more=""):
    (project / "notebooks" / f"{name}.py").write_text(CHAPTER.format(code=code, more=more))


def write_profile(profile, chapters):
    """What the profile changes; the fixture `project` takes it back."""
    profiles.CHANGES[profile] = chapters


def refusal(*arguments, profile="quick", names=()):
    with pytest.raises(plan.Refusal) as caught:
        plan.make_plan(profile, names, arguments)
    return str(caught.value)


def printed(path):
    return "".join(o.text for c in nbformat.read(path, 4).cells for o in c.get("outputs", []) if "text" in o)


def test_an_unknown_notebook_is_refused(project):
    write_chapter(project, "01_first")
    assert "'07' is not one of 01_first" in refusal(names=["07"])


def test_an_ambiguous_beginning_is_refused(project):
    write_chapter(project, "01_first")
    write_chapter(project, "02_second")
    assert "could be 01_first, 02_second" in refusal(names=["0"])


def test_a_chapter_that_is_named_twice_runs_once(project):
    write_chapter(project, "01_first")
    assert [task.name for task in plan.make_plan("quick", ["01", "01_first"])] == ["01_first"]


def test_an_unknown_parameter_is_refused_with_those_there_are(project):
    write_chapter(project, "01_first")
    assert "no parameter 'epoch': it has profile, epochs, rate, seeds" in refusal("01.epoch=3")


def test_an_unknown_parameter_of_a_profile_is_refused(project):
    write_chapter(project, "01_first")
    write_profile("quick", {"01_first": {"parameters": {"epoch": 3}}})
    assert "no parameter 'epoch'" in refusal()


def test_an_unknown_profile_is_refused_with_those_there_are(project):
    write_chapter(project, "01_first")
    assert "must be one of smoke, quick, laptop, paper" in refusal(profile="fast")


@pytest.mark.parametrize("override", ["01_first", "epochs=3", "01_first.=3"])
def test_an_override_of_another_form_is_refused(project, override):
    write_chapter(project, "01_first")
    assert "NOTEBOOK.NAME=VALUE" in refusal(override)


def test_a_value_of_another_type_is_refused(project):
    write_chapter(project, "01_first")
    assert "01_first.epochs must be of the same type as 2, got 'many'" in refusal("01.epochs=many")


def test_an_override_of_a_notebook_that_does_not_run_is_refused(project):
    write_chapter(project, "01_first")
    write_chapter(project, "02_second")
    assert "not among the notebooks to run" in refusal("02.epochs=3", names=["01"])


def test_a_parameters_cell_with_more_than_literals_is_refused(project):
    path = project / "notebooks" / "01_first.py"
    path.write_text('# %% tags=["parameters"]\nprofile = "quick"\nepochs = 2 * 3\n')
    assert "only NAME = LITERAL" in refusal()


def test_missing_data_is_refused_with_the_command_that_prepares_it(project):
    write_chapter(project, "01_first")
    write_profile("quick", {"01_first": {"needs": ["cifar100"]}})
    tasks = plan.make_plan("quick")
    with pytest.raises(plan.Refusal, match=r"01_first need cifar100, .*run `python scripts/prepare_data.py cifar100`"):
        plan.refuse_missing_data(tasks)
    (project / "data" / "cifar100").mkdir(parents=True)
    (project / "data" / "cifar100" / "train.npy").write_bytes(b"x")
    plan.refuse_missing_data(tasks)


def test_the_data_folder_may_be_relative_or_below_the_home_folder(project, monkeypatch):
    (project / "home" / "data" / "cifar100").mkdir(parents=True)
    (project / "home" / "data" / "cifar100" / "train.npy").write_bytes(b"x")
    monkeypatch.setenv("HOME", str(project / "home"))
    monkeypatch.chdir(project / "home")
    for given in ("~/data", "data"):
        monkeypatch.setenv("SMOOTH_TOPK_DATA", given)
        assert plan.missing_data(["cifar100"]) == {}
        found = chapter_queue.environment(project / "runs" / "quick", "quick", None)
        assert found["SMOOTH_TOPK_DATA"] == str(project / "home" / "data"), "a kernel has another current folder"


def test_a_refused_study_starts_nothing(project, capsys):
    write_chapter(project, "01_first")
    assert run_study.main(["-p", "01.epoch=3"]) == 2
    assert "no parameter 'epoch'" in capsys.readouterr().err
    assert not (project / "runs").exists()


def test_overrides_are_stronger_than_the_profile_and_only_changes_are_passed(project):
    write_chapter(project, "01_first")
    write_profile("quick", {"01_first": {"parameters": {"epochs": 7, "rate": 0.1}}})
    (task,) = plan.make_plan("quick", [], ["01.epochs=9"])
    assert task.parameters == {"epochs": 9}


def test_the_key_changes_with_source_parameters_package_and_results(project):
    def key(*overrides):
        return plan.make_plan("quick", [], overrides)[0].key

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
    assert [task.name for task in plan.make_plan("quick")] == ["02_second", "01_timing"]


def test_the_expected_time_is_that_of_longest_first(project):
    tasks = [plan.Task(str(i), project, {}, seconds=60.0 * m) for i, m in enumerate((1, 1, 2))]
    alone = plan.Task("alone", project, {}, alone=True, seconds=60.0)
    assert "about 3.0 min with 2 at a time" in run_study.expected_time([*tasks, alone], 2)


def test_a_dry_run_needs_no_data_and_shows_by_experiment_what_is_left(project, capsys):
    write_chapter(project, "09_noisy_labels_study")
    write_profile("paper", {"09_noisy_labels_study": {"minutes": 200, "needs": ["cifar100"]}})
    run = table_1_noise("paper")[0]
    write_record(project / "runs/paper/records", {"run_id": run.run_id, **run.to_dict(), "status": "finished"}, [])
    before = sorted(project.rglob("*"))
    assert run_study.main(["--dry-run", "--profile", "paper", "--gpus", "4"]) == 0
    output = capsys.readouterr().out
    assert "1 of 1 chapters to run." in output
    assert "on 4 GPUs" in output
    assert "Titan Xp" in output
    (line,) = (line.split() for line in output.splitlines() if line.startswith("table_1_noise"))
    assert line[1:3] == ["66", "1"]
    assert line[-1] == "cifar100"
    assert "Missing data: cifar100 is not in" in output
    assert "python scripts/prepare_data.py cifar100" in output
    assert sorted(project.rglob("*")) == before, "nothing is written"


@pytest.mark.parametrize("profile", profiles.PROFILES)
def test_a_dry_run_knows_the_networks_of_every_experiment(project, profile):
    runs = {name: experiment.runs(profile) for name, experiment in EXPERIMENTS.items()}
    table = dry_run.cost_by_experiment(profile, runs, 8, "cpu")
    assert set(table.index) == {"all", *(name for name in runs if runs[name])}
    assert (table[["memory", "disk"]] > 0).all(axis=None)


def test_the_time_that_is_left_shrinks_with_what_is_recorded(project):
    runs = table_2_small_data("paper")
    experiments = {"table_2_small_data": runs}
    everything = dry_run.cost_by_experiment("paper", experiments, 8, "gpu").loc["all"]
    row = {"run_id": runs[-1].run_id, **runs[-1].to_dict(), "status": "finished"}
    write_record(project / "runs" / "paper" / "records", row, [])
    rest = dry_run.cost_by_experiment("paper", experiments, 8, "gpu").loc["all"]
    assert everything["seconds"] - rest["seconds"] == pytest.approx(expected_seconds(runs[-1], "gpu"))
    assert everything["seconds"] / 8 <= everything["seconds_together"] < everything["seconds"]


def test_calibrating_times_this_device_and_the_dry_run_then_uses_it(project, capsys):
    write_chapter(project, "09_noisy_labels_study")
    arguments = ["--profile", "smoke", "--trainings", "one_night"]
    assert run_study.main([*arguments, "--calibrate"]) == 0
    first = capsys.readouterr().out
    (file,) = (project / "runs" / "smoke").iterdir()
    assert str(file) in first
    assert "small, batches of 50" in first
    assert run_study.main([*arguments, "--dry-run"]) == 0
    second = capsys.readouterr().out
    assert "The time of 5 of 5 runs was measured on" in second
    assert second.strip() == first[first.index(second.strip()[:40]) :].strip(), "the same table as after calibrating"
    assert not any((project / "book" / "results").iterdir())


@pytest.mark.slow
def test_one_night_is_trained_in_one_grid_and_not_again(project, capsys):
    write_chapter(project, "09_noisy_labels_study")
    arguments = ["--profile", "smoke", "--trainings", "one_night"]
    assert run_study.main(arguments) == 0
    assert "5 runs: 0 recorded before, 5 trained now, 0 failed." in capsys.readouterr().out
    runs = read_runs(project / "runs" / "smoke" / "records")
    assert set(runs["loss"]) == {"hard", "smooth", "cross_entropy"}
    assert set(runs["noise_level"]) == {0.0, 0.8}
    assert run_study.main(arguments) == 0
    assert "5 runs: 5 recorded before, 0 trained now" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--trainings", "table_9"], "trainings must be one_night, all or one of figure_2_temperature"),
        (["--trainings", "all", "--again", "09"], "--trainings runs no chapter and goes without notebooks, got ['09']"),
        (["--profile", "paper", "--trainings", "one_night"], "The trainings need cifar100, which is not in"),
    ],
)
def test_trainings_that_cannot_start_are_refused(project, capsys, arguments, sentence):
    write_chapter(project, "09_noisy_labels_study")
    assert run_study.main(arguments) == 2
    assert sentence in capsys.readouterr().err
    assert not (project / "runs").exists()


def test_the_list_shows_every_parameter_with_its_value(project, capsys):
    write_chapter(project, "01_first")
    write_profile("smoke", {"01_first": {"parameters": {"epochs": 1}}})
    assert run_study.main(["--list", "--profile", "smoke"]) == 0
    output = capsys.readouterr().out
    for line in ("profile = 'smoke'", "epochs = 1", "rate = 0.1"):
        assert line in output


def test_the_cluster_reaches_the_notebooks_and_one_thread_is_the_default(project, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    found = chapter_queue.environment(project / "runs" / "quick", "quick", "ray:host:6379")
    assert found["SMOOTH_TOPK_EXECUTOR"] == "ray:host:6379"
    assert found["SMOOTH_TOPK_ROOT"] == str(project)
    assert found["SMOOTH_TOPK_RUNS"] == str(project / "runs")
    assert found["OMP_NUM_THREADS"] == "1"


EMPTY = [["--cluster", ""], ["--runs", ""]]  # as a shell gives a variable that is not set


@pytest.mark.parametrize("wrong", [["--cluster", "slurm"], ["--workers", "0"], *EMPTY])
def test_an_impossible_option_is_refused(wrong, capsys):
    with pytest.raises(SystemExit) as caught:
        run_study.read_options(wrong)
    assert caught.value.code == 2
    assert f"got {wrong[1]}" in capsys.readouterr().err.replace("'", "")


def test_the_book_waits_until_every_chapter_has_run(project, capsys):
    write_chapter(project, "01_first")
    assert run_study.build_book(project / "runs" / "quick") == 0
    assert "The book is not built: 01_first did not run" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("01.profile=paper", "a study has one profile: --profile paper"),
        ("01.seeds=abc", "01_first.seeds must be a list of numbers, got 'abc'"),
        ("01.seeds=[1, 'a']", "01_first.seeds must be a list of numbers, got [1, 'a']"),
        ("01.seeds={}", "01_first.seeds must be a list of numbers, got {}"),
        ("01.seeds=1", "01_first.seeds must be a list of numbers, got 1"),
        ("01.seeds=[0, -1]", "01_first.seeds cannot be -1: seed must be between 0 and 4294967295"),
        ("01.seeds=[0.5]", "01_first.seeds cannot be 0.5: seed must be an integer"),
        ("01.seeds=[]", "01_first.seeds must name at least one value, got []"),
        ("01.epochs=-1", "01_first.epochs cannot be -1: epochs must be at least 1"),
        ("01.epochs=0", "01_first.epochs cannot be 0: epochs must be at least 1"),
        ("01.epochs=1.5", "01_first.epochs must be of the same type as 2, got 1.5"),
        ("01.epochs=None", "01_first.epochs cannot be None: epochs must be an integer"),
        ("01.epochs=" + 10_000 * "[", "01_first.epochs must be of the same type as 2, got '[[["),
        ("01.rate=-1", "01_first.rate must be finite and at least 0, got -1"),
        ("01.rate=1e999", "01_first.rate must be finite and at least 0, got inf"),
    ],
)
def test_a_value_that_no_run_can_have_is_refused(project, override, sentence):
    write_chapter(project, "01_first")
    assert sentence in refusal(override)


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("09.seeds=[0, 77]", "seeds has [77], but the runs of the profile quick have [0, 1"),
        ("09.noise_levels=[0.33]", "noise_levels has [0.33], but the runs of the profile quick have [0.0, 0.2"),
        ("09.noise_levels=[1.5]", "noise_levels cannot be 1.5: noise_level must be between 0 and 1"),
        ("09.grouping=foo", "grouping cannot be 'foo': noise_grouping must be one of superclass, index_blocks"),
        ("04.taus=[-1.0]", "taus cannot be -1.0: tau must be positive"),
        ("04.taus=['a']", "taus must be of the same type as [10.0"),
        (
            "03.counted_sizes=[2.5]",
            "counted_sizes must be of the same type as [8, 16",
        ),
        ("07.sizes=[0]", "sizes must be finite and at least 1, got [0]"),
        ("07.rounds=0", "rounds must be finite and at least 1, got 0"),
        ("11.image=-1", "image must be finite and at least 0, got -1"),
        ("02.classes=None", "02_smoothing_with_tau needs more classes than k, got k=5 and classes=None"),
        ("02.k=100", "02_smoothing_with_tau needs more classes than k, got k=100 and classes=100"),
    ],
)
def test_a_value_that_a_chapter_of_the_book_cannot_take_is_refused(override, sentence):
    assert sentence in refusal(override, names=[override[:2]])


@pytest.mark.parametrize(
    "override",
    [
        "09.seeds=[1]",
        "09.noise_levels=(0.4, 1)",
        "05.series_order=0",
        "04.taus=[1]",
        "04.taus=(1.0, 2.0)",
        "01.train_size=None",
        "11.image=1",
    ],
)
def test_a_value_that_a_chapter_of_the_book_can_take_is_planned(override):
    assert len(plan.make_plan("quick", [override[:2]], [override])) == 1


def test_few_classes_go_with_a_small_k():
    assert len(plan.make_plan("quick", ["02"], ["02.k=2", "02.classes=4"])) == 1


def test_unknown_keys_of_a_profile_are_refused(project):
    write_chapter(project, "01_first")
    write_profile("quick", {"01_first": {"minute": 1}})
    assert "Profile quick, 01_first: ['minute'] is not one of minutes, needs, parameters" in refusal()


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("SMOOTH_TOPK_WORKERS", "-1", "SMOOTH_TOPK_WORKERS must be a whole number from 1 to 999999999, got '-1'"),
        ("SMOOTH_TOPK_WORKERS", "many", "got 'many'"),
        ("SMOOTH_TOPK_WORKERS", "9" * 5000, "SMOOTH_TOPK_WORKERS must be a whole number from 1 to 999999999, got '999"),
        ("SMOOTH_TOPK_RUNS", "~nobody-here/runs", "~nobody-here/runs begins with the home folder of a user who is not"),
        ("SMOOTH_TOPK_ROOT", "/proc/self/cwd/loop", "loop is not the project's folder"),
        ("SMOOTH_TOPK_EXECUTOR", "slurm", "executor must be 'local', 'ray' or 'ray:ADDRESS', got executor='slurm'"),
        ("SMOOTH_TOPK_EXECUTOR", "ray:", "'ray' or 'ray:ADDRESS', got executor='ray:'"),
        ("SMOOTH_TOPK_EXECUTOR", "local:2", "got executor='local:2'"),
        ("SMOOTH_TOPK_EXECUTOR", "ray:server", "The address of a Ray cluster is HOST:PORT"),
        ("SMOOTH_TOPK_ROOT", "/nowhere", "/nowhere is not the project's folder"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_before_anything_starts(
    project, monkeypatch, capsys, variable, value, sentence
):
    write_chapter(project, "01_first")
    monkeypatch.chdir(project)
    (project / "loop").symlink_to("loop")
    monkeypatch.setenv(variable, value)
    assert run_study.main([]) == 2
    error = capsys.readouterr().err
    assert error.startswith("!! ")
    assert sentence in error
    assert "Traceback" not in error
    assert not (project / "runs").exists()


def test_a_cluster_that_does_not_answer_is_refused_within_seconds(project, capsys, monkeypatch):
    write_chapter(project, "01_first")
    with socket.socket() as closed:  # bound but not listening: nothing can be there
        closed.bind(("127.0.0.1", 0))
        started = time.monotonic()
        assert run_study.main(["--cluster", f"ray:127.0.0.1:{closed.getsockname()[1]}"]) == 2
    assert time.monotonic() - started < 20
    assert "No Ray cluster answers at 127.0.0.1:" in capsys.readouterr().err
    assert not (project / "runs").exists()


def test_an_address_that_swallows_every_packet_is_given_up_within_seconds(monkeypatch):
    waited = []

    def swallow(place, timeout):
        waited.append(timeout)
        raise TimeoutError("timed out")

    monkeypatch.setattr(cluster_address.socket, "create_connection", swallow)
    with pytest.raises(ConnectionError, match=r"No Ray cluster answers at 10\.0\.0\.1:6379 \(timed out\)"):
        cluster_address.check_address("10.0.0.1:6379")
    assert sum(waited) < 20


def test_a_server_that_is_no_ray_cluster_is_refused(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setattr(cluster_address, "SECONDS_TO_ANSWER", 0.5)
        with pytest.raises(ConnectionError, match=rf"No Ray cluster answers at {address} \(timed out\)"):
            cluster_address.check_address(address)
        monkeypatch.setattr(cluster_address, "SECONDS_TO_ANSWER", PATIENCE)  # from now on something answers
        answer = threading.Thread(target=answer_once, args=(silent, b"HTTP/1.1 400 Bad Request\r\n"))
        silent.accept()[0].close()
        answer.start()
        with pytest.raises(ConnectionError, match="something answers there that is not Ray"):
            cluster_address.check_address(address)
        answer.join()
        answer = threading.Thread(target=answer_once, args=(silent, b"\x00\x00\x06\x04\x00\x00\x00\x00\x00"))
        answer.start()
        cluster_address.check_address(address)
        answer.join()


def answer_once(server, content):
    connection, _ = server.accept()
    with connection:
        connection.recv(64)
        connection.sendall(content)


class PretendedStudy:
    """Stands in for the processes of the chapters: writes what they would leave, or does what a test asks."""

    ran: ClassVar[list[str]] = []
    executors: ClassVar[list[str | None]] = []
    outcome: ClassVar[dict] = {"status": "done", "error": "", "cell": ""}
    during = staticmethod(lambda: None)

    def __init__(self, folder, profile, workers, executor=None):
        self.folder, self.profile, self.results_key = folder, profile, plan.results_key(profile)
        self.executors.append(executor)

    def execute(self, tasks):
        type(self).during()
        for task in tasks:
            self.ran.append(task.name)
            notebook = nbformat.v4.new_notebook(metadata={"smooth_topk": {"key": task.key, "seconds": 1.0}})
            nbformat.write(notebook, self.folder / "notebooks" / f"{task.name}.ipynb")
        plan.remember_results(self.profile, self.results_key)
        return [{"notebook": task.name, "seconds": 1.0, "log": "log", **self.outcome} for task in tasks]


@pytest.fixture
def pretended(monkeypatch):
    study = type("Pretended", (PretendedStudy,), {"ran": [], "executors": []})
    monkeypatch.setattr(run_study, "Study", study)
    return study


@pytest.mark.parametrize("trainings", [False, True], ids=["chapters", "trainings"])
@pytest.mark.parametrize(
    ("option", "variable", "asked"),
    [
        ("ray", None, [None]),
        (None, "ray", [None]),
        ("ray:10.0.0.1:6379", "ray", ["10.0.0.1:6379"]),
        (None, "ray:10.0.0.1:6379", ["10.0.0.1:6379"]),
        (None, None, []),
    ],
)
def test_one_cluster_serves_the_whole_study(project, pretended, monkeypatch, trainings, option, variable, asked):
    """A chapter that is told nothing but "ray" would start a cluster of its own."""
    ray_cluster = pytest.importorskip("smooth_topk.study.grid.ray_cluster", reason=NEEDS_RAY, exc_type=ImportError)
    found, used = [], []

    @contextlib.contextmanager
    def shared_cluster(address):
        found.append(address)
        yield address or "127.0.0.1:6380"

    def run_grid(runs, executor, **_):
        used.append(executor)
        table = pd.DataFrame({"status": ["finished"] * len(runs)})
        table.attrs["recorded_before"] = 0
        return table

    monkeypatch.setattr(ray_cluster, "shared_cluster", shared_cluster)
    monkeypatch.setattr(cluster_address, "check_address", lambda address: None)
    monkeypatch.setattr(grid, "run_grid", run_grid)
    monkeypatch.setattr(pretended, "executors", used)
    if variable:
        monkeypatch.setenv("SMOOTH_TOPK_EXECUTOR", variable)
    for name in ("01_first", "02_second"):
        write_chapter(project, name)
    command = ["--profile", "smoke", "--no-book", *(["--trainings", "one_night"] if trainings else [])]
    assert run_study.main([*command, *(["--cluster", option] if option else [])]) == 0
    assert found == asked
    local = "local" if trainings else None
    assert used == [f"ray:{asked[0] or '127.0.0.1:6380'}" if asked else local]


def test_what_is_done_is_not_run_unless_again_is_asked_for(project, pretended):
    write_chapter(project, "01_first")
    for arguments, expected in (([], 1), ([], 1), (["--again"], 2), ([], 2)):
        assert run_study.main(["--no-book", *arguments]) == 0
        assert len(pretended.ran) == expected


@pytest.mark.parametrize("profile", ["quick", "laptop"])
def test_results_that_changed_elsewhere_make_chapters_run_again_and_own_results_do_not(project, pretended, profile):
    write_chapter(project, "01_first")
    write_profile("laptop", {})
    results = project / "book" / "results" / "runs.csv"
    if profile == "laptop":
        pretended.during = staticmethod(lambda: results.write_text("recorded by this study"))
    command = ["--no-book", "--profile", profile]
    assert run_study.main(command) == 0
    pretended.during = staticmethod(lambda: None)
    assert run_study.main(command) == 0
    assert pretended.ran == ["01_first"]
    results.write_text("merged from another machine")
    assert run_study.main(command) == 0
    assert pretended.ran == ["01_first"] * 2


@pytest.fixture
def ended(project, monkeypatch):
    """Chapters whose processes have ended as soon as they start; each records a result and leaves its notebook."""

    class Ended:
        def __init__(self, task, job, log, environment):
            self.task, self.place, self.process = task, "", SimpleNamespace(poll=lambda: 0)
            (project / "book" / "results" / f"{task.name}.csv").write_text("recorded by this study")
            notebook = nbformat.v4.new_notebook(metadata={"smooth_topk": job["metadata"] | {"seconds": 1.0}})
            nbformat.write(notebook, job["output"])

        def listen(self):
            pass

        def outcome(self, folder):
            return {"notebook": self.task.name, "status": "done", "seconds": 1.0}

    monkeypatch.setattr(chapter_queue, "Chapter", Ended)


def test_what_the_chapters_of_a_study_record_makes_none_of_them_run_again(project, ended, capsys):
    for name in ("01_first", "02_second"):
        write_chapter(project, name)
    for missing in (2, 0):
        assert run_study.main(["--no-book", "--profile", "laptop", "--workers", "1"]) == 0
        assert f"{missing} chapters to run" in capsys.readouterr().out


def test_a_disk_that_is_full_when_a_chapter_has_ended_does_not_end_the_study(project, ended, monkeypatch, capsys):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(chapter_queue, "remember_results", full)
    for name in ("01_first", "02_second"):
        write_chapter(project, name)
    assert run_study.main(["--no-book"]) == 0
    assert "(2 of 2)" in capsys.readouterr().out


def test_a_chapter_whose_files_cannot_be_written_fails_with_the_file_and_the_others_run(project, ended, capsys):
    for name in ("01_first", "02_second"):
        write_chapter(project, name)
    in_the_way = project / "runs" / "quick" / "partial" / "01_first.ipynb"
    in_the_way.mkdir(parents=True)
    assert run_study.main(["--no-book"]) == 1
    output = capsys.readouterr().out
    assert f"!! 01_first failed: {in_the_way}: Is a directory." in output
    assert "   done     02_second" in output


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"cells": 3}', b"\xff\xfe"])
def test_a_damaged_executed_notebook_is_named_and_run_again(project, pretended, capsys, content):
    write_chapter(project, "01_first")
    assert run_study.main(["--no-book"]) == 0
    path = project / "runs" / "quick" / "notebooks" / "01_first.ipynb"
    path.write_bytes(content)
    capsys.readouterr()
    assert run_study.main(["--no-book"]) == 0
    assert f"!! {path} cannot be read" in capsys.readouterr().err
    assert pretended.ran == ["01_first"] * 2


def test_a_folder_that_cannot_be_written_to_is_one_sentence(project, pretended, capsys):
    write_chapter(project, "01_first")
    (project / "runs").write_text("a file where the folder should be")
    assert run_study.main(["--no-book"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"!! {project}/runs is not a folder: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("folder", "sentence"),
    [
        ("/dev/null", "!! /dev/null is not a folder: "),
        ("/proc/nowhere", "!! Could not write /proc/nowhere/smoke"),
        ("dangling", "!! {project}/dangling is not a folder: "),
        ("x" * 300, "!! {project}/" + "x" * 300 + "/smoke: File name too long."),
    ],
    ids=["a file", "read-only", "a link to nothing", "a long name"],
)
@pytest.mark.parametrize("command", [[], ["--trainings", "one_night"]], ids=" ".join)
def test_runs_that_can_go_nowhere_are_refused(project, pretended, capsys, monkeypatch, command, folder, sentence):
    write_chapter(project, "01_first")
    monkeypatch.chdir(project)
    (project / "dangling").symlink_to("nowhere")
    monkeypatch.setenv("SMOOTH_TOPK_RUNS", "")  # --runs sets it; this takes it back
    assert run_study.main(["--profile", "smoke", "--runs", folder, *command]) == 2
    error = capsys.readouterr().err
    assert error.startswith(sentence.format(project=project))
    assert error.count("\n") == 1
    assert not pretended.ran


def test_failures_are_printed_before_the_summary_is_written(project, pretended, capsys, monkeypatch):
    write_chapter(project, "01_first")
    pretended.outcome = {"status": "failed", "error": "No space left on device", "cell": "print(1)"}

    def full(path, content):
        raise files.cannot_write(path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    monkeypatch.setattr(run_study, "write_whole", full)
    assert run_study.main(["--no-book"]) == 1
    output = capsys.readouterr()
    assert "01_first failed: No space left on device" in output.out
    assert output.err.startswith("!! Could not write ")
    assert "summary.csv: No space left on device" in output.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_stops_the_study_with_a_sentence_and_its_code(project, pretended, capsys, number, code):
    write_chapter(project, "01_first")
    pretended.during = staticmethod(lambda: signal.raise_signal(number))

    def reached(*_):
        pytest.fail("the signal went past the study")  # where it would end this whole test run

    usual = signal.signal(number, reached)
    try:
        assert ended_in_order(lambda: run_study.main(["--no-book"])) == code
        assert signal.getsignal(number) is reached
    finally:
        signal.signal(number, usual)
    assert f"Stopped by {number.name}; the same command goes on" in capsys.readouterr().err


def test_sigterm_while_the_book_is_built_ends_sphinx_and_leaves_the_old_book(project, pretended, monkeypatch):
    write_chapter(project, "01_first")
    old = project / "book" / "_build" / "html" / "index.html"
    old.parent.mkdir(parents=True)
    old.write_text("the old book")
    (project / "sphinx").mkdir()
    (project / "sphinx" / "__init__.py").touch()
    (project / "sphinx" / "__main__.py").write_text(
        "import os, pathlib, signal, time\n"
        f"pathlib.Path({str(project)!r}, 'pid').write_text(str(os.getpid()))\n"
        "assert os.getpgrp() != os.getpgid(os.getppid()), 'Ctrl-C reaches Sphinx, which has its own words for it'\n"
        f"os.kill(os.getppid(), signal.SIGTERM)\ntime.sleep({PATIENCE})\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(project))
    monkeypatch.setattr(build, "stage", lambda notebooks, source, book: source.mkdir())
    monkeypatch.setattr(build, "OUTPUT", old.parent)
    assert ended_in_order(lambda: run_study.main([])) == 143
    assert not alive(int((project / "pid").read_text()))
    assert old.read_text() == "the old book"
    assert list((project / "book" / "_build").iterdir()) == [old.parent]


def copied_shell_script(folder, run_study_py):
    """A copy of scripts/study.sh that makes no .venv and calls this text in place of run_study.py."""
    (folder / "scripts").mkdir()
    shutil.copy(PROJECT / "scripts" / "study.sh", folder / "scripts")
    head, _, _ = (PROJECT / "scripts" / "setup.sh").read_text().partition("\npython=")
    (folder / "scripts" / "setup.sh").write_text(head)
    (folder / "scripts" / "run_study.py").write_text(run_study_py)
    return folder / "scripts" / "study.sh"


@pytest.mark.parametrize("code", [0, 1, 2, 130, 143])
def test_the_shell_script_hands_the_exit_code_on(tmp_path, code):
    script = copied_shell_script(tmp_path, f"import sys\nprint(sys.argv[1:])\nsys.exit({code})\n")
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["bash", script, "09", "--profile", "smoke"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=PATIENCE)
    assert done.returncode == code
    assert "['09', '--profile', 'smoke']" in done.stdout


@pytest.mark.slow
def test_a_study_runs_fails_says_where_and_resumes_with_what_is_missing(project, capfd, monkeypatch):
    monkeypatch.chdir("/")
    write_chapter(project, "01_first")
    write_chapter(project, "02_broken", code="raise RuntimeError('no luck')")
    write_chapter(project, "03_dead", code="import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    assert run_study.main(["--no-book", "-p", "01.epochs=11"]) == 1
    out = capfd.readouterr().out
    assert "03_dead failed: The kernel died in cell 2 of 2. The usual cause is too little memory" in out
    assert "02_broken failed: RuntimeError: no luck" in out
    assert "raise RuntimeError('no luck')" in out  # the failing cell's text
    folder = project / "runs" / "quick"
    assert printed(folder / "notebooks" / "01_first.ipynb").strip() == "11"
    assert not (folder / "notebooks" / "02_broken.ipynb").exists()
    rows = {row["notebook"]: row["status"] for row in csv.DictReader((folder / "summary.csv").open())}
    assert rows == {"01_first": "done", "02_broken": "failed", "03_dead": "failed"}

    metadata = nbformat.read(folder / "notebooks" / "01_first.ipynb", 4).metadata
    assert set(metadata.smooth_topk) >= {"profile", "machine", "date", "versions", "seconds"}
    assert str(project) not in json.dumps(metadata)  # papermill's paths do not travel

    write_chapter(project, "02_broken", code="print('mended')")
    (project / "notebooks" / "03_dead.py").unlink()
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


WRITES_A_CHECKPOINT = (
    "import os, pathlib, time\n"
    "place = pathlib.Path(os.environ['SMOOTH_TOPK_RUNS'])\n"
    "try:\n"
    "    (place / 'begun').touch()\n"
    f"    time.sleep({PATIENCE})\n"
    "finally:\n"
    "    time.sleep(7)\n"  # longer than Jupyter waits for a kernel that it shuts down
    "    (place / 'checkpoint').touch()"
)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_study_that_is_stopped_or_killed_lets_the_cell_write_what_it_has(project, number):
    """As the trainings of a chapter do with their checkpoints, here and on a cluster."""
    write_chapter(project, "01_long", code=WRITES_A_CHECKPOINT)
    command = [sys.executable, PROJECT / "scripts" / "run_study.py", "--no-book"]
    study = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until((project / "runs" / "begun").exists)
    study.send_signal(number)
    out, errors = study.communicate(timeout=PATIENCE)
    if number != signal.SIGKILL:
        assert study.returncode == 128 + number
        assert f"Stopped by {number.name}" in errors
        assert "trainings that are under way write a checkpoint" in out
        assert (project / "runs" / "checkpoint").exists()
    wait_until((project / "runs" / "checkpoint").exists)


@pytest.mark.slow
def test_a_study_whose_output_nobody_reads_any_more_stops_in_order(project):
    write_chapter(project, "01_long", code=WRITES_A_CHECKPOINT)
    command = [sys.executable, PROJECT / "scripts" / "run_study.py", "--no-book"]
    study = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until((project / "runs" / "begun").exists)
    study.stdout.close()  # noticed at the next line of progress
    study.stdout = None
    errors = study.communicate(timeout=PATIENCE)[1]
    assert study.returncode == 141
    assert errors.endswith(
        "\n!! Nobody reads the output any more (Broken pipe); the same command goes on with what is missing.\n"
    )
    assert (project / "runs" / "checkpoint").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "send", "code"),
    [(signal.SIGINT, os.killpg, 130), (signal.SIGTERM, os.kill, 143)],
    ids=["Ctrl-C in a terminal", "SIGTERM to the shell alone"],
)
def test_a_signal_to_the_shell_script_ends_with_its_code_and_leaves_no_process(project, number, send, code):
    write_chapter(project, "01_long", code=f"import time\nopen('begun', 'w').close()\ntime.sleep({PATIENCE})")
    script = copied_shell_script(project, f"import runpy\nrunpy.run_path({str(PROJECT / 'scripts/run_study.py')!r}, "
                                          "run_name='__main__')\n")  # fmt: skip
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["bash", script, "--no-book"]
    study = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True)
    wait_until(lambda: any(project.rglob("begun")))
    started = psutil.Process(study.pid).children(recursive=True)
    send(study.pid, number)
    errors = study.communicate(timeout=PATIENCE)[1]
    assert study.returncode == code
    assert errors.count(f"!! Stopped by {number.name}; the same command goes on with what is missing.") == 1
    assert "Traceback" not in errors
    assert len(started) >= 2, "the chapter and its kernel"
    assert not psutil.wait_procs(started, timeout=PATIENCE)[1]


def wait_until(happened):
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, "gave up waiting"
        time.sleep(0.1)


def alive(pid):
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()
