"""Streams and groups of warps as CUDA for Hopper: on the emulator, through ptxas, and refused."""

from __future__ import annotations

import functools
import re
from unittest import mock

import numpy as np
import pytest

import tests.emulator
from autotune.codegen import backend_for
from autotune.codegen.base import DeviceCode
from autotune.codegen.nvptx.kernel import DeviceText, write_kernels
from autotune.errors import BuildError, VerifyError
from autotune.program.ir import Program
from autotune.program.text import print_program
from autotune.target import load_target
from autotune.types import Array
from tests.emulator import run_emulated
from tests.interpreter.interp import run
from tests.interpreter.parse import parse_program
from tests.interpreter.verify import verify
from tests.ptxas import assemble
from tests.unit.codegen.stream_programs import stream_matmul

SM80, SM90 = load_target("sm_80"), load_target("sm_90a")
SMALL = stream_matmul(groups=1, count=2, depth=136)


@functools.cache
def inputs(program: Program) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {p.name: rng.standard_normal(p.shape).astype(np.float32) for p in program.params}


@functools.cache
def expected(program: Program) -> Array:
    """What the interpreter makes of the program."""
    verify(program)
    return run(program, inputs(program))


@pytest.mark.parametrize("copies", [2, 3])
def test_fetches_beyond_the_tensor_are_zeros(copies: int) -> None:
    program = stream_matmul(groups=1, count=2, depth=136, copies=copies)
    wide = {name: array.astype(np.float64) for name, array in inputs(program).items()}
    want = np.maximum(wide["c0"] @ wide["c1"].T + wide["i0"], 0)
    assert np.max(np.abs(expected(program) - want)) <= 5e-3 * np.max(want)


@pytest.mark.parametrize(
    "program",
    [SMALL, stream_matmul(), stream_matmul(copies=4)],
    ids=["one group", "two groups", "four copies"],
)
def test_groups_multiply_what_was_fetched(program: Program) -> None:
    got = run_emulated(program, SM90, inputs(program))
    np.testing.assert_allclose(got, expected(program), rtol=1e-5, atol=1e-5)


def test_text_of_streams_is_read_back() -> None:
    assert parse_program(print_program(SMALL)) == SMALL


@pytest.mark.parametrize("count", [8, 16, 32])
def test_ptxas_leaves_products_in_flight(count: int) -> None:
    """No spills, and no product that waits for the one before."""
    program = stream_matmul(count=count, depth=512, copies=4)
    (report,) = assemble(backend_for(SM90).source(program, SM90, "k"), "sm_90a").values()
    assert report.spill_bytes == report.stack_bytes == 0
    assert not report.remarks
    assert report.registers * 288 <= 65536


@pytest.mark.parametrize("steps", [1, 2])
def test_sums_are_in_registers_before_the_fence(steps: int) -> None:
    """ptxas would say that it adds a fence of its own."""
    program = stream_matmul(depth=64 * steps)
    (report,) = assemble(backend_for(SM90).source(program, SM90, "k"), "sm_90a").values()
    assert not report.remarks
    got = run_emulated(program, SM90, inputs(program))
    np.testing.assert_allclose(got, expected(program), rtol=1e-5, atol=1e-5)


def test_products_without_a_fence_are_seen_by_ptxas() -> None:
    """So that the test above can fail."""
    text = backend_for(SM90).source(SMALL, SM90, "k").replace("wgmma.fence.sync.aligned;", "")
    (report,) = assemble(text, "sm_90a").values()
    assert report.remarks


def test_code_with_tensors_is_encoded_and_decoded() -> None:
    code = backend_for(SM90).build(SMALL, SM90, "k").code
    made = DeviceCode.decode(code)
    assert made.encode() == code
    (launch,) = made.launches
    assert [m.box for m in launch.maps] == [(64, 64), (64, 16)]
    assert launch.args[-2:] == ("c0", "c1")


def test_only_hopper_has_streams() -> None:
    with pytest.raises(BuildError, match="sm_90a"):
        backend_for(SM80).source(SMALL, SM80, "k")


# ------------------------------------------------------------------- what the emulator would find


def changed(old: str, new: str, count: int = 1) -> DeviceText:
    """The kernel's text with something wrong in it."""
    made = write_kernels(SMALL, SM90, "kernel")
    text, found = re.subn(old, new, made.text)
    assert found == count, (found, old)
    return DeviceText(
        text=text, launches=made.launches, scratch=made.scratch,
        workspace_bytes=made.workspace_bytes,
    )  # fmt: skip


SWIZZLED = (1 << 62) | (64 << 32) | (1 << 16)


@pytest.mark.parametrize(
    ("old", "new", "count"),
    [
        (str(SWIZZLED), str(SWIZZLED ^ (1 << 62)), 2),  # not swizzled
        (str(SWIZZLED), str(SWIZZLED ^ (3 << 62)), 2),  # rows of 64 bytes
        (str(SWIZZLED), str(SWIZZLED - (32 << 32)), 2),  # rows too close
        (r"add i64 (%\w+), 2\n", r"add i64 \1, 4\n", 2),  # the wrong columns
        (r"\[\$1, \{\$3, \$4\}\]", "[$1, {$4, $3}]", 2),  # coordinates the other way round
    ],
    ids=["no swizzle", "another swizzle", "stride", "step", "coordinates"],
)
def test_what_describes_operands_matters(old: str, new: str, count: int) -> None:
    with mock.patch.object(tests.emulator, "write_kernels", return_value=changed(old, new, count)):
        got = run_emulated(SMALL, SM90, inputs(SMALL))
    assert not np.allclose(got, expected(SMALL), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (r".*wgmma\.fence\.sync.*\n", "", "not behind a fence"),
        (r".*expect_tx.*\n", "", "never come"),
        (r"(expect_tx.*i32 )10240\)", r"\g<1>10368)", "never come"),
        (r".*mbarrier\.arrive\.shared.*\n", "", "never come"),
        (r"xor i32 (%\w+), 1", r"xor i32 \1, 0", "never come"),
        (r"wait_group\.sync\.aligned 1;", "wait_group.sync.aligned 7;", "changed before"),
    ],
    ids=["fence", "no bytes", "too many bytes", "no arrival", "parity", "not waited for"],
)
def test_order_matters(old: str, new: str, words: str) -> None:
    with (
        mock.patch.object(tests.emulator, "write_kernels", return_value=changed(old, new)),
        pytest.raises(AssertionError, match=words),
    ):
        run_emulated(SMALL, SM90, inputs(SMALL))


def test_sums_are_no_numbers_until_they_are_waited_for() -> None:
    old = r"call (\{[^}]*\}) asm sideeffect \"wgmma.wait_group.sync.aligned 0;\", \"[^\"]*\"\(.*"
    made = write_kernels(SMALL, SM90, "kernel")
    (sums,) = re.findall(r"wait_group\.sync\.aligned 0;\", \"[^\"]*\"\((.*)\)", made.text)
    kind = f"{{{', '.join(['float'] * (sums.count('float')))}}}"
    whole = "poison"
    lines = []
    for i, value in enumerate(sums.split(", ")):
        lines.append(f"%early{i} = insertvalue {kind} {whole}, {value}, {i}")
        whole = f"%early{i}"
    last = lines[-1].split(" = ", 1)[1]
    earlier = "\n  ".join(lines[:-1])
    text = re.sub(rf"  (%\w+) = {old}", f"  {earlier}\n  \\1 = {last}", made.text)
    assert text != made.text
    early = DeviceText(
        text=text, launches=made.launches, scratch=made.scratch,
        workspace_bytes=made.workspace_bytes,
    )  # fmt: skip
    with (
        mock.patch.object(tests.emulator, "write_kernels", return_value=early),
        pytest.raises(AssertionError, match="before its copies"),
    ):
        run_emulated(SMALL, SM90, inputs(SMALL))


# -------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("a[(ko % 2), 0, 0] from", "a[0, 0, 0] from", "go round"),
        ("a[(ko % 2), 16*w1, 16*k]", "a[(ko % 2), 8*w1, 16*k]", "rows of the four warps"),
        ("b[(ko % 2), 0, 16*k]", "b[(ko % 2), 0, 16*(w1 % 4)]", "same columns"),
        ("fetch [64, 64] a", "fetch [64, 32] a", "no box"),
        ("a: bfloat16[2, 64, 64] shared", "a: bfloat16[2, 64, 72] shared", "rows of 128 bytes"),
        ("in 4 warp", "in 2 warp", "groups of warps"),
        ("64*ko]\n          for w1", "64*ko]\n          barrier\n          for w1", "warps alone"),
        (" stream", " serial", "head of a stream"),
        ("wgmma 2", "wgmma 3", "accessed at"),
    ],
)
def test_what_no_group_can_do_is_refused(old: str, new: str, words: str) -> None:
    text = print_program(SMALL)
    assert old in text
    with pytest.raises(VerifyError, match=words):
        verify(parse_program(text.replace(old, new)))
