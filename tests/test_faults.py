"""What a run survives, with real processes: workers, boards and tuners that are killed with -9."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import autotune
from autotune.db.store import TuningLog
from autotune.db.types import Record
from autotune.measure.executor import DEFAULT_EXECUTOR
from autotune.measure.types import Status
from autotune.settings import load_settings
from autotune.target import host_target
from autotune.tuner.events import Event, TrialDone
from autotune.tuner.transfer import samples
from tests.patience import PATIENCE_S
from tests.unit.rpc_server.boards import BoardProcess, wait_until_gone

MODEL = "zoo:squeezenet"
TRIALS = 40
# However little the next trials promise: these runs end by their trials.
MIN_GAIN = 1e-9
SETTINGS = dataclasses.replace(load_settings(), min_gain=MIN_GAIN)


def settings_file(folder: Path) -> str:
    """`SETTINGS` for a command."""
    path = folder / "settings.toml"
    path.write_text(f"[tune]\nmin_gain = {MIN_GAIN}\n")
    return str(path)


def records(log: Path) -> list[Record]:
    with TuningLog(log, read_only=True, missing_ok=True) as store:
        keys = dict.fromkeys(r.task.key for r in samples(store))
        return [r for key in keys for r in store.records(key, host_target())]


def check_complete(log: Path, trials: int = TRIALS) -> None:
    """Every trial is there, once, and measured."""
    found = records(log)
    assert len(found) == trials
    assert len({(r.task.key, r.config) for r in found}) == trials
    assert {r.result.status for r in found} == {Status.OK}


def at_trials(actions: dict[int, Callable[[], None]]) -> Callable[[Event], None]:
    """Run each action once, when that many trials, or a few more, are done."""

    def on_event(event: Event) -> None:
        due = isinstance(event, TrialDone) and min(actions, default=math.inf)
        if due and event.progress.trials >= due:
            actions.pop(min(actions))()

    return on_event


@pytest.mark.slow
def test_a_run_survives_its_worker_and_its_board(tmp_path: Path) -> None:
    log = tmp_path / "log.db"
    with BoardProcess(executor=DEFAULT_EXECUTOR) as board:
        workers: list[int] = []

        def kill_workers() -> None:
            workers[:] = board.children()
            for pid in workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

        def restart_board() -> None:
            board.stop(signal.SIGKILL)
            board.start()

        actions = {5: kill_workers, 15: restart_board, 33: kill_workers}
        report = autotune.tune(
            MODEL, device=board.url, log=log, trials=TRIALS, settings=SETTINGS,
            strategy="random", on_event=at_trials(actions),
        )  # fmt: skip
        assert workers
        wait_until_gone(workers)
    assert not actions
    assert report.measured == TRIALS
    check_complete(log)


@pytest.mark.slow
def test_a_killed_tuner_continues_and_repeats_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log.db"
    command = [
        sys.executable, "-m", "autotune", "tune", MODEL, "--log", str(log),
        "--trials", str(TRIALS), "--strategy", "random", "--config", settings_file(tmp_path),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as tuner:
        while not log.exists() or len(records(log)) < 10:
            assert tuner.poll() is None, "the run ended before it could be killed"
            time.sleep(0.02)
        tuner.kill()
    before = records(log)
    assert 10 <= len(before) < TRIALS
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    check_complete(log)
    # The fastest were measured again at the end; everything that was tried is there once.
    tried = {(r.task.key, r.config) for r in records(log)}
    assert {(r.task.key, r.config) for r in before} <= tried


@pytest.mark.slow
def test_an_interrupted_tuner_says_where_its_results_are(tmp_path: Path) -> None:
    log = tmp_path / "log.db"
    command = [
        sys.executable, "-m", "autotune", "tune", MODEL, "--log", str(log), "--trials", "9999",
    ]  # fmt: skip
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as tuner:
        while not log.exists() or len(records(log)) < 5:
            assert tuner.poll() is None, "the run ended before it could be interrupted"
            time.sleep(0.02)
        tuner.send_signal(signal.SIGINT)
        _, err = tuner.communicate(timeout=PATIENCE_S)
    # A shell says 130 for both: Python ends by the signal if it came while it compiled a string.
    assert tuner.returncode in (130, -signal.SIGINT)
    assert err == f"interrupted; measured results are in {log}\n"


def whole_model_process(tuner: subprocess.Popen[str]) -> int:
    """Wait until the tuner times the whole model; the process that does, stopped, as it would else
    be done before a slow test says another word."""
    while tuner.poll() is None:
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                # `/proc/PID/stat`: number, name in parentheses, state, parent
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if b"autotune.runtime.latency" in words and parent == tuner.pid:
                    os.kill(int(folder.name), signal.SIGSTOP)
                    return int(folder.name)
        time.sleep(0.01)
    raise AssertionError(f"it ended before it timed the model: {tuner.communicate()}")


@pytest.mark.slow
def test_a_run_that_ends_while_it_times_the_whole_model(tmp_path: Path) -> None:
    """Everything measured is there, nothing is left running, the next run times the model: even
    where the times of the first make another graph of it, which shares two tasks of three."""
    count = 64
    log = tmp_path / "log.db"
    command = [
        sys.executable, "-m", "autotune", "tune", "zoo:tiny", "--log", str(log),
        "--trials", str(count), "--strategy", "random", "--config", settings_file(tmp_path),
    ]  # fmt: skip
    for how in (signal.SIGINT, signal.SIGKILL):
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as tuner:
            process = whole_model_process(tuner)
            tuner.send_signal(how)
            _, err = tuner.communicate(timeout=PATIENCE_S)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)
        wait_until_gone([process])
        if how is signal.SIGINT:
            assert tuner.returncode in (130, -how)
            assert err == f"interrupted; measured results are in {log}\n"
        check_complete(log, count)
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "measured; kernels' sum" in again.stdout
    check_complete(log, count)
