"""One fixture for all backends: `run` computes losses and gradient with the backend and device of the test."""

from types import SimpleNamespace

import pytest
import torch

from smooth_topk.pivot import numba_backend, torch_backend, triton_backend
from smooth_topk.targets import checked_settings

BACKENDS = {
    "torch": (torch_backend, "cpu"),
    "numba": (numba_backend, "cpu"),
    "torch-cuda": (torch_backend, "cuda"),
    "triton-cuda": (triton_backend, "cuda"),
}


RUN = [name for name, (_, device) in BACKENDS.items() if device == "cpu" or torch.cuda.is_available()]


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.gpu] * name.endswith("cuda")) for name in RUN])
def backend(request):
    """The module, its device, and `run(scores, labels, k, tau)` with reduction "none"."""
    module, device = BACKENDS[request.param]
    if not module.supports(torch.zeros(1, 9, device=device), 3):
        pytest.skip(f"needs {request.param}")

    def run(scores, labels, k, tau, margin=1.0, weight=None, ignore_index=-100, reduction="none", **options):
        settings = checked_settings(k, tau, margin, ignore_index, reduction, 0.0)
        weight = None if weight is None else weight.to(device)
        return module.loss_and_gradient(scores.to(device), labels.to(device), weight, settings, **options)

    return SimpleNamespace(module=module, device=device, run=run, name=request.param)


@pytest.fixture
def threads():
    """Sets the number of torch's threads for one test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)
