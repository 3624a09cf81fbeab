"""The runner of a board: sends batches, collects results, and comes back when the board does.

In: 'rpc://HOST:PORT'. Out: a Runner. When the connection is lost in the middle of a batch it
reconnects with growing pauses and sends again what has no result yet, so that every request gets
exactly one result.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable

from autotune.errors import ConfigError, DeviceError
from autotune.machine.profile import DeviceProfile
from autotune.measure.runners.local import with_threads
from autotune.measure.types import MeasureRequest, MeasureResult, OnResult, Status
from rpc_server.board.server import parse_address
from rpc_server.client.options import Deadlines
from rpc_server.client.plausible import UnsoundError, check_times
from rpc_server.security.freshness import SealedConnection
from rpc_server.security.tls import Credentials
from rpc_server.wire import messages as wire
from rpc_server.wire.link import LINK_ERRORS, BytesConnection, LinkLostError, connect, why_lost
from rpc_server.wire.refusals import LinkRefusedError, lost
from rpc_server.wire.versions import compiler

CONNECT_TIMEOUT_S = 3.0
"""Seconds until a board accepts a link."""
CALL_TIMEOUT_S = 30.0
"""Seconds until it answers a call."""
COLLECT_WAIT_S = 5.0
"""Seconds that it may hold an answer back until there are results."""
FIRST_PAUSE_S = 0.1
"""Seconds between the first two tries to reach it; each is twice the one before."""
LONGEST_PAUSE_S = 2.0
"""Seconds between two tries, at most."""
MAX_SENDS = 4
"""Times that a request is sent to boards which are lost while they measure it."""
MAX_UNSOUND = 3
"""Results that no machine can give, until a board without a tracker is not asked any more."""
QUIET_S = 120.0
QUIET_REQUESTS = 4
"""A board has this long for its next result: QUIET_S for starting a worker, measuring its peaks
again and waiting for a cooler device, and so many times a request's own deadlines."""
BEHIND_S = 3600.0
"""A board without a tracker measures the batches of others first."""


ALONE = Deadlines(reconnect_s=60.0, transfer_s=CALL_TIMEOUT_S)
"""How long a client waits for a board beside which no other could take its requests."""


class BoardLostError(DeviceError):
    """A board that was there does not answer any more."""


class BoardFaultError(BoardLostError):
    """A board answers with what no board that works does. `unsound`: results that no machine can
    give."""

    def __init__(self, message: str, *, unsound: bool = False) -> None:
        super().__init__(message)
        self.unsound = unsound


class RpcRunner:
    """Runner over a board. `deadlines`: how long a lost one is waited for before its requests are
    given up as DEVICE_LOST, and for a message. `ticket`: of a lease, for a board of a farm.
    Raises DeviceError where nothing answers at the address."""

    def __init__(
        self,
        device: str,
        *,
        threads: int | None = None,
        deadlines: Deadlines = ALONE,
        credentials: Credentials | None = None,
        ticket: str = "",
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._device = device
        try:
            self._host, self._port = parse_address(device.removeprefix("rpc://"))
        except ConfigError as error:
            raise DeviceError(f"device {device}: {error}") from None
        self._deadlines = deadlines
        self._credentials = credentials
        self._ticket = ticket
        self._given_up = self._answered = False
        self._unsound = 0
        self._sleep = sleep
        self._clock = clock
        self._connection: BytesConnection | SealedConnection | None = None
        try:
            hello = self._greet()
        except LinkRefusedError as error:
            raise DeviceError(f"cannot use {device}: {error}") from None
        except LinkLostError as error:
            raise DeviceError(f"cannot reach {device}: {error}; {self._advice()}") from None
        except DeviceError:
            self.close()
            raise
        self._profile = hello.profile
        self._compiler = "" if hello.compiler in ("", compiler()) else hello.compiler
        if threads is not None:
            self._profile = with_threads(hello.profile, threads)

    def __enter__(self) -> RpcRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def profile(self) -> DeviceProfile:
        return self._profile

    def measure(
        self, requests: tuple[MeasureRequest, ...], on_result: OnResult | None = None
    ) -> tuple[MeasureResult, ...]:
        """One result per request, in order; see Runner."""
        results: list[MeasureResult] = []
        sends: dict[int, int] = {}
        while len(results) < len(requests):
            first = len(results)
            sends[first] = sends.get(first, 0) + 1
            if sends[first] > MAX_SENDS:
                lost = f"the board was lost {MAX_SENDS} times while measuring this"
                self._add(results, self._lost(lost), on_result)
                continue
            try:
                self._measure_once(requests[first : first + wire.MAX_REQUESTS], results, on_result)
            except UnsoundError as error:
                self._doubt(error)
            except LinkLostError as error:
                if not self._reconnect():
                    if not results:
                        raise BoardLostError(
                            f"{self._device} is lost ({error}) and did not come back within "
                            f"{self._deadlines.reconnect_s:g} s; start it again, then continue "
                            "with the same command"
                        ) from None
                    while len(results) < len(requests):
                        self._add(results, self._lost(f"the board is lost: {error}"), on_result)
        return tuple(results)

    def _measure_once(
        self,
        requests: tuple[MeasureRequest, ...],
        results: list[MeasureResult],
        on_result: OnResult | None,
    ) -> None:
        """Submit and collect one batch, adding to `results`. Raises LinkLostError."""
        start = len(results)
        job = self._submit(requests)
        deadline_s = self._clock() + _quiet_s(requests) + (0.0 if self._ticket else BEHIND_S)
        try:
            while (done := len(results) - start) < len(requests):
                ask = wire.Collect(job=job, first=done, wait_s=COLLECT_WAIT_S)
                progress = self._collect(ask)
                for request, result in zip(requests[done:], progress.results, strict=False):
                    check_times(request, result)
                    self._add(results, self._marked(result), on_result)
                if progress.results:
                    deadline_s = self._clock() + _quiet_s(requests)
                elif not progress.done and self._clock() > deadline_s:
                    raise BoardFaultError(
                        f"{self._device} gave no result for {_quiet_s(requests):g} s and says "
                        "that it is still at work"
                    )
                if progress.done and len(results) - start < len(requests):
                    raise LinkLostError(progress.failed or "the board dropped the batch")
        except BaseException:
            if self._connection is not None:
                with contextlib.suppress(LinkLostError):
                    self._call("cancel", wire.encode_job(job), timeout_s=1.0)
            raise

    def _submit(self, requests: tuple[MeasureRequest, ...]) -> str:
        """The batch's name. Raises DeviceError where the board refuses it."""
        payload = wire.encode_submit(requests)
        reply = self._call("submit", payload)
        try:
            return wire.decode_job(reply)
        except wire.WireError as error:
            raise BoardFaultError(str(error)) from None

    def ask(self, name: str, payload: bytes) -> bytes:
        """The board's answer to another message. Raises LinkLostError."""
        return self._call(name, payload)

    def came_back(self) -> bool:
        """Whether the board answers again, after it was lost, within the time it has for that."""
        return self._reconnect()

    def _doubt(self, error: UnsoundError) -> None:
        """Raises BoardFaultError where there were enough of these; a tracker counts itself."""
        self._unsound += 1
        if self._ticket or self._unsound >= MAX_UNSOUND:
            raise BoardFaultError(f"{self._device}: {error}", unsound=True) from None

    def _collect(self, ask: wire.Collect) -> wire.JobProgress:
        reply = self._call("collect", wire.encode_collect(ask))
        try:
            return wire.decode_progress(reply)
        except DeviceError as error:  # the board does not know the batch any more
            raise LinkLostError(str(error)) from None

    def _marked(self, result: MeasureResult) -> MeasureResult:
        """A board whose compiler is not ours is recorded as such."""
        if not self._compiler:
            return result
        return dataclasses.replace(result, device=f"{result.device} ({self._compiler})")

    @staticmethod
    def _add(
        results: list[MeasureResult], result: MeasureResult, on_result: OnResult | None
    ) -> None:
        results.append(result)
        if on_result is not None:
            on_result(len(results) - 1, result)

    def _advice(self) -> str:
        address = self._device.removeprefix("rpc://")
        if self._credentials is None:
            return f"start a board there with `rpc_server serve --listen {address}`"
        return (
            f"a board has to run there (`rpc_server serve --listen {address} --certs DIR`), and "
            "neither certificate may be of another farm, of the wrong role, expired or revoked"
        )

    def _lost(self, error: str) -> MeasureResult:
        return MeasureResult(status=Status.DEVICE_LOST, error=error, device=self._profile.device)

    def _greet(self) -> wire.Hello:
        return wire.decode_hello(self._call("hello", wire.encode_greeting(self._ticket)))

    def _reconnect(self) -> bool:
        """Try until the board answers or patience runs out."""
        until = self._clock() + self._deadlines.reconnect_s
        pause = FIRST_PAUSE_S
        while True:
            try:
                self._greet()
                return True
            except LinkRefusedError:
                return False
            except LinkLostError:
                pass  # it may come back
            if self._given_up or self._clock() + pause > until:
                return False
            self._sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _call(self, name: str, payload: bytes, timeout_s: float | None = None) -> bytes:
        timeout_s = self._deadlines.transfer_s if timeout_s is None else timeout_s
        try:
            if self._given_up:
                raise EOFError("it was given up")
            connection = self._connection
            if connection is None:
                connection = self._connect()
                timeout_s = min(timeout_s, CONNECT_TIMEOUT_S)
            reply = connection.call(name, payload, timeout_s)
            self._answered = True
            return reply
        except (*LINK_ERRORS, ConfigError) as error:
            self.close()
            reason = why_lost(error)
            if isinstance(error, TimeoutError):
                reason = f"transfer: no answer within {timeout_s:g} s"
            answered = self._answered or self._given_up or isinstance(error, ConnectionError)
            raise lost(reason, self._host, self._port, self._credentials, answered) from None

    def _connect(self) -> BytesConnection | SealedConnection:
        plain = connect(self._host, self._port, CONNECT_TIMEOUT_S, self._credentials)
        self._connection = plain
        self._check_wanted()
        if self._credentials is None:
            self._connection = SealedConnection(plain, CONNECT_TIMEOUT_S)
            self._check_wanted()
        return self._connection

    def _check_wanted(self) -> None:
        if self._given_up:
            raise EOFError("it was given up")

    def give_up(self) -> None:
        """From any thread: a batch in progress ends at once, the rest lost."""
        self._given_up = True
        self.close()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.drop()


def _quiet_s(requests: tuple[MeasureRequest, ...]) -> float:
    """How long a board that works may take for the next result of a batch."""
    longest_s = max(r.timing.build_timeout_s + r.timing.run_timeout_s for r in requests)
    return QUIET_S + QUIET_REQUESTS * longest_s
