"""A board: one device, its queue of batches, and the methods that clients may call.

In: bytes of `submit`, `collect`, `cancel` and `hello` messages. Out: bytes. One batch is measured
at a time, others wait in a bounded queue. A client's batches are dropped when its connection
closes or it stops collecting, so that a client that went away frees the board.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable

from autotune.errors import AutotuneError, DeviceError
from autotune.machine.profile import DeviceProfile
from autotune.measure.runners.local import check_target
from autotune.measure.types import MeasureRequest, MeasureResult, Status
from rpc_server.board.job import Abilities, Job, Measurer
from rpc_server.board.lease_guard import Gate
from rpc_server.board.model_desk import ModelDesk
from rpc_server.security.audit import AuditLog
from rpc_server.security.auth import Peer, Role, local_peer
from rpc_server.wire import messages as wire
from rpc_server.wire import models as model_wire
from rpc_server.wire.link import Admission

MAX_QUEUED, MAX_QUEUED_OWN = 16, 4
"""Batches that wait for the device or to be collected: of all clients, and of each; a tracker,
which queues itself, has no limit of its own."""
MAX_WAIT_S = 10.0
"""Seconds that an answer is held back until there are results."""
ABANDONED_S = 45.0
"""Seconds without a question from its client after which a job ends."""
NOBODY = local_peer("")


class BoardDevice:
    """Owns the device; `run` measures on the calling thread until `stop`. `gate`: on a board of a
    farm, who holds its lease. `desk`: what runs whole models, where the board does."""

    def __init__(
        self,
        device: Measurer,
        abilities: Abilities,
        *,
        audit: AuditLog | None = None,
        gate: Gate | None = None,
        desk: ModelDesk | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._desk = desk
        self._device = device
        self._profile = device.profile()
        self._abilities = abilities
        self._audit = audit or AuditLog(None)
        self._gate = gate
        self._counts = {"trials": 0, "failed": 0}
        self._last_error = ""
        self._remeasuring = False
        self._clock = clock
        self._changed = threading.Condition()
        self._queue: deque[Job] = deque()
        self._jobs: dict[str, Job] = {}
        self._stopped = False
        self._decoding = threading.Lock()
        """A batch is many times as large in memory as on the wire: one at a time."""

    @property
    def profile(self) -> DeviceProfile:
        return self._profile

    @property
    def leased(self) -> bool:
        """Whether it serves holders of a lease only: a board of a farm."""
        return self._gate is not None

    def stats(self) -> dict[str, object]:
        """Trials so far, those that failed, and the last reason."""
        with self._changed:
            return {**self._counts, "queued": len(self._queue), "last_error": self._last_error}

    # ------------------------------------------------------------------------- the device's thread

    def run(self) -> None:
        """Measure batches in order of arrival until `stop`."""
        while (job := self._next_job()) is not None:
            failed = ""
            try:
                self._measure(job)
            except Exception as error:  # the process boundary: the board outlives its batches
                failed = f"{type(error).__name__}: {error}"
            with self._changed:
                job.done, job.failed = True, failed
                self._changed.notify_all()
            self._note_end(job)

    def stop(self) -> None:
        """End `run`: the batch in progress is dropped."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._device.interrupt()
        if self._desk is not None:
            self._desk.interrupt()

    def remeasure(self) -> None:
        """Have the device measure its peaks again (it was reset). Returns when it has."""
        with self._changed:
            self._remeasuring = True
            self._changed.notify_all()
            while self._remeasuring and not self._stopped:
                self._changed.wait()

    def raise_floor(self, floor: int) -> None:
        """Leases with a lower fence are over: drop their batches."""
        if self._gate is None:
            return
        self._gate.raise_floor(floor)
        floor = self._gate.floor
        with self._changed:
            for job in [j for j in self._jobs.values() if j.fence < floor]:
                self._drop(job)
            self._changed.notify_all()

    def _measure_peaks(self) -> None:
        try:
            profile = self._device.remeasure()
        except DeviceError as error:
            profile, self._last_error = self._profile, str(error)
        with self._changed:
            self._profile, self._remeasuring = profile, False
            self._changed.notify_all()

    def _next_job(self) -> Job | None:
        with self._changed:
            while not self._stopped:
                if self._remeasuring:
                    self._changed.release()
                    try:
                        self._measure_peaks()
                    finally:
                        self._changed.acquire()
                while self._queue:
                    job = self._queue.popleft()
                    if not self._abandoned(job):
                        return job
                    self._jobs.pop(job.name, None)
                self._changed.wait()
            return None

    def _measure(self, job: Job) -> None:
        """Measure what is a request; what is a result already keeps its place. Or run a model."""
        if job.model is not None and self._desk is not None:
            job.outcome = None if self._gone(job) else self._desk.run(job.model)
            return
        places = [n for n, r in enumerate(job.requests) if isinstance(r, MeasureRequest)]
        requests = tuple(r for r in job.requests if isinstance(r, MeasureRequest))

        def report(number: int, result: MeasureResult) -> None:
            self._append(job, job.requests[len(job.results) : places[number]], result)

        self._device.measure(requests, report, lambda: self._gone(job))
        self._append(job, job.requests[len(job.results) :])

    def _append(
        self,
        job: Job,
        known: tuple[MeasureRequest | MeasureResult, ...],
        *results: MeasureResult,
    ) -> None:
        with self._changed:
            job.results += [r for r in known if isinstance(r, MeasureResult)]
            job.results += results
            for result in results:
                self._counts["trials"] += 1
                if result.status is not Status.OK:
                    self._counts["failed"] += 1
                    self._last_error = f"{result.status}: {result.error}"
            self._changed.notify_all()

    def _gone(self, job: Job) -> bool:
        with self._changed:
            return self._stopped or self._abandoned(job)

    def _abandoned(self, job: Job) -> bool:
        return job.cancelled or self._clock() - job.seen_s > ABANDONED_S

    # ----------------------------------------------------------------------- the clients' methods

    def methods(self, owner: int, peer: Peer = NOBODY) -> dict[str, Callable[[bytes], bytes]]:
        """What one connection may call. Errors become error messages, not exceptions."""

        def guarded(method: Callable[[int, bytes], bytes]) -> Callable[[bytes], bytes]:
            def call(payload: bytes) -> bytes:
                try:
                    return method(owner, payload)
                except AutotuneError as error:
                    self._audit.write(peer, method.__name__.strip("_"), f"refused: {error}")
                    return wire.encode_error(str(error))

            return call

        def submit(owner: int, payload: bytes) -> bytes:
            return self._submit(owner, payload, peer)

        def hello(owner: int, payload: bytes) -> bytes:
            return self._hello(owner, payload, peer)

        def run(owner: int, payload: bytes) -> bytes:
            return self._run_model(owner, payload, peer)

        def upload(owner: int, payload: bytes) -> bytes:
            return self._models(owner, peer).upload(peer.name, payload)

        def fetch(owner: int, payload: bytes) -> bytes:
            return self._models(owner, peer).fetch(payload)

        return {
            "run": guarded(run),
            "upload": guarded(upload),
            "fetch": guarded(fetch),
            "watch": guarded(self._watch),
            "hello": guarded(hello),
            "submit": guarded(submit),
            "collect": guarded(self._collect),
            "cancel": guarded(self._cancel),
        }

    def forget(self, owner: int) -> None:
        """The connection closed: drop its batches."""
        if self._gate is not None:
            self._gate.forget(owner)
        with self._changed:
            for job in [j for j in self._jobs.values() if j.owner == owner]:
                self._drop(job)

    def _drop(self, job: Job) -> None:
        job.cancelled = True
        self._jobs.pop(job.name, None)
        if job in self._queue:
            self._queue.remove(job)
        elif job.model is not None and self._desk is not None and not job.done:
            self._desk.interrupt()

    def _hello(self, owner: int, payload: bytes, peer: Peer) -> bytes:
        ticket = wire.decode_greeting(payload)
        if self._gate is not None and ticket:
            self._gate.admit(owner, peer, ticket)
            self.raise_floor(0)
        can = self._abilities
        answer = wire.encode_hello(
            wire.Hello(profile=self._profile, version=can.version, compiler=can.compiler)
        )
        # On a board of a farm only whoever holds its lease has batches to send.
        return answer if self._gate is not None and not ticket else Admission(answer)

    def _submit(self, owner: int, payload: bytes, peer: Peer) -> bytes:
        if self._gate is not None:
            self._gate.fence(owner)
        with self._decoding:
            submit = wire.decode_submit(payload)
        requests = [r for r in submit.requests if isinstance(r, MeasureRequest)]
        for target in {r.target for r in requests}:
            check_target(target, self._abilities.cores, simulated=self._abilities.simulated)
        if objects := sum(r.built is not None for r in requests):
            self._check_objects(peer)
        if objects < len(requests) and not self._abilities.can_build:
            raise wire.WireError("this board has no compiler; tune with --build host")
        job = self._job(owner, peer, submit.requests)
        return self._queued(job, "submit", requests=len(requests), objects=objects)

    def _job(
        self, owner: int, peer: Peer, requests: tuple[MeasureRequest | MeasureResult, ...]
    ) -> Job:
        return Job(
            name=secrets.token_hex(16),
            owner=owner,
            peer=peer,
            requests=requests,
            seen_s=self._clock(),
            fence=0 if self._gate is None else self._gate.fence(owner),
        )

    def _queued(self, job: Job, event: str, **said: int) -> bytes:
        """The answer to whoever brought it. Raises WireError where there is no room."""
        with self._changed:
            for one in [j for j in self._jobs.values() if self._abandoned(j)]:
                self._drop(one)
            self._check_room(job.owner, job.peer)
            self._jobs[job.name] = job
            self._queue.append(job)
            # before it can end
            self._audit.write(job.peer, event, "queued", batch=job.name[:8], **said)
            self._changed.notify_all()
        return wire.encode_job(job.name)

    # ------------------------------------------------------------------------------ whole models

    def _models(self, owner: int, peer: Peer) -> ModelDesk:
        """For whoever may bring models: they are object code. Raises FarmError and WireError."""
        if self._gate is not None:
            self._gate.fence(owner)
        self._check_objects(peer)
        if self._desk is None:
            raise wire.WireError("this board runs no whole models")
        return self._desk

    def _run_model(self, owner: int, payload: bytes, peer: Peer) -> bytes:
        job = self._job(owner, peer, ())
        job.model = self._models(owner, peer).checked(payload)
        return self._queued(job, "run", inputs=len(job.model.inputs))

    def _watch(self, owner: int, payload: bytes) -> bytes:
        """As `collect`, of a model's run."""
        collect = wire.decode_collect(payload)
        until = self._clock() + min(collect.wait_s, MAX_WAIT_S)
        with self._changed:
            job = self._own(owner, collect.job)
            while not job.done and not self._stopped:
                job.seen_s = self._clock()
                if not self._changed.wait(max(0.0, until - self._clock())):
                    break
            job.seen_s = self._clock()
            if job.done:
                self._jobs.pop(job.name, None)
        return model_wire.encode_outcome(job.outcome, done=job.done, failed=job.failed)

    def _check_objects(self, peer: Peer) -> None:
        if not self._abilities.accept_objects:
            raise wire.WireError(
                "this board takes no object code; start it with --accept-objects, "
                "or tune with --build board"
            )
        if not peer.objects:
            raise wire.WireError(
                f"{peer} may not send object code; its certificate has to be issued with "
                "--objects, or tune with --build board"
            )

    def _check_room(self, owner: int, peer: Peer) -> None:
        if len(self._queue) >= MAX_QUEUED:
            raise wire.WireError(
                f"the board is busy: {MAX_QUEUED} batches are waiting; try again later"
            )
        kept = [*self._queue, *(j for j in self._jobs.values() if j.done)]
        mine = [j for j in kept if _who(j.owner, j.peer) == _who(owner, peer)]
        if peer.role is not Role.TRACKER and len(mine) >= MAX_QUEUED_OWN:
            raise wire.WireError(
                f"{MAX_QUEUED_OWN} batches of yours are waiting already; collect those first"
            )

    def _note_end(self, job: Job) -> None:
        passed = sum(r.status is Status.OK for r in job.results)
        self._audit.write(
            job.peer,
            "measure",
            job.failed or ("cancelled" if job.cancelled else "done"),
            batch=job.name[:8],
            results=len(job.results),
            ok=passed,
        )

    def _collect(self, owner: int, payload: bytes) -> bytes:
        collect = wire.decode_collect(payload)
        until = self._clock() + min(collect.wait_s, MAX_WAIT_S)
        with self._changed:
            job = self._own(owner, collect.job)
            while len(job.results) <= collect.first and not job.done and not self._stopped:
                job.seen_s = self._clock()
                if not self._changed.wait(max(0.0, until - self._clock())):
                    break
            job.seen_s = self._clock()
            results = wire.first_of(job.results[collect.first :])
            whole = collect.first + len(results) >= len(job.results)
            progress = wire.JobProgress(
                results=results, done=job.done and whole, failed=job.failed
            )
            if whole and (job.done or len(job.results) == len(job.requests)):
                self._jobs.pop(job.name, None)
        return wire.encode_progress(progress)

    def _cancel(self, owner: int, payload: bytes) -> bytes:
        with self._changed:
            job = self._own(owner, wire.decode_job(payload))
            self._drop(job)
        return wire.encode_job(job.name)

    def _own(self, owner: int, name: str) -> Job:
        job = self._jobs.get(name)
        if job is None or job.owner != owner:
            raise wire.WireError(f"no such batch: {name!r}; submit it again")
        return job


def _who(owner: int, peer: Peer) -> str:
    """Whose quota counts: a certificate's; on loopback, where there is none, the connection's."""
    return f"link {owner}" if peer.role is Role.LOCAL else peer.name
