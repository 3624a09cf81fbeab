"""Candidates built on the host and shipped as object code, for boards too weak to compile.

In: a runner of a board, requests. Out: the same results, with the building done here. A board
takes object code only if it was started with --accept-objects and the peer's certificate allows
it; it still loads and runs it in a worker process, checks the result, and only then times it.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import os
import queue
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from autotune.machine.profile import DeviceProfile
from autotune.measure.builds import ExecutorBuilds, build_in
from autotune.measure.process import WorkerProcess
from autotune.measure.types import Built, MeasureRequest, MeasureResult, OnResult, Runner
from autotune.target import machine_of
from rpc_server.wire.checks import check_built

MAX_OBJECT_BYTES = 8 << 20
"""Bytes of object code of one kernel."""
MAX_WORKSPACE_BYTES = 4 << 30
"""Bytes of scratch that a kernel may ask for."""
MAX_PACKS = 64
"""Packed params of a kernel."""
CHUNK = 16
"""Candidates sent to a board at once: while the board measures these, the next are built."""
MAX_BUILDERS = 8
"""Candidates that are built at a time for a board, at most."""

_ELF = struct.Struct("<4sBB10xHH")
_RELOCATABLE = 1
"""Kind of an ELF file that is an object."""
_MACHINES = {"x86_64": (62, 2), "aarch64": (183, 2), "riscv64": (243, 2), "arm": (40, 1)}
"""e_machine and class (2: 64 bits) by the first word of a triple."""


def check_object(code: bytes, triple: str) -> None:
    """Raises ValueError for what is not a relocatable ELF object of the triple's machine."""
    if len(code) > MAX_OBJECT_BYTES:
        raise ValueError(f"an object holds at most {MAX_OBJECT_BYTES} bytes, got {len(code)}")
    machine = machine_of(triple)
    if machine not in _MACHINES:
        raise ValueError(f"objects are for {', '.join(_MACHINES)}; the target is {triple}")
    if len(code) < _ELF.size:
        raise ValueError("expected an ELF object, got too few bytes")
    magic, width, order, kind, number = _ELF.unpack_from(code)
    if magic != b"\x7fELF" or order != 1 or kind != _RELOCATABLE:
        raise ValueError("expected a little-endian relocatable ELF object")
    if (number, width) != _MACHINES[machine]:
        raise ValueError(f"expected an object for {machine}, got machine {number}")


def built_to_json(built: Built) -> dict[str, Any]:
    return {**built.header(), "code": base64.b64encode(built.code).decode("ascii")}


def built_from_json(data: Mapping[str, Any], triple: str) -> Built:
    """Raises ValueError and its like where the data is malformed or not for the triple."""
    try:
        code = base64.b64decode(data["code"], validate=True)
    except binascii.Error as error:
        raise ValueError(f"object code is not base64: {error}") from None
    check_object(code, triple)
    if len(data["packs"]) > MAX_PACKS:
        raise ValueError(f"at most {MAX_PACKS} packed constants, got {len(data['packs'])}")
    built = check_built(Built.from_header(data, code))
    if not 0 <= built.workspace_bytes <= MAX_WORKSPACE_BYTES:
        raise ValueError(f"workspace_bytes up to {MAX_WORKSPACE_BYTES}, got it outside")
    return built


class HostBuilds:
    """A Runner that builds here, for the target of the requests, and measures with another one.

    Builds run in worker processes: a compiler that crashes costs one candidate. `builds`: those of
    an executor instead. `boards`: how many measure at a time."""

    def __init__(
        self,
        runner: Runner,
        *,
        builders: int = 0,
        worker: Callable[[], WorkerProcess] = WorkerProcess,
        builds: ExecutorBuilds | None = None,
        boards: int = 1,
    ) -> None:
        count = builders or min(MAX_BUILDERS, os.cpu_count() or 1)
        if builds is not None:
            count = CHUNK * boards  # they only wait
        self._runner = runner
        self._chunk = CHUNK * boards
        self._builds = builds
        self._workers = [] if builds is not None else [worker() for _ in range(count)]
        self._idle: queue.SimpleQueue[WorkerProcess] = queue.SimpleQueue()
        for process in self._workers:
            self._idle.put(process)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="host-build")

    def __enter__(self) -> HostBuilds:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def profile(self) -> DeviceProfile:
        return self._runner.profile()

    def measure(
        self, requests: tuple[MeasureRequest, ...], on_result: OnResult | None = None
    ) -> tuple[MeasureResult, ...]:
        """One result per request, in order; see Runner."""
        results: list[MeasureResult] = []

        def add(result: MeasureResult) -> None:
            results.append(result)
            if on_result is not None:
                on_result(len(results) - 1, result)

        step = self._chunk
        chunks = [requests[n : n + step] for n in range(0, len(requests), step)]
        for outcomes in self._ahead(chunks):
            self._measure_built([o.result() for o in outcomes], add)
        return tuple(results)

    def _ahead(
        self, chunks: Sequence[tuple[MeasureRequest, ...]]
    ) -> Iterator[list[Future[MeasureRequest | MeasureResult]]]:
        """The builds of each chunk, those of the next one under way."""
        pending: list[list[Future[MeasureRequest | MeasureResult]]] = []
        try:
            for chunk in chunks:
                pending.append([self._threads.submit(self._build, r) for r in chunk])
                if len(pending) == 2:
                    yield pending.pop(0)
            yield from (pending.pop(0) for _ in range(len(pending)))
        finally:
            for future in (f for outcomes in pending for f in outcomes):
                future.cancel()

    def _measure_built(
        self,
        outcomes: Sequence[MeasureRequest | MeasureResult],
        add: Callable[[MeasureResult], None],
    ) -> None:
        """Measure what was built, and report in order what was not."""
        places = [n for n, o in enumerate(outcomes) if isinstance(o, MeasureRequest)]
        done = 0

        def failures(until: int) -> None:
            nonlocal done
            for outcome in outcomes[done:until]:
                if isinstance(outcome, MeasureResult):
                    add(dataclasses.replace(outcome, device=self.profile().device))
            done = until

        def report(number: int, result: MeasureResult) -> None:
            nonlocal done
            failures(places[number])
            add(result)
            done = places[number] + 1

        ready = tuple(o for o in outcomes if isinstance(o, MeasureRequest))
        if ready:
            self._runner.measure(ready, report)
        failures(len(outcomes))

    def _build(self, request: MeasureRequest) -> MeasureRequest | MeasureResult:
        if self._builds is not None:
            built = self._builds.wait(self._builds.submit(request))
        else:
            worker = self._idle.get()
            limit_s = request.timing.build_timeout_s
            try:
                built = build_in(worker, request.to_json(), limit_s, "build on the host")
            finally:
                self._idle.put(worker)
        if isinstance(built, MeasureResult):
            return built
        return dataclasses.replace(request, built=built)

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in self._workers:
            worker.stop()
        self._runner.close()
