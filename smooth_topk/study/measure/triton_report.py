"""Compiles the Triton kernels for GPUs that need not be present, and records what each takes of one.

    python -m smooth_topk.study.measure.triton_report --output book/results/triton_compile.csv

One row per kernel: registers of a thread, bytes that a thread spills to memory, shared memory of a program. Nothing
runs and nothing is timed. Needs Triton, without TRITON_INTERPRET.
"""

import argparse
import csv
import io
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
from smooth_topk.pivot import triton_kernels as kernels
from smooth_topk.pivot.torch_backend import working_dtype
from smooth_topk.study.records.files import write_whole

KERNELS = {"forward": kernels.forward_kernel, "backward": kernels.backward_kernel}
DTYPES = {"float32": "*fp32", "bfloat16": "*bf16", "float16": "*fp16"}
TYPES = {
    **dict.fromkeys(["losses", "pivots", "heads", "grad_losses"], "*fp32"),
    **dict.fromkeys(["labels", "indices"], "*i64"),
    **dict.fromkeys(["classes", "row_stride", "gradient_row_stride"], "i32"),
    "scale": "fp32",
    "tau": "fp64",
    "margin": "fp64",
}
UNIT_STRIDES = ["class_stride", "label_stride", "grad_loss_stride", "gradient_class_stride"]


def compiled(direction: str, k: int, classes: int, capability: int, dtype: str = "float32"):
    """The kernel as Triton compiles it for contiguous scores; its `asm` holds PTX and machine code.

    Args:
        direction: "forward" or "backward".
        k: size of the prediction.
        classes: number of classes; decides the block.
        capability: ten times the compute capability, 80 for an A100, 90 for an H100.
        dtype: of the scores: "float32", "bfloat16" or "float16".
    """
    kernel, launch = KERNELS[direction], _launch(direction, classes)
    working = tl.float32 if working_dtype(torch.float32, k) == torch.float32 else tl.float64
    lanes = backend.power_of_two(k + (direction == "backward"))
    constants = {"k": k, "lanes": lanes, "block": launch.block, "working": working}
    constants |= {name: 1 for name in UNIT_STRIDES if name in kernel.arg_names}
    types = TYPES | {"scores": DTYPES[dtype], "gradient": DTYPES[dtype], "tails": f"*{working}"}
    signature = {name: "constexpr" if name in constants else types[name] for name in kernel.arg_names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(signature.values()) if kind.startswith("*")}
    source = ASTSource(kernel, signature, constants, aligned)
    options = {"num_warps": launch.warps, **backend.OPTIONS}
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


def measure(direction: str, k: int, classes: int, capability: int, dtype: str = "float32") -> dict[str, str | int]:
    """One row of the record."""
    program, launch = compiled(direction, k, classes, capability, dtype), _launch(direction, classes)
    registers, stack, local = _resources(program.asm["cubin"])
    return {
        "kernel": direction,
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


def bytes_moved(classes: int, k: int, itemsize: int) -> tuple[int, int]:
    """Bytes of memory traffic per row, forward and backward together: the kernels', and the least of cross-entropy.

    Both read the scores twice and write the gradient. Cross-entropy adds label, loss, normaliser and derivative of the
    loss; the kernels write their state once and read it once for each block of the backward pass.

    Example:
        >>> bytes_moved(1000, 5, itemsize=4)
        (12208, 12032)
    """
    once = 3 * classes * itemsize
    coefficient = 4 if working_dtype(torch.float32, k) == torch.float32 else 8
    state = 4 + k * coefficient + (k + 1) * (8 + 4)
    label, loss, normaliser = 8, 4, 4
    programs = -(-classes // backend.backward_launch(classes).block)
    return once + label + loss + state + programs * (state + loss), once + 2 * (label + loss + normaliser)


def main(arguments: list[str] | None = None) -> None:
    """Compiles every combination and writes the record, whole or not at all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="the CSV file to write")
    parser.add_argument("--k", type=int, nargs="+", default=[1, 5, 8, 20, 32])
    parser.add_argument("--classes", type=int, nargs="+", default=[100, 1000, 100_000])
    parser.add_argument("--capability", type=int, nargs="+", default=[80, 90])
    parser.add_argument("--dtype", choices=DTYPES, nargs="+", default=["float32", "bfloat16"])
    chosen = parser.parse_args(arguments)
    rows = []
    for dtype, direction, k, classes, capability in product(
        chosen.dtype, KERNELS, chosen.k, chosen.classes, chosen.capability
    ):
        rows.append(measure(direction, k, classes, capability, dtype))
        print(*rows[-1].values(), sep="  ", flush=True)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_whole(chosen.output, text.getvalue().encode())


def _launch(direction: str, classes: int) -> backend.Launch:
    return backend.forward_launch(classes) if direction == "forward" else backend.backward_launch(classes)


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
