"""Compiles the Triton kernel for GPUs that need not be present, and records what it takes of one.

    python scripts/triton_report.py --output book/results/triton_compile.csv

One row per kernel: registers of a thread, bytes that a thread spills to memory, shared memory of a program. Nothing
runs and nothing is timed. Needs Triton, without TRITON_INTERPRET.
"""

import argparse
import csv
import re
import subprocess
import tempfile
from datetime import date
from itertools import product
from pathlib import Path

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from smooth_topk.pivot import triton_backend as backend
from smooth_topk.pivot.torch_backend import working_dtype
from smooth_topk.pivot.triton_kernels import loss_kernel

DTYPES = {"float32": "*fp32", "bfloat16": "*bf16", "float16": "*fp16"}
TYPES = {
    **dict.fromkeys(["losses", "weight", "divisor"], "*fp32"),
    "labels": "*i64",
    **dict.fromkeys(["classes", "row_stride", "ignore_index"], "i32"),
    "scale": "fp32",
    "tau": "fp64",
    "margin": "fp64",
}


def compiled(k: int, classes: int, capability: int, dtype: str = "float32"):
    """The kernel as Triton compiles it for contiguous scores, "mean" and no weights; `asm` holds PTX and machine code.

    Args:
        k: size of the prediction.
        classes: number of classes; decides the block.
        capability: ten times the compute capability, 80 for an A100, 90 for an H100.
        dtype: of the scores: "float32", "bfloat16" or "float16".
    """
    launch = backend.launch(classes)
    working = tl.float32 if working_dtype(torch.float32, k) == torch.float32 else tl.float64
    constants = {"k": k, "lanes": backend.power_of_two(k + 1), "block": launch.block, "working": working}
    constants |= {"class_stride": 1, "label_stride": 1, "weighted": False, "mean": True, "needs_gradient": True}
    types = TYPES | {"scores": DTYPES[dtype], "gradient": DTYPES[dtype]}
    signature = {name: "constexpr" if name in constants else types[name] for name in loss_kernel.arg_names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(signature.values()) if kind.startswith("*")}
    source = ASTSource(loss_kernel, signature, constants, aligned)
    options = {"num_warps": launch.warps, **backend.OPTIONS}
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


def measure(k: int, classes: int, capability: int, dtype: str = "float32") -> dict[str, str | int]:
    """One row of the record."""
    program, launch = compiled(k, classes, capability, dtype), backend.launch(classes)
    registers, stack, local = _resources(program.asm["cubin"])
    return {
        "dtype": dtype,
        "k": k,
        "classes": classes,
        "compute_capability": f"{capability // 10}.{capability % 10}",
        "block": launch.block,
        "warps": launch.warps,
        "registers": registers,
        "spilled_bytes": stack + local,
        "shared_bytes": program.metadata.shared,
        "triton": triton.__version__,
        "date": date.today().isoformat(),
    }


def main(arguments: list[str] | None = None) -> None:
    """Compiles every combination and writes the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="the CSV file to write")
    parser.add_argument("--k", type=int, nargs="+", default=[1, 5, 8, 20, 32])
    parser.add_argument("--classes", type=int, nargs="+", default=[1000, 100_000])
    parser.add_argument("--capability", type=int, nargs="+", default=[80, 90])
    parser.add_argument("--dtype", choices=DTYPES, nargs="+", default=["float32"])
    chosen = parser.parse_args(arguments)
    rows = []
    for case in product(chosen.k, chosen.classes, chosen.capability, chosen.dtype):
        rows.append(measure(*case))
        print(*rows[-1].values(), sep="  ", flush=True)
    with open(chosen.output, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _resources(cubin: bytes) -> list[int]:
    """Registers, stack bytes and local bytes of a thread, from the machine code by the cuobjdump that Triton brings."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        command = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", path]
        usage = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = dict(re.findall(r"(\w+):(\d+)", usage))
    return [int(found[name]) for name in ("REG", "STACK", "LOCAL")]


if __name__ == "__main__":
    main()
