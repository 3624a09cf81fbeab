"""Whole models on a board. In: files of models and inputs, requests to run them. Out: outputs,
times, and what the run took.

A model is object code: it is taken from clients that may send such, and runs in a worker process
of the same bounds as candidates, which ends with the run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autotune.errors import AutotuneError
from autotune.measure.process import WorkerDiedError, WorkerProcess, WorkerTimeoutError
from rpc_server.board.agent import temperature_c
from rpc_server.board.file_store import FileStore
from rpc_server.wire import models as wire
from rpc_server.wire.checks import WireError
from rpc_server.wire.models import MAX_FILE_BYTES, ModelOutcome, ModelRequest

EXECUTOR = "autotune.runtime.on_board:ModelExecutor"
"""Named, not imported: it is only for the worker."""
RUN_TIMEOUT_S = 600.0
"""Seconds of a model's run with its repeats."""
CLOCKS = Path("/sys/devices/system/cpu")


class ModelRunError(AutotuneError):
    """A model did not run on this board."""


class ModelDesk:
    """Runs one model at a time, on the board's own thread; files come from any."""

    def __init__(
        self,
        worker: Callable[[], WorkerProcess],
        store: FileStore | None = None,
        *,
        timeout_s: float = RUN_TIMEOUT_S,
    ) -> None:
        self._store = store or FileStore()
        self._worker = worker
        self._timeout_s = timeout_s
        self._running: WorkerProcess | None = None

    def upload(self, owner: str, payload: bytes) -> bytes:
        """The answer to a part: how many bytes of its file are here. Raises WireError."""
        return wire.encode_held(self._store.add(owner, wire.decode_part(payload)))

    def fetch(self, payload: bytes) -> bytes:
        """A part of a file. Raises WireError."""
        asked = wire.decode_part(payload)
        return wire.encode_part(self._store.part(asked.digest, asked.at))

    def checked(self, payload: bytes) -> ModelRequest:
        """A request whose files are here. Raises WireError."""
        request = wire.decode_run(payload)
        total = sum(self._store.size(one) for one in (request.model, *request.inputs))
        if total > MAX_FILE_BYTES:
            raise WireError(
                f"a model and its inputs may have {MAX_FILE_BYTES} bytes on a board, these have "
                f"{total}"
            )
        return request

    def run(self, request: ModelRequest) -> ModelOutcome:
        """Raises ModelRunError where the model does not run, and WireError where its files have
        made room for others."""
        files = [self._store.read(one) for one in (request.model, *request.inputs)]
        header = {
            "command": "model", "sizes": [len(f) for f in files], "repeats": request.repeats,
        }  # fmt: skip
        worker = self._running = self._worker()
        try:
            reply, blob = worker.call(header, b"".join(files), timeout_s=self._timeout_s)
        except WorkerTimeoutError:
            raise ModelRunError(f"the model took more than {self._timeout_s:g} s") from None
        except WorkerDiedError as error:
            raise ModelRunError(f"the process that ran the model {error}") from None
        finally:
            self._running = None
            worker.stop()
        if "error" in reply:
            raise ModelRunError(str(reply["error"]))
        try:
            return self._outcome(reply, blob)
        except (LookupError, TypeError, ValueError) as error:  # object code may write the reply
            raise ModelRunError(f"the model's process answered nonsense: {error}") from None

    def interrupt(self) -> None:
        """End a run in progress, from any thread."""
        worker = self._running
        if worker is not None:
            worker.kill()

    def _outcome(self, reply: dict[str, Any], blob: bytes) -> ModelOutcome:
        outputs, at = [], 0
        for size in reply["sizes"]:
            outputs.append((self._store.put(blob[at : at + size]), int(size)))
            at += size
        return ModelOutcome(
            times_s=tuple(map(float, reply["times_s"])),
            kernels_s=tuple(map(float, reply["kernels_s"])),
            outputs=tuple(outputs),
            peak_bytes=int(reply["peak_bytes"]),
            temperature_c=None if "clock_hz" in reply else temperature_c(),
            clock_hz=float(reply["clock_hz"]) if "clock_hz" in reply else clock_hz(),
        )


def clock_hz(root: Path = CLOCKS) -> float | None:
    """The fastest core's clock now; None where the system does not tell."""
    found = []
    for file in root.glob("cpu[0-9]*/cpufreq/scaling_cur_freq"):
        with contextlib.suppress(OSError, ValueError):
            found.append(int(file.read_text()) * 1e3)
    return max(found, default=None)
