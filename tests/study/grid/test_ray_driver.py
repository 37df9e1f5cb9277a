"""What the driver asks of Ray and does with its answers; Ray itself is replaced. The rest is in test_ray_cluster.py."""

import contextlib
import signal
from types import SimpleNamespace

import pytest
from small_runs import small_config

from smooth_topk.study.grid import run_grid
from smooth_topk.study.records.runs import read_runs, write_record

ray_cluster = pytest.importorskip(
    "smooth_topk.study.grid.ray_cluster", reason="needs Ray: pip install 'smooth-topk[cluster]'", exc_type=ImportError
)
CONFIGS = [small_config(epochs=epochs) for epochs in (1, 2)]


def answer_of(config):
    """What a task returns that trained a run."""
    row = {"run_id": config.run_id, **config.to_dict(), "status": "finished"}
    return {"row": row, "epoch_rows": [{"run_id": config.run_id, "epoch": 0}]}


class PretendedRay:
    """Answers as Ray would, at once, and keeps what it was asked for."""

    exceptions = ray_cluster.ray.exceptions
    util = SimpleNamespace(
        scheduling_strategies=SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node, soft: (node, soft))
    )

    def __init__(self, gpus=0):
        self.gpus, self.connected = gpus, False
        self.asked, self.submitted, self.cancelled = [], [], []
        self.before_wait = lambda: None
        self.never_ends = False

    def is_initialized(self):
        return self.connected

    def init(self, address, **_):
        self.asked.append(("init", address))
        self.connected = True

    def shutdown(self):
        self.asked.append(("shutdown",))
        self.connected = False

    def cluster_resources(self):
        return {"CPU": 2.0} | ({"GPU": self.gpus} if self.gpus else {})

    def get_runtime_context(self):
        return SimpleNamespace(get_node_id=lambda: "here", gcs_address="10.0.0.1:6379")

    def remote(self, *function, **options):
        board = function[0].__name__ == "_Board"
        return SimpleNamespace(options=self._board_options if board else self._options)

    def _board_options(self, **options):
        """The board of epochs, an actor to which nobody writes here."""
        return SimpleNamespace(remote=lambda: SimpleNamespace(take=SimpleNamespace(remote=dict), put=None))

    def _options(self, **options):
        self.asked.append(("options", options))
        return SimpleNamespace(remote=self._submit)

    def _submit(self, values, options, board):
        self.submitted.append(values["epochs"])
        self.records_folder = options["records_folder"]
        return f"task {values['epochs']}"

    def wait(self, references, num_returns=1, timeout=None):
        self.before_wait()
        return ([], references) if self.never_ends else (references[:1], references[1:])

    def get(self, reference, timeout=None):
        if isinstance(reference, dict):
            return reference
        answer = answer_of(small_config(epochs=int(reference.split()[1])))
        write_record(self.records_folder, answer["row"], answer["epoch_rows"])
        return answer["row"]

    def cancel(self, reference, force=False):
        self.cancelled.append((reference, force))


@pytest.fixture
def pretended(monkeypatch):
    found = PretendedRay()
    monkeypatch.setattr(ray_cluster, "ray", found)
    return found


def grid(tmp_path, address=None, **options):
    folders = {"records_folder": str(tmp_path / "results"), "checkpoints_folder": str(tmp_path / "runs")}
    return ray_cluster.RayGrid(folders | options, address, lambda *_: None, lambda _: None)


def test_without_an_address_ray_finds_or_starts_the_cluster_and_it_ends_with_the_grid(pretended, tmp_path):
    assert grid(tmp_path).run(CONFIGS, None) == {}
    assert pretended.asked[0] == ("init", None)
    assert pretended.asked[-1] == ("shutdown",)
    assert read_runs(tmp_path / "results")["run_id"].tolist() == [config.run_id for config in CONFIGS]


@pytest.mark.parametrize(("executor", "address"), [("ray", None), ("ray:10.0.0.1:6379", "10.0.0.1:6379")])
def test_a_grid_hands_its_runs_to_the_cluster_of_the_executor(pretended, tmp_path, monkeypatch, executor, address):
    monkeypatch.setattr(ray_cluster, "check_address", lambda address: None)
    folders = {"records_folder": tmp_path / "results", "checkpoints_folder": tmp_path / "runs"}
    assert run_grid(CONFIGS, **folders, executor=executor, progress=False)["status"].tolist() == ["finished"] * 2
    assert pretended.asked[0] == ("init", address)
    assert sorted(pretended.submitted) == [1, 2]


@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.default_int_handler])
def test_sigterm_does_what_it_did_before_ray_replaced_its_handler(pretended, monkeypatch, before):
    """Ray's handler ends the processes of a cluster at once, so that no run could write a checkpoint."""

    def replace_handler(**_):
        signal.signal(signal.SIGTERM, rays_own)

    def rays_own(*_):
        raise SystemExit(1)

    monkeypatch.setattr(pretended, "init", replace_handler)
    usual = signal.signal(signal.SIGTERM, before)
    try:
        with ray_cluster.connected(None):
            assert signal.getsignal(signal.SIGTERM) is (before if callable(before) else rays_own)
    finally:
        signal.signal(signal.SIGTERM, usual)


def test_a_process_that_is_connected_already_stays_connected(pretended, tmp_path):
    pretended.connected = True
    grid(tmp_path).run(CONFIGS, None)
    assert pretended.connected
    assert ("shutdown",) not in pretended.asked


@pytest.mark.parametrize(
    ("in_cluster", "given", "expected"),
    [
        (0, {}, {"num_cpus": 1, "num_gpus": 0}),
        (4, {}, {"num_cpus": 1, "num_gpus": 1}),
        (4, {"cpus": 8, "gpus": 0.5}, {"num_cpus": 8, "num_gpus": 0.5}),
        (4, {"gpus": 0}, {"num_cpus": 1, "num_gpus": 0}),
    ],
)
def test_a_run_takes_one_cpu_and_one_gpu_unless_told_otherwise(pretended, tmp_path, in_cluster, given, expected):
    pretended.gpus = in_cluster
    grid(tmp_path, **given).run(CONFIGS, None)
    (asked,) = (entry[1] for entry in pretended.asked if entry[0] == "options")
    assert {name: asked[name] for name in expected} == expected
    assert asked["max_retries"] == ray_cluster.RETRIES > 0  # Ray takes -1 for no end
    assert pretended.submitted == ([2, 1] if expected["num_gpus"] else [1, 2]), "on GPUs, the longest run comes first"


def test_no_more_runs_than_asked_for_are_under_way(pretended, tmp_path):
    under_way = []
    pretended.before_wait = lambda: under_way.append(len(pretended.submitted))
    grid(tmp_path).run(CONFIGS, 1)
    assert under_way == [1, 2]


def test_a_run_that_another_driver_has_recorded_in_the_meantime_is_not_trained_again(pretended, tmp_path):
    """The second run is recorded by another driver while the first one is trained here."""
    other = answer_of(CONFIGS[1])
    pretended.before_wait = lambda: write_record(tmp_path / "results", other["row"], other["epoch_rows"])
    assert grid(tmp_path).run(CONFIGS, 1) == {}
    assert pretended.submitted == [1]
    assert len(read_runs(tmp_path / "results")) == 2


def test_ctrl_c_cancels_every_run_and_forces_those_that_do_not_end(pretended, tmp_path):
    calls = []

    def interrupt_once():
        calls.append(None)
        if len(calls) == 1:
            raise KeyboardInterrupt

    pretended.before_wait, pretended.never_ends = interrupt_once, True
    with pytest.raises(KeyboardInterrupt):
        grid(tmp_path).run(CONFIGS, None)
    assert pretended.cancelled == [("task 1", False), ("task 2", False), ("task 1", True), ("task 2", True)]
    assert pretended.asked[-1] == ("shutdown",)


def test_a_cluster_that_refuses_says_how_to_send_a_token(pretended, monkeypatch, tmp_path):
    def refuse(**_):
        raise ConnectionError("Failed to connect to Ray cluster at 10.0.0.1:6379")

    monkeypatch.setattr(pretended, "init", refuse)
    monkeypatch.setattr(ray_cluster, "check_address", lambda address: None)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(
        ConnectionError, match=r"started with a token, copy ~/.ray/auth_token and set RAY_AUTH_MODE=token"
    ):
        grid(tmp_path, "10.0.0.1:6379").run(CONFIGS, None)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    with pytest.raises(
        ConnectionError, match=r"Could not connect to the Ray cluster 10.0.0.1:6379: Failed to connect"
    ) as e:
        grid(tmp_path, "10.0.0.1:6379").run(CONFIGS, None)
    assert "RAY_AUTH_MODE" not in str(e.value)


def test_an_address_at_which_nothing_answers_is_never_given_to_ray(pretended, tmp_path):
    with pytest.raises(ConnectionError, match=r"No Ray cluster answers at 127\.0\.0\.1:1 "):
        grid(tmp_path, "127.0.0.1:1").run(CONFIGS, None)
    assert pretended.asked == []


def test_one_cluster_is_started_for_all_chapters(pretended):
    with ray_cluster.shared_cluster(None) as address:
        assert address == "10.0.0.1:6379"
        assert pretended.connected
    assert not pretended.connected
    assert pretended.asked == [("init", None), ("shutdown",)]
    with contextlib.suppress(ConnectionError), ray_cluster.shared_cluster("127.0.0.1:1"):
        pytest.fail("nothing answers there")
