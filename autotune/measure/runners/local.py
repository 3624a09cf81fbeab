"""The runner of this machine: candidates are built and timed in child processes.

In: a target whose code this machine can run. Out: a Runner.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import logging
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from autotune.atomic_file import write_text
from autotune.caches import ROOT, sizes
from autotune.codegen.base import DEVICE_KINDS
from autotune.errors import DeviceError
from autotune.machine.facts import FORMAT as FACTS_FORMAT
from autotune.machine.facts import MachineFacts
from autotune.machine.profile import DeviceProfile
from autotune.measure.batch import BatchExecutor, plan_cores
from autotune.measure.builds import ExecutorBuilds
from autotune.measure.devices import DEVICES, DeviceFacts
from autotune.measure.devices.sandbox import sandbox_for
from autotune.measure.executor import DEFAULT_EXECUTOR
from autotune.measure.others import glance
from autotune.measure.sandbox import Report, Sandbox
from autotune.measure.simulator.names import stands_for
from autotune.measure.throttle import available_cores
from autotune.measure.types import Built, MeasureRequest, MeasureResult, OnResult
from autotune.target import Target, machine_of

PROFILE_FORMAT = 4
"""Version of cached profiles: raised when something more, or otherwise, is measured."""
FACTS_MADE = 5
"""Version of cached facts: raised when micro-benchmarks find something more, or otherwise."""
_LOGGER = logging.getLogger("autotune.measure")
_LOGGER.addHandler(logging.NullHandler())


Kept = TypeVar("Kept", DeviceProfile, MachineFacts)


class LocalRunner:
    """Runner over worker processes here. `cache_dir`: where the measured profile is kept between
    processes, with what micro-benchmarks find; without it every runner measures its profile once,
    which has no facts then. `region_threads`: measure the cost of a parallel region at this thread
    count too (a board, which serves any). `builds`: build there.
    Close it, or use it as a context."""

    def __init__(
        self,
        target: Target,
        *,
        cores: Sequence[int] = (),
        executor: str = DEFAULT_EXECUTOR,
        cache_dir: Path | None = None,
        region_threads: int = 0,
        sandbox: Sandbox | None = None,
        builds: ExecutorBuilds | None = None,
    ) -> None:
        cores = tuple(cores) or available_cores()
        check_target(target, len(cores), simulated=bool(stands_for(executor)))
        self.target = target
        self.cores = cores
        self._cache_dir = cache_dir
        self._region_threads = region_threads
        self._profile: DeviceProfile | None = None
        self._facts: MachineFacts | None = None
        name = device_name(target)
        if other := stands_for(executor):
            name = f"{name.rpartition('/')[0]}/{other} {target.name}"
        self._batch = BatchExecutor(
            device=name,
            cores=cores,
            executor=executor,
            sandbox=sandbox_for(target, sandbox or Sandbox()),
            builds=builds,
        )

    def __enter__(self) -> LocalRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def worker_pid(self) -> int | None:
        """Process id of the worker that runs candidates, None before the first batch."""
        return self._batch.runner_pid

    @property
    def spare_cores(self) -> tuple[int, ...]:
        """Cores on which nothing is timed: for the one who plans meanwhile."""
        return plan_cores(self.cores, self.target.threads).builders

    @property
    def timing_cores(self) -> tuple[int, ...]:
        """Cores that candidates are timed on."""
        return plan_cores(self.cores, self.target.threads).runner

    @property
    def sandbox(self) -> Report:
        """Which bounds of the workers hold, and why others do not: empty text where one holds."""
        return self._batch.sandbox

    def ready(self) -> Report:
        """Start the workers, without measuring anything: `sandbox`. Raises DeviceError."""
        return self._batch.ready(self.target)

    def profile(self) -> DeviceProfile:
        """The device's measured peaks, at the runner's thread count. Raises DeviceError."""
        if self._profile is None:
            kept = self._cached(self._profile_path(), DeviceProfile.from_json)
            profile = kept or self._measure_profile()
            if kept is None:
                self._store(self._profile_path(), profile.to_json())
            self._profile = dataclasses.replace(profile, facts=self._kept_facts())
            if kept is not None and self._quieter_now():
                return self.remeasure()
        return self._profile

    def _quieter_now(self) -> bool:
        """Whether facts that were measured beside others' work are worth measuring again."""
        facts = self._facts
        if facts is None or facts.others is None or not facts.disturbed:
            return False
        now = glance(self.cores)
        return now is not None and now < facts.others / 2

    def facts(self) -> MachineFacts | None:
        """What micro-benchmarks find on this machine, now or whenever it was that they were kept;
        None where there are none for such a device. Raises DeviceError."""
        if self.target.kind != "cpu":
            return None
        path = self._facts_path()
        if self._facts is None:
            kept = self._cached(path, MachineFacts.from_json)
            # Facts from before they held the caches: these are as they were.
            if kept is not None and not kept.caches:
                kept = dataclasses.replace(kept, caches=tuple(sorted(sizes(ROOT).items())))
            self._facts = kept
        return self._facts or self._measure_facts()

    def _measure_facts(self) -> MachineFacts | None:
        self._facts = self._batch.facts(self.target) if self.target.kind == "cpu" else None
        if self._facts is not None:
            self._store(self._facts_path(), self._facts.to_json())
        return self._facts

    def _kept_facts(self) -> MachineFacts | None:
        """Facts of a runner that keeps what it measures; without them a profile is as good as it
        was before there were any."""
        if self._cache_dir is None:
            return None
        try:
            return self.facts()
        except DeviceError as error:
            _LOGGER.warning("this machine is known by its peaks only: %s", error)
            return None

    def remeasure(self) -> DeviceProfile:
        """The device as it is now, whatever was known of it. Raises DeviceError."""
        profile = self._measure_profile()
        self._store(self._profile_path(), profile.to_json())
        if self._cache_dir is not None:
            self._measure_facts()
        self._profile = dataclasses.replace(profile, facts=self._facts)
        return self._profile

    def _measure_profile(self) -> DeviceProfile:
        if self._region_threads <= self.target.threads:
            return self._batch.profile(self.target)
        wide = self._batch.profile(self.target.with_threads(self._region_threads))
        profile = self._batch.profile(self.target)
        return dataclasses.replace(profile, parallel_region_s=wide.parallel_region_s)

    def measure(
        self,
        requests: tuple[MeasureRequest, ...],
        on_result: OnResult | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> tuple[MeasureResult, ...]:
        """One result per request, in order; see Runner. After `stop` says yes, which is asked
        before every candidate, the rest is DEVICE_LOST."""
        try:
            return self._batch.measure(requests, on_result, stop)
        finally:
            if any(r.built is not None for r in requests):
                self._batch.renew()

    def built(self, request: MeasureRequest) -> Built | None:
        """A candidate of an earlier batch as it was built, if it is kept."""
        return self._batch.built(request)

    def interrupt(self) -> None:
        """End a batch in progress at once, from any thread. The runner is closed after it."""
        self._batch.interrupt()

    def close(self) -> None:
        self._batch.close()

    def _profile_path(self) -> Path | None:
        return self._path(
            "profile", PROFILE_FORMAT, device_name(self.target), self.target.to_json(),
            self._region_threads,
        )  # fmt: skip

    def _facts_path(self) -> Path | None:
        """A file for all runners of this machine whose code may use the same instructions."""
        target = self.target
        return self._path(
            "facts", FACTS_FORMAT, FACTS_MADE, device_name(target), target.kind, target.features,
            target.vector_bytes, self.cores,
        )  # fmt: skip

    def _path(self, kind: str, *what: object) -> Path | None:
        if self._cache_dir is None:
            return None
        digest = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]
        return self._cache_dir / f"{kind}-{digest}.json"

    def _cached(self, path: Path | None, read: Callable[[Any], Kept]) -> Kept | None:
        if path is None or not path.is_file():
            return None
        try:
            return read(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError):
            return None  # a damaged cache is measured again and overwritten

    def _store(self, path: Path | None, data: dict[str, Any]) -> None:
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, json.dumps(data), DeviceError)
        except (OSError, DeviceError):
            return  # without a cache the next run measures again


def device_name(target: Target) -> str:
    """Stable name of what runs the target's code here: host, and CPU or device."""
    name = target.cpu
    if target.kind in DEVICE_KINDS:
        with contextlib.suppress(DeviceError):
            name = chosen_device(target).name
    return f"{platform.node() or 'local'}/{name}"


@functools.lru_cache(maxsize=8)
def chosen_device(target: Target) -> DeviceFacts:
    """The device here for a target, asked for once. Raises DeviceError where there is none."""
    return DEVICES.get(target.kind).choose(target)


def check_target(target: Target, cores: int, *, simulated: bool = False) -> None:
    """Raises DeviceError where this machine, or the core that it simulates, cannot run the
    target's code. C of a microcontroller compiles here, too, but its times would be this
    machine's under the name of another."""
    if target.is_compact and not simulated:
        raise DeviceError(
            f"target {target.name} is a microcontroller, this machine is none; measure on a board "
            f"that simulates it (rpc_server serve --target {target.name} --simulator qemu): "
            "--device rpc://HOST:PORT"
        )
    if target.is_wasm:
        if simulated:
            return
        raise DeviceError(
            f"target {target.name} is WebAssembly, which this machine runs in an engine; measure "
            f"on a board that has one (rpc_server serve --target {target.name} --simulator node): "
            "--device rpc://HOST:PORT"
        )
    if simulated and not target.is_compact:
        raise DeviceError(
            f"target {target.name} is no microcontroller, and this board simulates one; take a "
            "board of that kind: --device rpc://HOST:PORT"
        )
    if target.kind in DEVICE_KINDS:
        chosen_device(target)
        return
    here, wanted = machine_of(platform.machine()), machine_of(target.triple)
    anywhere = target.kind == "c" and wanted == "unknown"
    if target.kind not in ("cpu", "c") or (wanted != here and not anywhere):
        raise DeviceError(
            f"target {target.name} is {target.kind} {wanted}, this machine is cpu {here}; "
            "measure on a board of that kind: --device rpc://HOST:PORT"
        )
    if target.threads > cores:
        raise DeviceError(
            f"target {target.name} wants {target.threads} threads, there are {cores} cores to "
            "run on; use fewer threads or allow more cores"
        )


def with_threads(profile: DeviceProfile, threads: int) -> DeviceProfile:
    """The profile for kernels of another thread count (per-core figures stay)."""
    return dataclasses.replace(profile, target=profile.target.with_threads(threads))
