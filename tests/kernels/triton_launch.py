"""Prints, as JSON, what a launch of each kernel would send to a GPU of compute capability 8.0; run as a script.

The launches are those of triton_backend.py, stopped after compilation by a stand-in for the GPU's driver.
"""

import json
from types import SimpleNamespace
from unittest import mock

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from smooth_topk.pivot import triton_backend

STAND_IN = SimpleNamespace(
    get_current_target=lambda: GPUTarget("cuda", 80, 32),
    get_current_device=lambda: 0,
    get_current_stream=lambda device: 0,
)


def launches() -> dict[str, dict]:
    """Signature and code of both kernels for k = 5 and 1,000 classes."""
    programs, run = [], JITFunction.run

    def compile_only(kernel, *args, **kwargs):
        programs.append(run(kernel, *args, **kwargs | {"warmup": True}))

    triton.runtime.driver.set_active(STAND_IN)
    with mock.patch.object(JITFunction, "run", compile_only):
        scores = torch.zeros(4, 1000)
        _, *state = triton_backend.forward(scores, torch.zeros(4, dtype=torch.int64), 5, 0.1, 1.0)
        triton_backend.backward(scores, state, torch.ones(()).expand(4), 5, 0.1)
    return {
        program.name: {"signature": program.src.signature, "ptx": program.asm["ptx"], "ttgir": program.asm["ttgir"]}
        for program in programs
    }


if __name__ == "__main__":
    print(json.dumps(launches()))
