"""What the process of a chapter tells the study when something goes wrong; whole chapters are in test_run_study.py."""

import errno
import os
import signal
from types import SimpleNamespace

import nbformat
import pytest
from nbclient.exceptions import DeadKernelError
from papermill.exceptions import PapermillExecutionError

from smooth_topk.study.book import execute
from smooth_topk.study.records.files import cannot_write

RAISED = PapermillExecutionError(3, 2, "epochs = many", "NameError", "name 'many' is not defined", [])


@pytest.fixture
def supervisor(tmp_path):
    """The line to a study, with what was said on it."""
    source = tmp_path / "01_first.py"
    source.write_text("# %%\nprint(1)\n")
    paths = {"source": source, "partial": tmp_path / "partial.ipynb", "output": tmp_path / "output.ipynb"}
    said = []
    return SimpleNamespace(
        job={name: str(path) for name, path in paths.items()} | {"parameters": {}, "metadata": {"key": "abc"}},
        place={"cell": 3, "cells": 20},
        asked_to_stop=False,
        said=said,
        send=lambda **event: said.append(event),
    )


def execute_with(monkeypatch, supervisor, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(execute.papermill, "execute_notebook", fail)
    return execute.run(supervisor)


FULL = cannot_write("/runs/partial.ipynb", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (RAISED, "NameError: name 'many' is not defined"),
        (DeadKernelError("Kernel died"), "The kernel died in cell 3 of 20. The usual cause is too little memory"),
        (FULL, "Could not write /runs/partial.ipynb: No space left on device"),
    ],
    ids=["an error in a cell", "a dead kernel", "a full disk"],
)
def test_a_failure_is_one_sentence_for_the_study(monkeypatch, supervisor, error, failure):
    assert execute_with(monkeypatch, supervisor, error) == 1
    (event,) = supervisor.said
    assert event["failure"].startswith(failure)
    assert event["source"] == ("epochs = many" if error is RAISED else "")


@pytest.mark.parametrize("error", [RAISED, KeyboardInterrupt(), DeadKernelError("Kernel died")])
def test_a_chapter_that_was_asked_to_stop_says_so_whatever_the_kernel_made_of_it(monkeypatch, supervisor, error):
    supervisor.asked_to_stop = True
    assert execute_with(monkeypatch, supervisor, error) == 1
    assert supervisor.said == [{"failure": "stopped", "source": ""}]


def test_a_finished_notebook_takes_its_place_with_where_it_was_made(monkeypatch, supervisor):
    def write(notebook, partial, **_):
        notebook.metadata["papermill"] = {"output_path": partial}
        nbformat.write(notebook, partial)

    monkeypatch.setattr(execute.papermill, "execute_notebook", write)
    assert execute.run(supervisor) == 0
    metadata = nbformat.read(supervisor.job["output"], as_version=4).metadata
    assert metadata["smooth_topk"]["key"] == "abc"
    assert "papermill" not in metadata
    assert not os.path.exists(supervisor.job["partial"])


def test_a_kernel_that_has_ended_or_not_begun_is_not_signalled():
    client = execute.Client.__new__(execute.Client)
    client.signal_kernel(signal.SIGINT)
