"""C code beside LLVM's: element functions on vectors, threads, and what the compiler refuses."""

from __future__ import annotations

import dataclasses
import math
import platform
import shutil
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from autotune.codegen import backend_for
from autotune.codegen.c.compiler import compile_c, find_compiler
from autotune.errors import BuildError
from autotune.program.ir import For, Program, walk
from autotune.schedule import apply_schedule, schedule_from_json
from autotune.target import Target, host_target, load_target, machine_of
from autotune.tasks.build import build_program
from autotune.types import Array
from tests.interpreter.parse import parse_program
from tests.needs import needs
from tests.unit.codegen.kernels import assert_close, matmul, run_kernel, unary
from tests.unit.codegen.test_llvm_math import samples

HERE = dataclasses.replace(host_target(), kind="c")
STRICT = HERE.with_accuracy("strict")
"""C code with this machine's vectors."""
REFERENCE: dict[str, tuple[Callable[[Array], Array], float]] = {
    "exp": (np.exp, 3.0),
    "log": (np.log, 2.0),
    "tanh": (np.tanh, 6.0),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 5.0),
    "erf": (np.vectorize(math.erf, otypes=[np.float64]), 4.0),
    "sqrt": (np.sqrt, 0.6),
    "floor": (np.floor, 0.0),
    "sin": (np.sin, 1.0),
}
"""Function -> (reference, largest error in units of the last place)."""


def vectorized(fn: str, count: int, lanes: int) -> Program:
    program = build_program(unary(fn, (count,)))
    (loop,) = (s for s in walk(program.body) if isinstance(s, For))
    names = {"outer": "o", "inner": "i"}
    return apply_schedule(
        program,
        schedule_from_json([
            {"step": "split", "loop": loop.var, "factor": lanes, **names},
            {"step": "vectorize", "loops": ["i"]},
        ]),
    )  # fmt: skip


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("fn", sorted(REFERENCE))
def test_element_functions(fn: str, lanes: int) -> None:
    reference, limit = REFERENCE[fn]
    x = samples()
    x = np.resize(x[np.abs(x) < 1e4] if fn == "sin" else x, 1 << 16)
    got = run_kernel(unary(fn, x.shape), vectorized(fn, len(x), lanes), STRICT, {"i0": x})
    with np.errstate(all="ignore"):
        want = reference(x.astype(np.float64))
        nearest = want.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(nearest))
    normal = np.isfinite(nearest) & (np.abs(nearest) >= 2.0**-126)
    error = np.abs(got[normal] - want[normal]) / np.spacing(np.abs(nearest[normal]))
    assert error.max() <= limit


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_share_a_parallel_loop(threads: int) -> None:
    task, target = matmul(9, 7, 18), HERE.with_threads(threads)
    program = build_program(task)
    outermost = next(s.var for s in walk(program.body) if isinstance(s, For))
    steps = [{"step": "parallel", "loop": outermost}]
    program = apply_schedule(program, schedule_from_json(steps))
    rng = np.random.default_rng(0)
    arrays = {v.name: rng.standard_normal(v.type.shape).astype("f4") for v in task.params[:-1]}
    want = run_kernel(task, build_program(task), host_target(), arrays)
    assert_close(run_kernel(task, program, target, arrays), want)


AWKWARD = """program awkward
param i0: float32[10]
param o0: float32[10] written
for int in 2 serial:
  for long.v in 8 vector:
    alloc cell: float32[8] register:
      cell[long.v] = mul(value(long.v, float32), float32(2.0))
      if 0 <= 8*int + long.v < 10:
        o0[8*int + long.v] = add(i0[8*int + long.v], cell[long.v])
"""
"""Names that are words of C, lanes that differ in a condition, registers read lane by lane."""


def test_conditions_on_lanes_are_written_lane_by_lane() -> None:
    x = np.arange(10, dtype=np.float32)
    got = run_kernel(unary("neg", (10,)), parse_program(AWKWARD), HERE, {"i0": x})
    np.testing.assert_array_equal(got, x + 2 * (np.arange(10) % 8))


@pytest.mark.usefixtures("fresh_compilers")
def test_a_machine_without_compiler_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(BuildError, match=r"need a C compiler, .* \(Debian: gcc\)"):
        compile_c("", load_target("c"))


@pytest.mark.usefixtures("fresh_compilers")
@pytest.mark.parametrize(
    ("name", "system"),
    [
        ("riscv64-v", "riscv64-linux-gnu"),
        ("cortex-a72", "aarch64-linux-gnu"),
        ("cortex-a7", "arm-linux-gnueabihf"),
        ("x86-64-v3", "x86_64-linux-gnu"),
    ],
)
def test_a_machine_without_cross_compiler_is_told_what_to_install(
    name: str, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "another")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    package = f"gcc-{system.replace('_', '-')}"
    message = rf"none of {system}-gcc was found; .* \(Debian: {package}\)"
    with pytest.raises(BuildError, match=message):
        compile_c("", dataclasses.replace(load_target(name), kind="c"))


@pytest.mark.usefixtures("fresh_compilers")
@pytest.mark.parametrize(
    ("machine", "name"), [("armv7l", "cortex-a7"), ("arm64", "cortex-a72"), ("amd64", "x86-64-v3")]
)
def test_a_board_s_own_compiler_is_taken(
    machine: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(shutil, "which", lambda program: f"/bin/{program}")
    assert find_compiler(machine_of(load_target(name).triple)) == "/bin/cc"


@pytest.fixture
def fresh_compilers() -> Iterator[None]:
    find_compiler.cache_clear()
    yield
    find_compiler.cache_clear()


@needs("cc")
def test_what_the_compiler_refuses_is_named() -> None:
    with pytest.raises(BuildError, match=r"refused the program: .*error: "):
        compile_c("no code;", load_target("c"))


@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4"])
def test_vectors_are_those_of_the_target(name: str) -> None:
    target: Target = dataclasses.replace(load_target(name), kind="c")
    text = backend_for(target).source(vectorized("neg", 64, target.lanes()), target, "k")
    assert f"f32x{target.lanes()}_store(" in text


def test_shared_memory_is_refused() -> None:
    program = parse_program(
        "program p\nparam o0: float32[4] written\nalloc s: float32[4] shared:\n"
        "  for i in 4 serial:\n    o0[i] = s[i]\n"
    )
    with pytest.raises(BuildError, match="no shared memory in C"):
        backend_for(HERE).source(program, HERE, "k")


def test_a_matmul_equals_the_other_backend_s() -> None:
    task = matmul(9, 7, 18)
    rng = np.random.default_rng(1)
    arrays = {v.name: rng.standard_normal(v.type.shape).astype("f4") for v in task.params[:-1]}
    program = build_program(task)
    assert_close(
        run_kernel(task, program, HERE, arrays), run_kernel(task, program, host_target(), arrays)
    )
