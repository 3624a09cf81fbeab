"""Code of kernels that are written as LLVM IR. In: kernels without code, a list of a task's at a
time. Out: the same with code, made by a process beside this one where that pays.

LLVM takes a third of the time that compiling for open sizes does, and has nothing that writing the
next kernels needs. It is another process, not a thread: each call into LLVM would wait for the
interpreter's lock twice.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from autotune.codegen.llvm.backend import compile_text
from autotune.compiler.open_lines import BuiltKernel
from autotune.errors import BuildError
from autotune.measure.devices.sandbox import sandbox_for
from autotune.measure.emission import emit_request, emitted_codes
from autotune.measure.process import WorkerDiedError, WorkerProcess, WorkerTimeoutError
from autotune.measure.sandbox import Sandbox
from autotune.target import Target

BESIDE_FROM = 8
"""Tasks from which on a process is worth starting, which takes half a second of another core."""
EMIT_TIMEOUT_S = 300.0
"""Seconds of making a task's code."""


class Emission:
    """Makes code, in the order of `begin`; the process is gone when the `with` block ends."""

    def __init__(self, target: Target, tasks: int) -> None:
        beside = target.kind == "cpu" and tasks >= BESIDE_FROM and (os.cpu_count() or 1) > 1
        bounds = sandbox_for(target, Sandbox())
        self._target = target
        self._worker = WorkerProcess(sandbox=bounds) if beside else None
        self._thread = ThreadPoolExecutor(1)

    def __enter__(self) -> Emission:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)
        if self._worker:
            self._worker.stop()

    def begin(self, kernels: Sequence[BuiltKernel]) -> Future[list[BuiltKernel]]:
        """The kernels with their code. The future raises BuildError where LLVM refuses one, or the
        process is lost."""
        if self._worker:
            return self._thread.submit(self._beside, self._worker, kernels)
        done: Future[list[BuiltKernel]] = Future()
        try:
            done.set_result(with_code(kernels, self._target))
        except BuildError as error:
            done.set_exception(error)
        return done

    def _beside(self, worker: WorkerProcess, kernels: Sequence[BuiltKernel]) -> list[BuiltKernel]:
        header, blob = emit_request([kernel.text for kernel in kernels], self._target)
        try:
            reply = worker.call(header, blob, timeout_s=EMIT_TIMEOUT_S)
        except (WorkerDiedError, WorkerTimeoutError) as error:
            raise BuildError(f"the compiler process: {error}") from None
        codes = emitted_codes(*reply)
        return [_coded(k, code) for k, code in zip(kernels, codes, strict=True)]


def with_code(kernels: Sequence[BuiltKernel], target: Target) -> list[BuiltKernel]:
    """The kernels with code that is made here. Raises BuildError."""
    return [
        _coded(kernel, compile_text(kernel.text, target)) if kernel.text else kernel
        for kernel in kernels
    ]


def _coded(kernel: BuiltKernel, code: bytes) -> BuiltKernel:
    return dataclasses.replace(kernel, code=code, text="") if kernel.text else kernel
