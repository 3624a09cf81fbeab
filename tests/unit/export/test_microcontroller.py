"""Int8 models as C for microcontrollers: small, and right on a simulated board."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from autotune.cli import execute
from autotune.measure.simulator.cores import core_of
from autotune.target import load_target
from tests.needs import needs
from tests.pages import ROOT
from tests.patience import PATIENCE_S
from tests.tflite_models import (
    NONE,
    RELU,
    SAME,
    Operator,
    activation,
    bias,
    constant,
    conv,
    depthwise,
    judged,
    q,
    tflite_bytes,
    weights,
)

CODE_BYTES = 12 << 10
"""Code of a model, and constants that are no weights, at most."""
COMPILE = (
    "arm-none-eabi-gcc", "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-mcpu=cortex-m4",
)  # fmt: skip


def network(blocks: int = 4, width: int = 20) -> bytes:
    """Pairs of a window and a point convolution of changing sizes, residual sums, a layer."""
    x, now = q(1, 15, 11, 3), q(1, 8, 6, width, zero=-128)
    operators = [
        Operator(name="CONV_2D", inputs=[x, weights(width, 3, 3, 3), bias(width)], outputs=[now],
                 options=conv(2, SAME, RELU)),
    ]  # fmt: skip
    inputs, height, columns = [x], 8, 6
    for number in range(blocks):
        wide = width + 4 * number
        if number % 2:
            height, columns = -(-height // 2), -(-columns // 2)
        a, b = (q(1, height, columns, c, zero=-128) for c in (wide, wide + 4))
        window = depthwise(1 + number % 2, SAME)
        operators += [
            Operator(name="DEPTHWISE_CONV_2D", outputs=[a], options=window,
                     inputs=[now, weights(1, 3, 3, wide, axis=3), bias(wide)]),
            Operator(name="CONV_2D", inputs=[a, weights(wide + 4, 1, 1, wide), bias(wide + 4)],
                     outputs=[b], options=conv(1, SAME, RELU)),
        ]  # fmt: skip
        c, total = q(1, height, columns, wide + 4, zero=5), q(1, height, columns, wide + 4)
        full = weights(wide + 4, 3, 3, wide + 4)
        operators += [
            Operator(name="CONV_2D", inputs=[b, full, bias(wide + 4)], outputs=[c],
                     options=conv(1, SAME, NONE)),
            Operator(name="ADD", inputs=[b, c], outputs=[total],
                     options=activation("AddOptions", RELU)),
        ]  # fmt: skip
        now = total
    last = width + 4 * blocks
    mean, row, logits = q(1, 1, 1, last), q(1, last), q(1, 10, scale=0.2, zero=9)
    operators += [
        Operator(name="MEAN", inputs=[now, constant([1, 2])], outputs=[mean],
                 options=("ReducerOptions", {"keepDims": True})),
        Operator(name="RESHAPE", inputs=[mean, constant([1, last])], outputs=[row],
                 options=("ReshapeOptions", {"newShape": [1, last]})),
        Operator(name="FULLY_CONNECTED", inputs=[row, weights(10, last, channels=False), bias(10)],
                 outputs=[logits], options=activation("FullyConnectedOptions", NONE)),
    ]  # fmt: skip
    return tflite_bytes(operators, inputs, [logits])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    (folder / "model.tflite").write_bytes(network())
    arguments = ["export", str(folder / "model.tflite"), "--format", "c", "--target", "cortex-m4"]
    assert execute([*arguments, "-o", str(folder)]) == 0
    return folder


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("cortex-m4", marks=needs("cortex-m")),
        pytest.param("cortex-m55", marks=[needs("cortex-m"), pytest.mark.slow]),
        pytest.param("rv32imac", marks=[needs("riscv32"), pytest.mark.slow]),
        pytest.param("rv32imac-v", marks=[needs("riscv32"), pytest.mark.slow]),
    ],
)
def test_a_model_of_eighteen_layers_is_small(folder: Path, tmp_path: Path, name: str) -> None:
    place = folder if name == "cortex-m4" else tmp_path
    if place is not folder:
        arguments = ["export", str(folder / "model.tflite"), "--format", "c", "--target", name]
        assert execute([*arguments, "-o", str(place)]) == 0
    core = core_of(load_target(name))
    run([core.compiler, "-std=c99", "-Os", *core.flags, "-c", "model.c"], place)
    listed = run([core.compiler.replace("-gcc", "-size"), "-A", "model.o"], place)
    rows = [line.split() for line in listed]
    sizes = {row[0]: int(row[1]) for row in rows if len(row) == 3 and row[1].isdigit()}
    (line,) = (x for x in (place / "model.c").read_text().splitlines() if "uint32_t weights[" in x)
    weight_bytes = 4 * int(line.split("weights[")[1].split("]")[0])
    rom = sum(n for name, n in sizes.items() if name.startswith((".text", ".rodata", ".data")))
    assert 0 < rom - weight_bytes <= CODE_BYTES


@needs("cortex-m")
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m3"])
def test_a_board_gives_the_reference_kernels_bytes(folder: Path, core: str) -> None:
    """With SMLAD, and without."""
    board = {"cortex-m4": "mps2-an386", "cortex-m3": "mps2-an385"}[core]
    vectors = str(ROOT / "examples/deploy/vectors.c")
    link = ["--specs=rdimon.specs", "-Wl,--section-start=.vectors=0", vectors, "-lm", "-o", core]
    run([*COMPILE, f"-mcpu={core}", "-Os", "main.c", "model.c", *link], folder)
    listed = run(["arm-none-eabi-objdump", "-d", core], folder)
    assert any("smlad" in line for line in listed) == (core == "cortex-m4")
    x = np.random.default_rng(0).integers(-128, 128, (1, 15, 11, 3)).astype(np.int8)
    (folder / "in").write_bytes(x.tobytes())
    given = ",".join(f"arg={word}" for word in ("main", "in", "-o", "out"))
    run(
        ["qemu-system-arm", "-M", board, "-nographic", "-monitor", "none", "-serial", "none",
         "-semihosting-config", f"enable=on,target=native,{given}", "-kernel", core],
        folder,
    )  # fmt: skip
    (wanted,) = judged((folder / "model.tflite").read_bytes(), [x])
    assert (folder / "out").read_bytes() == wanted.tobytes()


@pytest.mark.parametrize(
    ("target", "compiler"),
    [
        pytest.param(
            "cortex-m33", ["arm-none-eabi-gcc"], marks=[needs("cortex-m"), pytest.mark.slow]
        ),
        pytest.param(
            "cortex-m7", ["arm-none-eabi-gcc"], marks=[needs("cortex-m"), pytest.mark.slow]
        ),
        pytest.param("cortex-m55", ["arm-none-eabi-gcc"], marks=needs("cortex-m")),
        pytest.param(
            "rv32imac",
            [
                "riscv64-unknown-elf-gcc",
                "-march=rv32imac",
                "-mabi=ilp32",
                "--specs=picolibc.specs",
            ],
            marks=needs("riscv32"),
        ),
        pytest.param(
            "rv32imac-v",
            [
                "riscv64-unknown-elf-gcc",
                "-march=rv32imac_zve32x",
                "-mabi=ilp32",
                "--specs=picolibc.specs",
            ],
            marks=needs("riscv32"),
        ),
    ],
)
def test_other_cores_code_compiles_without_a_warning(
    target: str, compiler: list[str], tmp_path: Path
) -> None:
    """What it computes, tests of simulated cores say."""
    (tmp_path / "model.tflite").write_bytes(network(2, 12))
    arguments = ["export", str(tmp_path / "model.tflite"), "--format", "c", "--target", target]
    assert execute([*arguments, "-o", str(tmp_path)]) == 0
    cpu = [f"-mcpu={target}"] if target.startswith("cortex") else []
    strict = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-c"]
    for level in ("-Os", "-O2", "-O0"):
        run([*compiler, *cpu, *strict, level, "main.c", "model.c"], tmp_path)


@needs("cortex-m")
@pytest.mark.parametrize(
    ("target", "triple", "cpu"),
    [
        ("cortex-m4", "thumb-freestanding-eabi", "cortex_m4"),
        pytest.param(
            "cortex-m33", "thumb-freestanding-eabi", "cortex_m33", marks=pytest.mark.slow
        ),
        ("cortex-m55", "thumb-freestanding-eabihf", "cortex_m55"),
        pytest.param(
            "rv32imac", "riscv32-freestanding", "generic_rv32+m+a+c", marks=pytest.mark.slow
        ),
        ("rv32imac-v", "riscv32-freestanding", "generic_rv32+m+a+c+zve32x"),
    ],
)  # fmt: skip
def test_clang_takes_the_code_without_a_warning(
    target: str, triple: str, cpu: str, tmp_path: Path
) -> None:
    """Zig's, which is clang for any processor; headers are newlib's."""
    pytest.importorskip("ziglang")
    (tmp_path / "model.tflite").write_bytes(network(2, 12))
    arguments = ["export", str(tmp_path / "model.tflite"), "--format", "c", "--target", target]
    assert execute([*arguments, "-o", str(tmp_path)]) == 0
    clang = [sys.executable, "-m", "ziglang", "cc", "-target", triple, f"-mcpu={cpu}"]
    headers = ["-isystem", "/usr/lib/arm-none-eabi/include"]
    strict = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-c", "model.c"]
    for level in ("-Os", "-O2", "-O0"):
        run([*clang, *headers, *strict, level], tmp_path)


def run(command: list[str], folder: Path) -> list[str]:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
