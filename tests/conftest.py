"""Options of the whole suite: `--run-slow` also runs the tests marked slow, `--require-all` fails
those that would be skipped. A summary at the end names what was skipped, and why, once."""

from __future__ import annotations

import collections
import gc
import logging
import os
import signal
import sys
import traceback
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from autotune.measure.runners import local
from tests.needs import require
from tests.postgres import new_database  # noqa: F401 (a fixture)
from tests.tiny import tuned  # noqa: F401 (a fixture)

# Machines are shared: how long an example takes, drawn or run, says nothing of what is tested.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-slow", action="store_true", help="also run the tests marked slow")
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden texts")
    parser.addoption(
        "--require-all", action="store_true", help="fail tests whose needs are missing"
    )


def pytest_configure() -> None:
    """A shell starts what it runs in the background deaf to interrupts, and so would be every
    program that a test starts and interrupts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests stay until the end: looking for garbage among them while they are made
    takes a third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the slow ones unless asked for: nothing is reported as skipped."""
    if config.getoption("--run-slow"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


@pytest.fixture(scope="session")
def cache_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For `XDG_CACHE_HOME`: what this machine measures of itself, once for all tests of a run."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"


@pytest.fixture(scope="session")
def measured(cache_home: Path) -> Path:
    """The same for `cache_dir`."""
    return cache_home / "autotune"


@pytest.fixture(scope="session", autouse=True)
def one_machine() -> Iterator[None]:
    """What was measured beside other tests stays for all of them: a machine that is measured again
    as soon as it is quieter would be another one in the second half of a test."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(local, "glance", lambda _: None)
        yield


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before fixtures: a test whose needs are missing starts nothing."""
    for marker in item.iter_markers("needs"):
        for name in marker.args:
            require(name)


def _of_the_process() -> dict[str, object]:
    """What a test, or a command that it runs in this process, could change for all later ones."""
    return {
        "logging.disable": logging.root.manager.disable,
        "the working directory": os.getcwd(),
        "signal handlers": (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)),
        "sys.path": tuple(sys.path),
    }


@pytest.fixture(autouse=True)
def _nothing_is_left_changed() -> Iterator[None]:
    """Later tests of the same process see what this one saw: their order does not matter."""
    before = _of_the_process()
    yield
    after = _of_the_process()
    assert not [what for what in before if before[what] != after[what]]


UNHEARD = (pytest.PytestUnhandledThreadExceptionWarning, pytest.PytestUnraisableExceptionWarning)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The report; where an exception ended a thread, that exception is its last section and in the
    summary's line, which else name pytest's own warning alone."""
    report = yield
    error = call.excinfo.value if call.excinfo else None
    for unheard in error.exceptions if isinstance(error, BaseExceptionGroup) else (error,):
        if isinstance(unheard, UNHEARD) and (cause := unheard.__cause__) is not None:
            where, text = str(unheard).splitlines()[0], traceback.format_exception(cause)
            report.sections.append((where, "".join(text)))
            if (crash := getattr(report.longrepr, "reprcrash", None)) is not None:
                crash.message = f"{cause!r}: {where}"
    if report.skipped and item.config.getoption("--require-all"):
        report.outcome, report.longrepr = "failed", f"--require-all: {_reason(report)}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = collections.Counter(map(_reason, terminalreporter.stats.get("skipped", [])))
    if skipped:
        terminalreporter.section("not tested here")
    for why, count in sorted(skipped.items()):
        terminalreporter.line(f"{count} test{'s' if count > 1 else ''} skipped: {why}")


def _reason(report: pytest.TestReport) -> str:
    """Of a skip, without its place."""
    where = report.longrepr
    return str(where[2] if isinstance(where, tuple) else where).removeprefix("Skipped: ")
