"""Texts that should change only on purpose: a scheduled program and the code of small kernels.

`pytest tests/golden --update-golden` writes them anew; read the difference before committing it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.codegen import BACKENDS
from autotune.program.ir import Program
from autotune.program.text import print_program
from autotune.schedule import apply_schedule, schedule_from_json
from autotune.target import load_target
from autotune.tasks.build import build_program
from search_spaces.params import Config
from search_spaces.rules import RULES
from tests.unit.codegen.kernels import conv_relu, matmul, norm_of_rows
from tests.unit.codegen.nvptx_programs import MATMUL as GPU_MATMUL
from tests.unit.codegen.nvptx_programs import ROWS, TRANSPOSE
from tests.unit.codegen.stream_programs import stream_matmul
from tests.unit.codegen.tensor_programs import tensor_matmul

FOLDER = Path(__file__).parent
CONV = schedule_from_json([
    {"step": "inline", "buffer": "t1"},
    {"step": "compute_at", "buffer": "o0", "at": "t0_oc"},
    {"step": "split", "loop": "t0_oc", "factor": 4, "outer": "oo", "inner": "oi"},
    {"step": "split", "loop": "t0_ow", "factor": 2, "outer": "wo", "inner": "wi"},
    {"step": "reorder", "loops": ["oo", "t0_n", "t0_oh", "wo", "wi", "oi"]},
    {"step": "cache_write", "buffer": "t0", "loops": ["wi", "oi"]},
    {"step": "pack", "buffer": "c0", "splits": [[3, 4]], "order": [3, 0, 1, 2, 4]},
    {"step": "unroll", "loops": ["wi", "wi_init", "wi_out"]},
    {"step": "vectorize", "loops": ["oi", "oi_init", "oi_out"]},
    {"step": "specialize", "loop": "wo", "at": "t0.reg"},
    {"step": "parallel", "loop": "oo"},
])  # fmt: skip
MATMUL = schedule_from_json([
    {"step": "split", "loop": "o0_n", "factor": 4, "outer": "no", "inner": "ni"},
    {"step": "split", "loop": "o0_m", "factor": 2, "outer": "mo", "inner": "mi"},
    {"step": "reorder", "loops": ["mo", "no", "mi", "ni"]},
    {"step": "cache_write", "buffer": "o0", "loops": ["mi", "ni"]},
    {"step": "pack", "buffer": "c0", "splits": [[1, 4]], "order": [1, 0, 2]},
    {"step": "unroll", "loops": ["mi", "mi_init", "mi_out"]},
    {"step": "vectorize", "loops": ["ni", "ni_init", "ni_out"]},
])  # fmt: skip


def conv_program() -> Program:
    return apply_schedule(build_program(conv_relu(filters=8)), CONV)


def matmul_program() -> Program:
    return apply_schedule(build_program(matmul(4, 3, 8)), MATMUL)


def same(request: pytest.FixtureRequest, name: str, text: str) -> None:
    """The text is that of the file, or is written there if asked for."""
    path = FOLDER / name
    if request.config.getoption("--update-golden"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_convolution_program(request: pytest.FixtureRequest) -> None:
    same(request, "conv.program", print_program(conv_program()))


def test_matmul_program(request: pytest.FixtureRequest) -> None:
    same(request, "matmul.program", print_program(matmul_program()))


def test_layer_norm_program(request: pytest.FixtureRequest) -> None:
    config = Config((("unroll", 2), ("merge", 2), ("rows", 2), ("shift", 1)))
    made, target = norm_of_rows(5, 64), load_target("x86-64-v4")
    steps = RULES.get("nests").schedule(made, target, config)
    same(request, "norm.program", print_program(apply_schedule(build_program(made), steps)))


def test_code_for_neon(request: pytest.FixtureRequest) -> None:
    text = BACKENDS.get("llvm").source(matmul_program(), load_target("cortex-a72"), "matmul")
    same(request, "matmul.ll", text)


def test_code_for_matrix_tiles(request: pytest.FixtureRequest) -> None:
    """Four tiles of sums, a ragged last row of them with shapes of its own, and a bias."""
    made, target = matmul(40, 64, 32), load_target("x86-64-amx").with_precision("bf16")
    config = Config((
        ("algorithm", "amx_bf16"), ("lanes", 16), ("vectors", 2), ("tile_w", 32), ("tile_h", 1),
        ("order", "channels_first"), ("unroll", 1), ("block", 1), ("prefetch", "none"),
    ))  # fmt: skip
    steps = RULES.get("contraction").schedule(made, target, config)
    program = apply_schedule(build_program(made), steps)
    same(request, "tiles.program", print_program(program))
    same(request, "tiles.amx.ll", BACKENDS.get("llvm").source(program, target, "tiles"))


def test_code_for_two_threads(request: pytest.FixtureRequest) -> None:
    text = BACKENDS.get("llvm").source(matmul_program(), load_target("x86-64-v3", 2), "matmul")
    same(request, "matmul.threads.ll", text)


@pytest.mark.parametrize(
    ("program", "arch"),
    [(TRANSPOSE, "sm_80"), (ROWS, "sm_80"), (GPU_MATMUL, "sm_90a"),
     (tensor_matmul("bfloat16"), "sm_80"), (stream_matmul(groups=1, count=2), "sm_90a")],
    ids=lambda p: p if isinstance(p, str) else p.name,
)  # fmt: skip
def test_ptx(request: pytest.FixtureRequest, program: Program, arch: str) -> None:
    text = BACKENDS.get("cuda").source(program, load_target(arch), program.name)
    same(request, f"{program.name}.{arch}.ptx", text)


@pytest.mark.parametrize("name", ["conv", "matmul"])
def test_c(request: pytest.FixtureRequest, name: str) -> None:
    program = conv_program() if name == "conv" else matmul_program()
    same(request, f"{name}.c", BACKENDS.get("c").source(program, load_target("c"), name))


def test_c_for_two_threads(request: pytest.FixtureRequest) -> None:
    text = BACKENDS.get("c").source(conv_program(), load_target("x86-64-v3", 2), "conv")
    same(request, "conv.threads.c", text)


@pytest.mark.parametrize("program", [TRANSPOSE, ROWS, GPU_MATMUL], ids=lambda p: p.name)
def test_opencl(request: pytest.FixtureRequest, program: Program) -> None:
    text = BACKENDS.get("opencl").source(program, load_target("opencl"), program.name)
    same(request, f"{program.name}.cl", text)
