"""Whole models on a board, from the client's side. In: a runner of a board, a model's file, its
inputs. Out: its outputs, and what the run took.

Files are sent once: the board knows them by their digests, and goes on where a lost link ended.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from autotune.errors import DeviceError
from autotune.printable import printable
from rpc_server.client.board_runner import MAX_SENDS, BoardLostError, RpcRunner
from rpc_server.wire import messages
from rpc_server.wire import models as wire
from rpc_server.wire.link import LinkLostError
from rpc_server.wire.models import FilePart, ModelOutcome, ModelRequest

WAIT_S = 5.0
"""Seconds that a board may hold an answer back until a run ended."""
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRun:
    """A model's run on a board. `outputs`: dense, in the model's order."""

    device: str
    outcome: ModelOutcome
    outputs: tuple[bytes, ...] = field(repr=False)
    sent_bytes: int = 0
    """What the board did not have yet."""


class ModelClient:
    """Runs models on the board of a runner, which stays the caller's."""

    def __init__(self, runner: RpcRunner) -> None:
        self._runner = runner
        self._sent = 0

    def run(self, model: bytes, inputs: Sequence[bytes], repeats: int) -> ModelRun:
        """Raises DeviceError: the board refuses, the model fails there, or the board is lost."""
        self._sent = 0
        files = [model, *inputs]
        if (total := sum(map(len, files))) > wire.MAX_FILE_BYTES:
            raise DeviceError(
                f"a model and its inputs may have {wire.MAX_FILE_BYTES} bytes on a board, these "
                f"have {total}; copy it there, and run it there"
            )
        digests = [hashlib.sha256(data).hexdigest() for data in files]
        request = ModelRequest(model=digests[0], inputs=tuple(digests[1:]), repeats=repeats)

        def whole() -> ModelOutcome:
            for digest, data in zip(digests, files, strict=True):
                self._send(digest, data)
            return self._outcome(request)

        outcome = self._again(whole)
        outputs = tuple(self._again(lambda o=o: self._fetch(*o)) for o in outcome.outputs)  # type: ignore[misc]
        return ModelRun(
            device=self._runner.profile().device,
            outcome=outcome,
            outputs=outputs,
            sent_bytes=self._sent,
        )

    def _again(self, action: Callable[[], Answer]) -> Answer:
        """The action's result, begun again where the link was lost in the middle."""
        for _ in range(MAX_SENDS):
            try:
                return action()
            except LinkLostError as error:
                lost = error
                if not self._runner.came_back():
                    break
        raise BoardLostError(f"the board is lost: {lost}; start it again, then run this again")

    def _send(self, digest: str, data: bytes) -> None:
        held = self._offer(digest, data, 0, 0)  # asks what is there
        while held < len(data):
            at = held
            held = self._offer(digest, data, at, wire.PART_BYTES)
            self._sent += max(0, held - at)
            if held <= at:
                raise DeviceError(f"the board does not take a file of {len(data)} bytes")

    def _offer(self, digest: str, data: bytes, at: int, count: int) -> int:
        """Send so many bytes from there on; how many the board has then."""
        part = FilePart(digest=digest, size=len(data), at=at, data=data[at : at + count])
        return wire.decode_held(self._runner.ask("upload", wire.encode_part(part)))

    def _outcome(self, request: ModelRequest) -> ModelOutcome:
        job = messages.decode_job(self._runner.ask("run", wire.encode_run(request)))
        ask = messages.encode_collect(messages.Collect(job=job, first=0, wait_s=WAIT_S))
        while not (watched := wire.decode_outcome(self._runner.ask("watch", ask))).done:
            continue
        if watched.outcome is None:
            why = printable(watched.failed) or "the board dropped it"
            raise DeviceError(f"the model does not run on {self._runner.profile().device}: {why}")
        return watched.outcome

    def _fetch(self, digest: str, size: int) -> bytes:
        data = b""
        while len(data) < size:
            ask = wire.encode_part(FilePart(digest=digest, size=size, at=len(data)))
            part = wire.decode_part(self._runner.ask("fetch", ask))
            if not part.data or part.at != len(data):
                raise DeviceError("the board does not give the model's outputs")
            data += part.data
        if hashlib.sha256(data).hexdigest() != digest:
            raise DeviceError("the board gave other outputs than it said")
        return data
