"""The runner of a farm: one batch, spread over all the boards of a key that are leased.

In: 'tracker://HOST:PORT/KEY'. Out: a Runner. Every leased board has a thread here that takes
requests from the batch, measures them and hands in the results; what a lost board had not
measured goes back and is measured by another one, so that every request gets exactly one result.
"""

from __future__ import annotations

import math
import queue
import random
import threading
import time
from collections import deque
from collections.abc import Callable

from autotune.errors import DeviceError
from autotune.machine.profile import DeviceProfile
from autotune.measure.types import MeasureRequest, MeasureResult, OnResult, Status
from rpc_server.board.lease_guard import LEASE_OVER
from rpc_server.client.board_runner import BoardFaultError, BoardLostError, RpcRunner
from rpc_server.client.farm_batch import Batch, FarmAddress, Helper, profile_of
from rpc_server.client.leases import LeaseSession, LeaseTerms, News, ask_key
from rpc_server.client.options import FarmOptions
from rpc_server.security.tls import Credentials
from rpc_server.tracker.link import Backoff, TrackerLink
from rpc_server.tracker.types import FarmError
from rpc_server.wire.farm import Grant

MAX_LOSSES = 3
"""Boards that may be lost over one request before it is given up."""
CHUNK = 8
"""Requests sent to a board at a time, where others work beside it."""
ALONE_CHUNK = 64
"""Requests that a board takes at a time, with and without others beside it."""
GLANCE_S = 0.25
"""Seconds between two looks at the boards while no result comes."""
REFUSED_S = 1.0
"""For a board that takes the batch to be granted, while those that are there refuse it."""


class FarmRunner:
    """Runner over the boards of a farm. `in_order`: call on_result in the requests' order, rather
    than as results come. Raises DeviceError where there is no tracker or no board of the key."""

    def __init__(
        self,
        device: str,
        *,
        threads: int | None = None,
        farm: FarmOptions | None = None,
        credentials: Credentials | None = None,
        in_order: bool = False,
        clock: Callable[[], float] = time.monotonic,
        generator: random.Random | None = None,
    ) -> None:
        address = FarmAddress.parse(device)
        self._device, self._address = device, address
        farm = farm or FarmOptions()
        self._boards, self._deadlines = farm.boards, farm.deadlines
        self._credentials = credentials
        self._in_order = in_order
        self._clock = clock
        self._changed = threading.Condition()
        self._helpers: dict[int, Helper] = {}
        self._threads: list[threading.Thread] = []
        self._batch: Batch | None = None
        self._closed = False
        links = [TrackerLink(address.host, address.port, credentials) for _ in range(2)]
        try:
            self._profile = profile_of(ask_key(links[1], address.key), device, threads)
        except BaseException:
            links[1].close()
            raise
        self._session = LeaseSession(
            links[0],
            links[1],
            News(granted=self._granted, recalled=self._recalled, lost=self._lost),
            LeaseTerms(address.key, farm.priority, farm.deadlines.queue_s),
            backoff=Backoff(0.1, 2.0, generator or random.Random()),
            clock=clock,
        )

    def __enter__(self) -> FarmRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def profile(self) -> DeviceProfile:
        return self._profile

    # ---------------------------------------------------------------------- the caller's thread

    def measure(
        self, requests: tuple[MeasureRequest, ...], on_result: OnResult | None = None
    ) -> tuple[MeasureResult, ...]:
        """One result per request, in order; see Runner."""
        if not requests:
            return ()
        batch = Batch(requests=requests, todo=deque(range(len(requests))), left=len(requests))
        with self._changed:
            self._batch = batch
            self._changed.notify_all()
        results: dict[int, MeasureResult] = {}
        try:
            self._session.want(min(self._boards, len(requests)))
            self._collect(batch, results, on_result or (lambda *_: None))
        finally:
            with self._changed:
                batch.over, self._batch = True, None
                self._changed.notify_all()
        return tuple(results[n] for n in range(len(requests)))

    def _collect(
        self, batch: Batch, results: dict[int, MeasureResult], on_result: OnResult
    ) -> None:
        reported = 0
        idle_since_s = refused_since_s = self._clock()
        while len(results) < len(batch.requests):
            try:
                number, result = batch.done.get(timeout=GLANCE_S)
            except queue.Empty:
                now_s = self._clock()
                working, refused = self._helpers_status(batch)
                if working:
                    idle_since_s = now_s
                if not refused:
                    refused_since_s = now_s
                error = ""
                if now_s - refused_since_s > REFUSED_S:
                    error = batch.refused()
                elif not working:
                    error = self._overdue(now_s - idle_since_s)
                if error and not results:
                    raise FarmError(error) from None
                if error:
                    self._give_up(batch, results, error)
                continue
            idle_since_s = self._clock()
            results[number] = result
            if not self._in_order:
                on_result(number, result)
                continue
            while reported in results:
                on_result(reported, results[reported])
                reported += 1

    def _helpers_status(self, batch: Batch) -> tuple[bool, bool]:
        """Whether a board is at work, and whether those that are there refuse the batch."""
        with self._changed:
            helpers = list(self._helpers.values())
            willing = [h for h in helpers if h.grant.board not in batch.refusals]
            refused = (bool(helpers) and not willing) or len(batch.refusals) >= MAX_LOSSES
            return any(h.runner is not None for h in willing), refused

    def _give_up(self, batch: Batch, results: dict[int, MeasureResult], error: str) -> None:
        """What has no result yet is lost."""
        with self._changed:
            batch.over = True
            batch.todo.clear()
        lost = MeasureResult(status=Status.DEVICE_LOST, error=error, device=self._profile.device)
        while not batch.done.empty():
            number, result = batch.done.get()
            results[number] = result
        for number in range(len(batch.requests)):
            results.setdefault(number, lost)

    def _overdue(self, idle_s: float) -> str:
        """Which deadline has passed while no board is at work, '' for none."""
        limits, where = self._deadlines, f"{self._address.host}:{self._address.port}"
        if self._session.refused:
            return (
                f"session: the tracker {where} does not serve this client: {self._session.refused}"
            )
        if self._session.silent_s > limits.session_s:
            return (
                f"session: the tracker {where} has not answered for {limits.session_s:g} s "
                f"({self._session.trouble}); start it again, its queue is on its disk"
            )
        if idle_s <= limits.queue_s:
            return ""
        why = self._session.trouble or "all are leased, drained, quarantined or offline"
        return (
            f"queue: no board of key {self._address.key} within {limits.queue_s:g} s ({why}); see "
            f"`rpc_server status --tracker {where}`, wait, or ask with a higher --priority"
        )

    # ---------------------------------------------------------------------- the session's thread

    def _granted(self, grant: Grant) -> None:
        helper = Helper(grant=grant)
        with self._changed:
            if self._closed:
                return
            self._helpers[grant.fence] = helper
            self._threads = [t for t in self._threads if t.is_alive()]
            thread = threading.Thread(target=self._work, args=(helper,), daemon=True)
            self._threads.append(thread)
            thread.start()  # under the lock: `close` joins what runs

    def _recalled(self, fence: int) -> None:
        with self._changed:
            if fence in self._helpers:
                self._helpers[fence].recalled = True
                self._changed.notify_all()

    def _lost(self, fence: int, reason: str) -> None:
        """The board's thread may be waiting for its answer: that wait ends now."""
        with self._changed:
            helper = self._helpers.get(fence)
            if helper is None:
                return
            helper.lost = f"lease: {reason}"
            runner = helper.runner
            self._changed.notify_all()
        if runner is not None:
            runner.give_up()

    # ---------------------------------------------------------------------- a board's thread

    def _work(self, helper: Helper) -> None:
        """Measure for as long as the lease lasts. Whatever comes of the board's answers, its lease
        is given back, and what it had not measured."""
        fault = ""
        try:
            with self._connect(helper) as runner:
                while not fault and (taken := self._take(helper)) is not None:
                    fault = self._measure(helper, runner, *taken)
        except DeviceError as error:
            fault = "" if LEASE_OVER in str(error) else f"connect: {error}"
        except Exception as error:  # the end of a thread: nobody else would hear of it
            fault = f"run: {type(error).__name__}: {error}"
        finally:
            with self._changed:
                del self._helpers[helper.grant.fence]
                self._changed.notify_all()
            self._session.release(
                helper.grant.fence, helper.results, fault, unsound=helper.unsound
            )

    def _connect(self, helper: Helper) -> RpcRunner:
        runner = RpcRunner(
            f"rpc://{helper.grant.address}",
            threads=self._profile.target.threads,
            deadlines=self._deadlines,
            credentials=self._credentials,
            ticket=helper.grant.ticket,
        )
        with self._changed:
            helper.runner = runner
        return runner

    def _take(self, helper: Helper) -> tuple[Batch, list[int]] | None:
        """The next requests for this board; None when it is to be given back."""
        with self._changed:
            while not (self._closed or helper.recalled or helper.lost):
                batch = self._batch
                willing = batch is not None and helper.grant.board not in batch.refusals
                if batch is not None and willing and batch.todo:
                    beside = max(1, min(self._boards, len(batch.requests)))
                    most = CHUNK if beside > 1 else ALONE_CHUNK
                    size = min(most, math.ceil(len(batch.todo) / (2 * beside - 1)))
                    return batch, [batch.todo.popleft() for _ in range(size)]
                self._changed.wait()
        return None

    def _measure(self, helper: Helper, runner: RpcRunner, batch: Batch, numbers: list[int]) -> str:
        """Measure these and hand in the results; the board's fault if it was lost, or ''."""
        done = 0

        def report(_: int, result: MeasureResult) -> None:
            nonlocal done
            if result.status is Status.DEVICE_LOST:
                raise BoardLostError(result.error)
            self._hand_in(helper, batch, numbers[done], result)
            done += 1

        try:
            results = runner.measure(tuple(batch.requests[n] for n in numbers), report)
            for result in results[done:]:
                report(0, result)
        except BoardLostError as error:
            helper.unsound = isinstance(error, BoardFaultError) and error.unsound
            self._take_back(helper, batch, numbers[done:], str(error))
            return "" if helper.lost else f"run: {error}"
        except DeviceError as error:
            self._take_back(helper, batch, numbers[done:], "", blame=False)
            with self._changed:
                if LEASE_OVER in str(error):
                    helper.lost = helper.lost or f"lease: {error}"
                elif not helper.lost:
                    batch.refusals[helper.grant.board] = str(error)
                    helper.recalled = True  # another board may take them
        except BaseException as error:
            self._take_back(helper, batch, numbers[done:], f"{type(error).__name__}: {error}")
            raise
        return ""

    def _hand_in(self, helper: Helper, batch: Batch, number: int, result: MeasureResult) -> None:
        with self._changed:
            helper.results += 1
            if not batch.over:
                batch.done.put((number, result))

    def _take_back(
        self, helper: Helper, batch: Batch, numbers: list[int], error: str, *, blame: bool = True
    ) -> None:
        """What a board did not measure is for the next one. The first of them was at work when the
        board was lost: if that goes on happening, it is the request's doing."""
        if not numbers:
            return
        with self._changed:
            first = numbers[0]
            if blame:
                batch.losses[first] = batch.losses.get(first, 0) + 1
            if batch.losses.get(first, 0) >= MAX_LOSSES:
                numbers = numbers[1:]
                why = (
                    f"run: {MAX_LOSSES} boards were lost while measuring this, the last one "
                    f"{helper.grant.board} ({helper.lost or error}); look at the candidate, and "
                    "at the boards with `rpc_server status`"
                )
                lost = MeasureResult(
                    status=Status.DEVICE_LOST, error=why, device=self._profile.device
                )
                batch.done.put((first, lost))
            batch.todo.extendleft(reversed(numbers))
            self._changed.notify_all()

    def close(self) -> None:
        """Give every board back, and ask for none in their place."""
        self._session.want(0)
        with self._changed:
            self._closed = True
            runners = [h.runner for h in self._helpers.values() if h.runner is not None]
            self._changed.notify_all()
        for runner in runners:
            runner.give_up()
        for thread in self._threads:
            thread.join(timeout=5.0)
        self._session.close()
