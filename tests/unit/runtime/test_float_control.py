"""Denormal numbers in compiled models, and the caller's floating-point control word."""

from __future__ import annotations

import ctypes
import ctypes.util
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from autotune.codegen.float_control import FPCR_FLUSH, MXCSR_DEFAULT, MXCSR_FLUSH
from autotune.compiler.driver import compile_graph
from autotune.errors import FeedError
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.runtime.model import CompiledModel
from autotune.target import Target, host_target, load_target
from autotune.types import Array, TensorType
from tests.needs import require_for

X86 = platform.machine().lower() in ("x86_64", "amd64")
FLUSHES = X86 or platform.machine().lower() in ("aarch64", "arm64")
"""Whether this machine has a mode that takes denormal numbers for zeros."""
WORD = 7 if X86 else 0
"""Where fenv_t, as 32-bit words, has the control word: after the x87 unit's state; or first."""
KEEP = MXCSR_DEFAULT if X86 else 0
FLUSH = KEEP | (MXCSR_FLUSH if X86 else FPCR_FLUSH)
NOTED = 0x3F if X86 else 0
"""x86: exceptions that happened, such as a rounded result of the interpreter's own."""
UPWARD = KEEP | (2 << 13 if X86 else 1 << 22)
TINY = np.float32(1e-20)
"""A normal number with a denormal square."""
DENORMAL = np.float32(1e-40)
SQUARES = 4096


def control_word() -> int:
    """Of the calling thread."""
    state = (ctypes.c_uint32 * 16)()
    _libm().fegetenv(state)
    return int(state[WORD]) & ~NOTED


def set_control_word(word: int) -> None:
    state = (ctypes.c_uint32 * 16)()
    _libm().fegetenv(state)
    state[WORD] = word
    _libm().fesetenv(state)


def _libm() -> ctypes.CDLL:
    return ctypes.CDLL(ctypes.util.find_library("m"))


@contextmanager
def caller_with(word: int) -> Iterator[None]:
    """This thread under a control word of its own choice."""
    before = control_word()
    set_control_word(word)
    try:
        yield
    finally:
        set_control_word(before)


def squares() -> Graph:
    builder = GraphBuilder("squares")
    x = builder.input("x", TensorType(dtype="float32", shape=(SQUARES,)))
    return builder.finish([("y", builder.op("mul", x, x))])


def run_squares(model: CompiledModel) -> Array:
    return model.run({"x": np.full(SQUARES, TINY)})["y"]


TARGETS = [(kind, threads) for kind in ("cpu", "c") for threads in (1, 2)]


def target_of(kind: str, threads: int) -> Target:
    target = load_target(kind, threads)
    require_for(target)
    return target


needs_words = pytest.mark.skipif(not FLUSHES, reason="this machine has no such control word")


@pytest.mark.parametrize(("kind", "threads"), TARGETS)
def test_every_thread_flushes_denormal_numbers(kind: str, threads: int) -> None:
    model = compile_graph(squares(), target_of(kind, threads))
    for _ in range(20):  # pieces of the work go to whoever comes first
        got = run_squares(model)
        assert not got.any() if FLUSHES else (got == TINY * TINY).all()


@needs_words
@pytest.mark.parametrize(("kind", "threads"), TARGETS)
def test_strict_keeps_them_whatever_the_caller_has_set(kind: str, threads: int) -> None:
    model = compile_graph(squares(), target_of(kind, threads).with_accuracy("strict"))
    with caller_with(FLUSH):
        got = [run_squares(model) for _ in range(20)]
    assert all((g.view(np.uint32) == (TINY * TINY).view(np.uint32)).all() for g in got)


@needs_words
@pytest.mark.parametrize("word", [KEEP, FLUSH, UPWARD])
@pytest.mark.parametrize(("kind", "threads"), TARGETS)
def test_the_caller_finds_its_control_word_again(kind: str, threads: int, word: int) -> None:
    model = compile_graph(squares(), target_of(kind, threads))
    with caller_with(word):
        run_squares(model)
        model.bench(1, feeds={"x": np.full(SQUARES, TINY)})
        assert control_word() == word
        with pytest.raises(FeedError):
            model.run({"x": np.zeros(3, np.float32)})
        assert control_word() == word


@needs_words
def test_other_threads_keep_theirs() -> None:
    model, words = compile_graph(squares(), host_target(2)), []

    def other() -> None:
        with caller_with(UPWARD):
            run_squares(model)
            words.append(control_word())

    with caller_with(KEEP):
        thread = threading.Thread(target=other)
        thread.start()
        run_squares(model)
        thread.join()
        words.append(control_word())
    assert words == [UPWARD, KEEP]


@needs_words
def test_the_callers_rounding_changes_no_result() -> None:
    model = compile_graph(squares(), host_target())
    x = np.random.default_rng(0).standard_normal(SQUARES).astype(np.float32)
    with caller_with(UPWARD):
        got = model.run({"x": x})["y"]
    np.testing.assert_array_equal(got, x * x)


# ------------------------------------------------------------------------------------------- time

LARGEST_RATIO, ROUNDS = 1.2, 400


def convolutions(weight: np.float32) -> Graph:
    """Three in a row, the second with weights of this size."""
    rng, builder = np.random.default_rng(0), GraphBuilder("convolutions")
    x = builder.input("x", TensorType(dtype="float32", shape=(1, 28, 28, 32)))
    for scale in (np.float32(0.05), weight, np.float32(0.05)):
        weights = rng.standard_normal((3, 3, 32, 32)).astype(np.float32) * scale
        x = builder.op("conv2d", x, builder.constant(weights), pads=(1, 1, 1, 1))
    return builder.finish([("y", x)])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("given", [1.0, float(DENORMAL)], ids=["weights", "activations"])
def test_denormal_numbers_cost_no_time(threads: int, given: float) -> None:
    """Fastest runs of both, in turns until they are as close as they should be."""
    target = host_target(threads)
    slow = DENORMAL if given == 1.0 else np.float32(0.05)
    models = [compile_graph(convolutions(w), target) for w in (np.float32(0.05), slow)]
    x = np.random.default_rng(1).standard_normal((1, 28, 28, 32)).astype(np.float32)
    feeds = [{"x": x}, {"x": x * np.float32(given)}]
    best = [float("inf")] * 2
    for number in range(ROUNDS):
        for i, (model, feed) in enumerate(zip(models, feeds, strict=True)):
            start = time.perf_counter()
            model.run(feed)
            best[i] = min(best[i], time.perf_counter() - start)
        if number > 5 and best[1] <= LARGEST_RATIO * best[0]:
            return
    raise AssertionError(f"{best[1] * 1e6:.0f} us with denormal numbers, {best[0] * 1e6:.0f} else")
