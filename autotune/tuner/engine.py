"""Engine that builds, describes and learns for a run: this process, or an executor's workers.

In: a `concurrent.futures.Executor`, or the name 'dask://HOST:PORT'. Out: an Engine. Measuring
stays where the devices are. A worker that dies costs nothing: the executor gives its jobs to
another one, and whoever computes, the run is the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Any

from autotune.errors import ConfigError, DeviceError
from autotune.measure.builds import PATIENCE_S, ExecutorBuilds, lost, silent
from autotune.tuner import jobs
from cost_model.features import Features
from cost_model.models import CostModel, Dataset
from cost_model.subject import Subject
from search_spaces.rules import RULES
from search_spaces.space import Rows

SCHEME = "dask://"
CONNECT_TIMEOUT_S = 5.0
"""Seconds until a scheduler of other processors answers."""
FIRST_WORKER_S = 10.0
"""How long the scheduler may take to get its first worker."""
CHUNK = 4096
"""Rows of a space per job; fewer are described here."""


class Engine:
    """Gives the work of a run to an executor. `name` is for messages; `chunk`: rows per job."""

    def __init__(
        self,
        executor: Executor,
        name: str = "the executor",
        patience_s: float = PATIENCE_S,
        chunk: int = CHUNK,
    ) -> None:
        self._executor = executor
        self._chunk = chunk
        self._name = name
        self._patience_s = patience_s
        self.builds = ExecutorBuilds(executor, name, patience_s)

    def attached(self, subject: Subject) -> Subject:
        """The subject with many rows at once described by the workers, if they know its rule."""
        if subject.rule.name not in RULES:
            return subject

        def describe(rows: Rows) -> Features:
            chunks = [rows[n : n + self._chunk] for n in range(0, len(rows), self._chunk)]
            frames = [jobs.describe_frame(subject, chunk) for chunk in chunks]
            return jobs.described(self._results(jobs.describe_job, frames))

        return dataclasses.replace(subject, elsewhere=describe, many=self._chunk)

    def train(self, model: CostModel, seed: int, data: Dataset) -> None:
        """What `model.fit` does."""
        (state,) = self._results(jobs.train_job, [jobs.train_frame(model.name, seed, data)])
        model.restore(jobs.trained(state))

    def _results(self, job: Callable[[bytes], bytes], frames: Sequence[bytes]) -> list[bytes]:
        try:
            futures = [self._executor.submit(job, frame) for frame in frames]
            return [future.result(self._patience_s) for future in futures]
        except TimeoutError:
            raise DeviceError(silent(self._name, self._patience_s)) from None
        except Exception as error:  # the process boundary
            raise DeviceError(lost(self._name, error)) from error


@contextlib.contextmanager
def opened(
    executor: str | Executor | None, cores: Sequence[int] = (), chunk: int = CHUNK
) -> Iterator[Engine | None]:
    """The engine of 'dask://HOST:PORT' or of an executor, which stays open; None without one.
    `cores`: for this process's part of the work. Raises ConfigError and DeviceError."""
    if executor is None or executor == "local":
        yield None
    elif isinstance(executor, Executor):
        yield Engine(executor, chunk=chunk)
    else:
        check_name(executor)
        with _cluster(executor, cores) as client:
            yield Engine(client.get_executor(pure=False), executor, chunk=chunk)


def check_name(executor: str) -> None:
    """Raise ConfigError for a name that is no executor's."""
    if executor != "local" and not executor.startswith(SCHEME):
        raise ConfigError(f"expected the executor local or {SCHEME}HOST:PORT, got {executor!r}")


@contextlib.contextmanager
def _cluster(name: str, cores: Sequence[int]) -> Iterator[Any]:
    try:
        import distributed
    except ImportError:
        raise ConfigError(
            f"{name} needs Dask: pip install 'autotune-compiler[dask]', here and on its workers"
        ) from None
    address = name.removeprefix(SCHEME)
    connect: Callable[..., Any] = distributed.Client
    try:
        _knock(address)
        with on_cores(cores):  # its threads stay where they are started
            client = connect(f"tcp://{address}", timeout=CONNECT_TIMEOUT_S, set_as_default=False)
    except (OSError, ValueError):
        raise DeviceError(
            f"no Dask scheduler answers at {address}; start one there with `dask scheduler`"
        ) from None
    with client:
        _check_workers(client, name)
        yield client


def _knock(address: str) -> None:
    """Raises OSError or ValueError where nobody listens: Dask itself would try for a while."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()


def _check_workers(client: Any, name: str) -> None:
    """Raises DeviceError unless there are workers, and all of them compute what this one would."""
    try:
        client.wait_for_workers(1, timeout=FIRST_WORKER_S)
    except TimeoutError:
        raise DeviceError(
            f"{name} has no worker; start some with `dask worker {name.removeprefix(SCHEME)} "
            "--nthreads 1`"
        ) from None
    here = jobs.versions_job()
    for worker, answer in client.run(jobs.versions_job, on_error="return").items():
        if isinstance(answer, Exception):
            raise DeviceError(
                f"{name}: worker {worker} cannot work for this run: {answer}; install this "
                "release of autotune-compiler there"
            )
        for what, version in here.items():
            if answer.get(what) != version:
                raise DeviceError(
                    f"{name}: worker {worker} has {what} {answer.get(what)}, here it is "
                    f"{version}; install the same"
                )


@contextlib.contextmanager
def on_cores(cores: Sequence[int]) -> Iterator[None]:
    """Keeps this thread, and those it starts, on the cores; no cores, no change."""
    if not cores or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
