"""Threads that share a kernel: every iteration once, no thread waited for, late ones harmless."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from autotune.codegen import BACKENDS
from autotune.codegen.base import EntryCall
from autotune.codegen.elf.loader import ElfLibrary
from autotune.codegen.llvm.entry import run_text
from autotune.codegen.llvm.team import CURRENT
from autotune.codegen.loader import load
from autotune.program.ir import Alloc, Buffer, Const, For, Load, Program, Stmt, Store, index
from autotune.target import host_target
from tests.patience import PATIENCE_S

EXTENT = 203
KERNEL = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
)


def counting(threads: int) -> tuple[Callable[[int, int], None], np.ndarray]:
    """call(thread, epoch) of a kernel of two phases, and what it counts: the first adds one to
    every cell, the second one to every cell of the other half by way of the first."""
    i, j = index("i"), index("j")
    cells = Buffer.dense("o0", "float32", (2, EXTENT), "param")
    body: tuple[Stmt, ...] = (
        For("i", EXTENT, "parallel", (Store("o0", (index(0), i), Const(1.0), "sum"),)),
        For("j", EXTENT, "parallel", (Store("o0", (index(1), j), mirrored(), "sum"),)),
    )
    scratch = Buffer.dense("unused", "float32", (1,), "scratch")
    program = Program("counting", (cells,), (Alloc(scratch, body),))
    target = host_target(threads)
    built = BACKENDS.get("llvm").build(program, target, "counting")
    library = load([built.code], target)
    function = KERNEL(library.address("counting"))
    out = np.zeros((2, EXTENT), np.float32)
    workspace = np.zeros(built.workspace_bytes + 64, np.uint8)

    def call(thread: int, epoch: int) -> None:
        assert library is not None  # keeps the code in memory
        function(out.ctypes.data, workspace.ctypes.data, thread, threads, epoch)

    return call, out


def mirrored() -> Load:
    return Load("o0", (index(0), index("j") * -1 + (EXTENT - 1)))


@pytest.mark.parametrize("thread", [0, 1, 2])
def test_one_thread_does_the_work_of_those_that_do_not_come(thread: int) -> None:
    call, out = counting(3)
    call(thread, 0)
    assert (out == 1).all()


def test_a_late_thread_finds_nothing_to_do() -> None:
    call, out = counting(2)
    call(0, 0)
    call(0, 1)
    call(1, 0)
    call(1, 1)
    assert (out[0] == 2).all()
    assert (out[1] == 1 + 2).all()


def test_a_job_s_sizes_are_its_own() -> None:
    # Where the caller has them others may be by the time that a late thread looks there.
    job = run_text("k", 2, host_target(2), sizes=3).partition("@k_run_job(")[2].partition("\n}")[0]
    first, _, begun = job.partition(f"@{CURRENT}")
    assert begun
    assert all(f"%size{n} = load i64, ptr %w" in first for n in range(3))
    assert "load" not in begun
    assert "ptr %b1, ptr %sizes, ptr %b3" in begun


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_every_iteration_runs_once_and_phases_are_in_order(threads: int) -> None:
    call, out = counting(threads)
    epochs = 300

    def work(thread: int) -> None:
        for epoch in range(epochs):
            call(thread, epoch)

    team = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    for member in team:
        member.start()
    for member in team:
        member.join()
    assert (out[0] == epochs).all()
    assert (out[1] == epochs * (epochs + 1) / 2).all()


def tasks() -> set[str]:
    return set(os.listdir("/proc/self/task"))


@pytest.mark.parametrize("without_llvm", [False, True])
def test_a_team_of_several_objects_ends_with_its_library(without_llvm: bool) -> None:
    target, backend = host_target(3), BACKENDS.get("llvm")
    i = index("i")
    cells = Buffer.dense("o0", "float32", (EXTENT,), "param")
    body = (For("i", EXTENT, "parallel", (Store("o0", (i,), Const(1.0), "sum"),)),)
    program = Program("one_more", (cells,), body)
    codes = [backend.build(program, target, name).code for name in ("first", "second")]
    calls = [EntryCall(symbol=s, args=((0, 0), (1, 0))) for s in ("first", "second", "first")]
    codes.append(backend.build_entry(calls, target, "model"))
    before, python = tasks(), set(threading.enumerate())
    library = ElfLibrary(codes) if without_llvm else load(codes, target)
    out, workspace = np.zeros(EXTENT, np.float32), np.zeros(64, np.uint8)
    bases = (ctypes.c_void_p * 2)(out.ctypes.data, workspace.ctypes.data)
    for _ in range(20):
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library.address("model"))(bases)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(library.address("second_run"))(
            bases, 2
        )
    assert (out == 20 * 5).all()
    members = tasks() - before
    assert len(members) == 2
    del library
    assert set(threading.enumerate()) <= python
    until_s = time.monotonic() + PATIENCE_S
    while members & tasks():  # one that has been joined may have its last instructions to do
        assert time.monotonic() < until_s
        time.sleep(0.01)


FORKED = """
import os, sys
import numpy as np
import autotune
model = autotune.compile("zoo:tiny", threads=3)
feeds = {n: np.ones(t.shape, t.dtype) for n, t in model.inputs.items()}
first = model.run(feeds)
child = os.fork()
again = model.run(feeds)
assert all((again[n] == first[n]).all() for n in first)
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_fork_computes_alone_and_ends() -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED]
    assert subprocess.run(command, timeout=PATIENCE_S, check=False).returncode == 0


AWAY = """
import os
import numpy as np
import autotune
own = os.sched_getaffinity(0)
model = autotune.compile("zoo:tiny", threads=2)
feeds = {n: np.ones(t.shape, t.dtype) for n, t in model.inputs.items()}
before = set(os.listdir("/proc/self/task"))
for _ in range(3):
    model.run(feeds)
(member,) = set(os.listdir("/proc/self/task")) - before
left = os.sched_getaffinity(int(member))
assert len(own) == 1 or len(own - left) == 1, (own, left)
os.sched_setaffinity(0, {min(own)})
model.run(feeds)
assert os.sched_getaffinity(int(member)), "a caller with one core leaves members theirs"
"""


def test_members_are_kept_off_their_caller_s_core() -> None:
    subprocess.run([sys.executable, "-c", AWAY], timeout=PATIENCE_S, check=True)
