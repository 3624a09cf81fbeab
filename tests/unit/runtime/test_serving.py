"""Runs of one model from several threads, and inputs and outputs in other packages' memory."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import pytest

import autotune
from autotune.codegen.loader import load
from autotune.errors import ClosedError, FeedError
from autotune.runtime import model as model_module
from autotune.runtime.model import CompiledModel
from autotune.runtime.native_session import NativeSession, SessionMaker
from autotune.runtime.pool import RUNS_PER_CORE, Pool, runs_at_once
from autotune.runtime.session import Session
from autotune.target import host_target
from autotune.types import Array
from tests.patience import PATIENCE_S
from tests.unit.runtime import fakes

X = np.arange(6, dtype=np.float32).reshape(2, 3)
Y = X * 3 + 1


class Gate(fakes.CallbackLibrary):
    """A model whose runs begin when `together` of them are inside."""

    def __init__(self, together: int) -> None:
        super().__init__()
        self.barrier = threading.Barrier(together)

    def _entry(self, bases: int) -> None:
        self.barrier.wait(PATIENCE_S)
        super()._entry(bases)


def idle() -> Session:
    return cast(Session, object())


def pool(limit: int) -> Pool:
    return Pool(idle, lambda: limit, "'idle'")


def at_once(monkeypatch: pytest.MonkeyPatch, runs: int) -> None:
    monkeypatch.setattr(model_module, "runs_at_once", lambda _: runs)


# ------------------------------------------------------------------------------------ side by side


def test_runs_go_on_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits inside its run for the other one."""
    at_once(monkeypatch, 2)
    model = CompiledModel(fakes.image(), Gate(together=2))
    with ThreadPoolExecutor(2) as threads:
        done = list(threads.map(lambda n: model.run({"x": X + n}), range(6)))
    for number, outputs in enumerate(done):
        np.testing.assert_array_equal(outputs["y"], (X + number) * 3 + 1)
        np.testing.assert_array_equal(outputs["t"], (X + number) * 3)
    assert len(model._pool) == 2


def test_runs_of_one_thread_need_one_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once(monkeypatch, 8)
    model = CompiledModel(fakes.image(), fakes.CallbackLibrary())
    assert len(model._pool) == 0
    for _ in range(3):
        model.run({"x": X})
    assert len(model._pool) == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_results_are_right_under_contention(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """More runs at a time than there are cores, in arenas and with teams of their own."""
    at_once(monkeypatch, 3)
    model = autotune.compile("zoo:tiny", threads=threads)
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.standard_normal((1, 3, 32, 32)).astype(np.float32)} for _ in range(5)]
    want = [model.run(feed) for feed in feeds]

    def work(number: int) -> None:
        for _ in range(20):
            ((name, got),) = model.run(feeds[number]).items()
            np.testing.assert_array_equal(got, want[number][name])

    with ThreadPoolExecutor(5) as workers:
        list(workers.map(work, range(5)))
    assert 1 <= len(model._pool) <= 3


def test_code_for_several_threads_is_loaded_for_each_session() -> None:
    image = autotune.compile("zoo:tiny", threads=2).image
    team = SessionMaker(image, load(image.objects, image.target))
    alone = SessionMaker(autotune.compile("zoo:tiny").image, None)
    for make, shared in ((team, False), (alone, True)):
        one, two = make(), make()
        assert isinstance(one, NativeSession)
        assert isinstance(two, NativeSession)
        assert (one._library is two._library) == shared


def test_a_core_for_each_thread_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    runs = [runs_at_once(host_target(threads)) for threads in (1, 2, 3, 8, 16)]
    assert runs == [8 * RUNS_PER_CORE, 4, 2, 1, 1]


# ---------------------------------------------------------------------------------------- the pool


def test_the_session_used_last_is_taken_first() -> None:
    slots = pool(2)
    one, two = slots.take(), slots.take()
    slots.give(one)
    slots.give(two)
    assert slots.take() is two


def test_a_run_beyond_the_limit_waits_for_its_turn() -> None:
    slots, order = pool(1), []
    held = slots.take()

    def work(number: int) -> None:
        slot = slots.take()
        order.append(number)
        slots.give(slot)

    threads = []
    for number in range(3):
        threads.append(threading.Thread(target=work, args=(number,)))
        threads[-1].start()
        while len(slots._queue) <= number:
            pass
    assert order == []
    slots.give(held)
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2]
    assert len(slots) == 1


def test_a_slot_that_an_exception_lost_is_made_again() -> None:
    slots = pool(1)
    slots.take()  # as where a signal's exception strikes before its run begins
    slots.give(slots.take())
    assert len(slots) == 1


def test_a_handler_may_run_the_model_that_its_thread_runs() -> None:
    slots = pool(1)
    outer = slots.take()
    inner = slots.take()
    assert inner is not outer
    slots.give(inner)
    slots.give(outer)


def test_runs_that_wait_when_the_model_is_closed_are_refused() -> None:
    slots = pool(1)
    held = slots.take()
    with ThreadPoolExecutor(3) as threads:
        waiting = [threads.submit(slots.take) for _ in range(2)]
        while len(slots._queue) < 2:
            pass
        closing = threads.submit(slots.close)
        for run in waiting:
            with pytest.raises(ClosedError, match=r"^the model 'idle' is closed"):
                run.result(PATIENCE_S)
        assert not closing.done()
        slots.give(held)
        closing.result(PATIENCE_S)


# ------------------------------------------------------------------------- other packages' memory


class Tensor:
    """What has DLPack and nothing else."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> object:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


class OnDevice(Tensor):
    def __dlpack__(self, **options: Any) -> object:
        raise BufferError("the tensor is on device cuda:0")


class Addresses(fakes.CallbackLibrary):
    """Notes where the input and the output lie."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, int]] = []

    def _entry(self, bases: int) -> None:
        table = ctypes.cast(bases, ctypes.POINTER(ctypes.c_void_p))
        self.seen.append((table[3] or 0, table[4] or 0))
        super()._entry(bases)


def _memory(array: Array) -> memoryview:
    return memoryview(bytearray(array.tobytes())).cast("B").cast("f", array.shape)


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


@pytest.mark.parametrize(
    "made",
    [lambda x: x, Tensor, _memory, _read_only, lambda x: _memory(x).toreadonly()],
    ids=["array", "DLPack", "buffer", "read-only array", "read-only buffer"],
)
def test_inputs_are_read_where_they_lie(made: Callable[[Array], Any]) -> None:
    library, given = Addresses(), made(X.copy())
    model = CompiledModel(fakes.image(), library)
    np.testing.assert_array_equal(model.run({"x": given})["y"], Y)
    array = np.from_dlpack(given) if isinstance(given, Tensor) else np.asarray(given)
    assert library.seen[-1][0] == array.__array_interface__["data"][0]


@pytest.mark.parametrize("made", [lambda x: x, Tensor, _memory], ids=["array", "DLPack", "buffer"])
def test_outputs_are_written_where_they_are_wanted(made: Callable[[Array], Any]) -> None:
    library, y = Addresses(), made(np.zeros((2, 3), np.float32))
    model = CompiledModel(fakes.image(), library)
    got = model.run({"x": X}, out={"y": y})
    assert got["y"] is y
    array = np.from_dlpack(y) if isinstance(y, Tensor) else np.asarray(y)
    np.testing.assert_array_equal(array, Y)
    np.testing.assert_array_equal(got["t"], X * 3)
    assert library.seen[-1][1] == array.__array_interface__["data"][0]


def test_memory_of_a_device_is_refused_in_one_line() -> None:
    model = CompiledModel(fakes.image(), fakes.CallbackLibrary())
    there = OnDevice(X)
    with pytest.raises(FeedError, match=r"^input x: .* \(the tensor is on device cuda:0\)$"):
        model.run({"x": there})  # type: ignore[dict-item]
    with pytest.raises(FeedError, match=r"^out: 'y' must be .* in this machine's memory, got"):
        model.run({"x": X}, out={"y": there})
    with pytest.raises(FeedError, match=r"^out: 'y' is read-only"):
        model.run({"x": X}, out={"y": _memory(X).toreadonly()})


def test_arrays_of_all_outputs_are_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    model = CompiledModel(fakes.image(), fakes.CallbackLibrary())
    monkeypatch.setattr(model_module, "wanted", functools.partial(pytest.fail, "the long way"))
    y, t = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)
    got = model.run({"x": X}, out={"t": t, "y": y})
    assert (got["y"] is y, got["t"] is t) == (True, True)
    np.testing.assert_array_equal(y, Y)
    np.testing.assert_array_equal(t, X * 3)
