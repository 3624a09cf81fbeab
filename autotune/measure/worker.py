"""The worker process: builds, checks and times candidates for its parent, and may crash doing so.

In: frames on stdin, {"command": ping|build|emit|prepare|run|profile|facts|model, ...}. Out: one
frame per command on the original stdout; whatever a candidate prints goes to stderr. Ends when its
stdin closes or its parent is gone, in the middle of a hanging kernel too.

Started by autotune.measure.confined, with [--executor package.module:Class].
"""

from __future__ import annotations

import argparse
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from autotune.errors import AutotuneError, BuildError, ScheduleError
from autotune.measure.executor import DEFAULT_EXECUTOR, Built, Executor, ModelRunner, load_executor
from autotune.measure.frames import Frame, encode_frame, read_frame
from autotune.measure.sandbox import Report, allow_cpu, end_children
from autotune.measure.types import MeasureRequest, MeasureResult, Status
from autotune.target import Target


def main(arguments: list[str] | None = None, sandbox: Report | None = None) -> None:
    """`sandbox`: what holds of this process's bounds, for `ping`."""
    parser = argparse.ArgumentParser(prog="autotune.measure.worker")
    parser.add_argument("--executor", default=DEFAULT_EXECUTOR)
    options = parser.parse_args(arguments)
    requests, replies = _claim_pipes()
    threading.Thread(target=_exit_with_parent, args=(requests,), daemon=True).start()
    executor = load_executor(options.executor)
    while True:
        try:
            header, blob = read_frame(lambda count: _read_exactly(requests, count))
        except EOFError:
            return
        if "limit_s" in header:
            allow_cpu(float(header["limit_s"]))
        reply, code = handle(executor, header, blob, time.perf_counter)
        if header.get("command") == "ping":
            reply["sandbox"] = sandbox or {}
        _write_all(replies, encode_frame(reply, code))


def handle(
    executor: Executor, header: dict[str, Any], blob: bytes, clock: Callable[[], float]
) -> Frame:
    """One command to one reply; an error of the work itself is part of the reply."""
    command = header.get("command")
    if command == "ping":
        return {"pid": os.getpid()}, b""
    if command == "build":
        return _build(executor, MeasureRequest.from_json(header["request"]), clock)
    if command == "prepare":
        return _prepare(executor, MeasureRequest.from_json(header["request"]))
    if command == "run":
        built = Built.from_header(header["built"], blob)
        request = MeasureRequest.from_json(header["request"])
        result = _run(executor, request, built, clock)
        if ended := end_children():
            result = MeasureResult(
                status=Status.RUN_CRASH,
                error=f"run: {ended} processes were left running",
                build_s=built.build_s,
                run_s=result.run_s,
            )
        return {"result": result.to_json()}, b""
    if command == "emit":
        return _emit(header, blob)
    if command == "profile":
        return _profile(executor, Target.from_json(header["target"]))
    if command == "facts":
        return _facts(executor, Target.from_json(header["target"]))
    if command == "model" and isinstance(executor, ModelRunner):
        return _model(executor, header, blob)
    return {"error": f"unknown command {command!r}"}, b""


def _build(executor: Executor, request: MeasureRequest, clock: Callable[[], float]) -> Frame:
    start = clock()
    try:
        built = executor.build(request)
    except Exception as error:  # the process boundary: any failure is the candidate's
        failed = MeasureResult(
            status=Status.BUILD_ERROR, error=one_line(error), build_s=clock() - start
        )
        defect = not isinstance(error, ScheduleError | BuildError)
        return {"result": failed.to_json(), "defect": defect}, b""
    return {"built": {**built.header(), "build_s": clock() - start}}, built.code


def _prepare(executor: Executor, request: MeasureRequest) -> Frame:
    try:
        executor.prepare(request)
    except Exception as error:  # the process boundary: the run that follows fails the same way
        return {"error": one_line(error)}, b""
    return {}, b""


def _run(
    executor: Executor, request: MeasureRequest, built: Built, clock: Callable[[], float]
) -> MeasureResult:
    start = clock()
    try:
        return executor.check_and_time(request, built)
    except Exception as error:  # the process boundary: any failure is the candidate's
        return MeasureResult(
            status=Status.RUN_CRASH,
            error=one_line(error),
            build_s=built.build_s,
            run_s=clock() - start,
        )


def _emit(header: dict[str, Any], blob: bytes) -> Frame:
    from autotune.measure.emission import emit_reply  # a board without LLVM does without

    try:
        return emit_reply(header, blob)
    except Exception as error:  # the process boundary: the parent builds another kernel
        return {"error": one_line(error)}, b""


def _profile(executor: Executor, target: Target) -> Frame:
    try:
        return {"profile": executor.profile(target).to_json()}, b""
    except Exception as error:  # the process boundary: the parent raises DeviceError
        return {"error": one_line(error)}, b""


def _facts(executor: Executor, target: Target) -> Frame:
    try:
        found = executor.facts(target)
        return {"facts": None if found is None else found.to_json()}, b""
    except Exception as error:  # the process boundary: the parent raises DeviceError
        return {"error": one_line(error)}, b""


def _model(executor: ModelRunner, header: dict[str, Any], blob: bytes) -> Frame:
    try:
        return executor.run_model(header, blob)
    except Exception as error:  # the process boundary: any failure is the model's
        return {"error": one_line(error)}, b""


def one_line(error: BaseException, limit: int = 400) -> str:
    """An error as one line of at most `limit` characters; unexpected kinds are named."""
    text = " ".join(str(error).split())
    text = text if isinstance(error, AutotuneError) and text else f"{type(error).__name__}: {text}"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _claim_pipes() -> tuple[int, int]:
    """Private descriptors for the protocol; 0 reads nothing and 1 goes where 2 goes."""
    requests, replies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return requests, replies


def _exit_with_parent(requests: int) -> None:
    """Wait until the parent's end of the pipe closes (it died or dropped us), then leave at once.

    A parent-death signal does this too, where the system has it, and where the parent died."""
    poll = select.poll()
    poll.register(requests, 0)
    while not any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll()):
        continue
    os._exit(0)


def _read_exactly(descriptor: int, count: int) -> bytes:
    parts = []
    while count:
        part = os.read(descriptor, min(count, 1 << 20))
        if not part:
            raise EOFError("the parent closed the pipe")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
