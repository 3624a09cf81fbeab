"""Int8 models as C for simulated microcontrollers: bytes, exactness, cycles, published times.

    python benchmarks/deployment/microcontrollers.py FOLDER/*.tflite
        [--cores cortex-m4,cortex-m7,cortex-m55] [--kernels]

Cores of RISC-V are `rv32imac` and `rv32imac-v`.

In: models. Out: a line for each model and core: code and constants of `model.c` beyond its weights
(GCC, -Os, the core's options), memory of an instance, that over what is alive at once in the
fullest call, whether results are those of TensorFlow Lite's reference kernels (`ai-edge-litert`),
instructions, cycles and milliseconds of a whole run of default schedules, compiled with -O2, and
the milliseconds that X-CUBE-AI publishes for boards of that clock. With --kernels also cycles by
kernel. Needs the
extras `tflite` and `simulator`, and Debian's gcc-arm-none-eabi, libnewlib-arm-none-eabi and
qemu-system-arm; for RISC-V gcc-riscv64-unknown-elf, picolibc-riscv64-unknown-elf and
qemu-system-misc. Counts do not depend on the machine that simulates.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from autotune.codegen.c.source import decoded_calls
from autotune.compiler.driver import compile_request
from autotune.compiler.layout_costs import arranged
from autotune.export.write import ExportOptions, export_image, source_target
from autotune.frontend import load_model
from autotune.graph.pipeline import optimize
from autotune.measure.simulator.cores import core_of
from autotune.measure.simulator.costs import Counted, whole
from autotune.placement.memory_plan import plan_memory
from autotune.request import CompileRequest
from autotune.runtime.model import CompiledModel
from autotune.runtime.on_simulated_board import QemuModels, SimulatedModel, UnicornModels
from autotune.target import Target, load_target
from autotune.types import Array

PUBLISHED_MS = {
    ("ad01_int8", "cortex-m4"): 5.26, ("ad01_int8", "cortex-m7"): 1.23,
    ("pretrainedResnet_quant", "cortex-m4"): 165.0, ("pretrainedResnet_quant", "cortex-m7"): 40.8,
    ("kws_ref_model", "cortex-m4"): 43.2, ("kws_ref_model", "cortex-m7"): 11.3,
    ("vww_96_int8", "cortex-m4"): 88.9, ("vww_96_int8", "cortex-m7"): 23.8,
}  # fmt: skip
"""X-CUBE-AI's in MLPerf Tiny: boards with a Cortex-M4 at 120 MHz, a Cortex-M7 at 280 MHz."""
HEAD = (
    "| model | core | code, bytes | memory, bytes | over the least | exact | instructions, 10^6 | "
    "cycles, 10^6 | ms | X-CUBE-AI, ms |"
)


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a simulated board did in one run of a model."""

    outputs: bytes
    counted: Counted
    kernels: Counter[str]
    """Cycles by kernel."""
    clock_hz: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--cores", default="cortex-m4,cortex-m7,cortex-m55")
    parser.add_argument("--kernels", action="store_true")
    options = parser.parse_args()
    print(HEAD, "|".join(["", *[" --- "] * HEAD.count(" | "), " --- ", ""]), sep="\n")
    for path in options.models:
        for name in options.cores.split(","):
            rows(path, load_target(name), kernels=options.kernels)


def rows(path: Path, target: Target, *, kernels: bool) -> None:
    """A model's line for a core, and the kernels behind it."""
    model = compile_request(CompileRequest(model=str(path), target=source_target(target)))
    if not isinstance(model, CompiledModel):
        raise SystemExit(f"{path}: the sizes are open")
    rng = np.random.default_rng(0)
    feeds = [
        rng.integers(-128, 128, p.type.shape).astype(p.type.dtype) for p in model.image.inputs
    ]
    with tempfile.TemporaryDirectory() as place:
        model.save(Path(place) / "model.model")
        run = simulated((Path(place) / "model.model").read_bytes(), target, feeds)
        code, memory = sizes(model, Path(place), target)
    exact = run.outputs == b"".join(a.tobytes() for a in judged(path, feeds))
    ms = run.counted.cycles / run.clock_hz * 1e3
    published = PUBLISHED_MS.get((path.stem, target.name))
    cells = [
        path.stem, target.name, code, memory, f"{memory / least_bytes(path, target):.3f}",
        "yes" if exact else "NO", f"{run.counted.instructions / 1e6:.2f}",
        f"{run.counted.cycles / 1e6:.2f}", f"{ms:.2f}",
        "-" if published is None else f"{published} ({ms / published:.2f} of it)",
    ]  # fmt: skip
    print(f"| {' | '.join(map(str, cells))} |", flush=True)
    for symbol, cycles in run.kernels.most_common() if kernels else ():
        print(f"    {cycles / 1e3:10.1f} thousand cycles: {symbol}")


def simulated(file: bytes, target: Target, feeds: Sequence[Array]) -> Run:
    """A run on the core, of QEMU where Unicorn has none such."""
    executor = UnicornModels() if core_of(target).unicorn else QemuModels()
    board = SimulatedModel(file, executor.engine)
    code = board.compiled(executor.boot(board.core))
    memory = board.memory([a.tobytes() for a in feeds])
    sections, left = executor.engine.run(board.core, code, memory, 600.0)
    _, outputs = board.frame(sections[1:], left, 1)
    kernels: Counter[str] = Counter()
    for call, section in zip(decoded_calls(board.image.objects[-1]), sections[1:], strict=True):
        kernels[call.symbol] += section.cycles
    counted = whole(sections[1:])
    return Run(outputs=outputs, counted=counted, kernels=kernels, clock_hz=board.core.clock_hz)


def sizes(model: CompiledModel, folder: Path, target: Target) -> tuple[int, int]:
    """(bytes of code and of constants that are no weights, memory of an instance)."""
    export_image(model.image, folder, ExportOptions(format="c"))
    core = core_of(target)
    compiler = [core.compiler, "-std=c99", "-Os", *core.flags]
    subprocess.run([*compiler, "-c", "model.c", "-o", "model.o"], cwd=folder, check=True)
    listed = subprocess.run(
        ["arm-none-eabi-size", "-A", "model.o"], cwd=folder, capture_output=True, text=True,
        check=True,
    ).stdout  # fmt: skip
    found = re.findall(r"^\.(?:text|rodata|data)\S*\s+(\d+)", listed, re.MULTILINE)
    words = re.search(r"uint32_t weights\[(\d+)\]", (folder / "model.c").read_text())
    memory = re.search(r"MODEL_MEMORY_BYTES (\d+)", (folder / "model.h").read_text())
    if words is None or memory is None:
        raise SystemExit("model.c tells no sizes")
    return sum(map(int, found)) - 4 * int(words[1]), int(memory[1])


def least_bytes(path: Path, target: Target) -> int:
    """What the values of the fullest call take."""
    parts = arranged(optimize(load_model(path)), source_target(target), None)
    return plan_memory(parts, lend=target.lends_halos).least_bytes


def judged(path: Path, feeds: Sequence[Array]) -> list[Array]:
    """What the reference kernels give."""
    judge = Interpreter(
        model_path=str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_REF
    )
    judge.allocate_tensors()
    for about, array in zip(judge.get_input_details(), feeds, strict=True):
        judge.set_tensor(about["index"], array)
    judge.invoke()
    return [judge.get_tensor(about["index"]) for about in judge.get_output_details()]


if __name__ == "__main__":
    main()
