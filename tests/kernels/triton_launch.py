"""Prints, as JSON, what a launch of the kernel would send to a GPU of compute capability 8.0; run as a script.

The launch is that of triton_backend.py, stopped after compilation by a stand-in for the GPU's driver.
"""

import json
from types import SimpleNamespace
from unittest import mock

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from smooth_topk.pivot import triton_backend
from smooth_topk.targets import checked_settings

STAND_IN = SimpleNamespace(
    get_current_target=lambda: GPUTarget("cuda", 80, 32),
    get_current_device=lambda: 0,
    get_current_stream=lambda device: 0,
)


def launch() -> dict:
    """Signature and code of the kernel for k = 5 and 1,000 classes."""
    programs, run = [], JITFunction.run

    def compile_only(kernel, *args, **kwargs):
        programs.append(run(kernel, *args, **kwargs | {"warmup": True}))

    triton.runtime.driver.set_active(STAND_IN)
    with mock.patch.object(JITFunction, "run", compile_only):
        labels, settings = torch.zeros(4, dtype=torch.int64), checked_settings(5, 0.1, 1.0, -100, "none", 0.0)
        triton_backend.loss_and_gradient(torch.zeros(4, 1000), labels, None, settings)
    (program,) = programs
    return {"signature": program.src.signature, "ptx": program.asm["ptx"], "ttgir": program.asm["ttgir"]}


if __name__ == "__main__":
    print(json.dumps(launch()))
