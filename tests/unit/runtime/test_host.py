"""What a processor has, and keeping threads on its cores."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import llvmlite.binding as llvm
import pytest

from autotune import cpu_features
from autotune.errors import ConfigError
from autotune.runtime.host import crowded, pin
from autotune.target import machine_of


def apart(action: Callable[[], object]) -> list[object]:
    """What `action` gives or raises, in a thread of its own: affinity belongs to threads."""
    out: list[object] = []

    def run() -> None:
        try:
            out.append(action())
        except ConfigError as error:
            out.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return out


def test_the_calling_thread_stays_on_the_cores() -> None:
    core = max(os.sched_getaffinity(0))

    def action() -> set[int]:
        pin([core])
        return os.sched_getaffinity(0)

    assert apart(action) == [{core}]
    assert os.sched_getaffinity(0) != {core} or len(os.sched_getaffinity(0)) == 1


@pytest.mark.parametrize("cores", [(), (100_000,)])
def test_cores_that_are_not_there_are_refused(cores: tuple[int, ...]) -> None:
    (message,) = apart(lambda: pin(cores))
    assert "expected cores out of" in str(message)


def test_more_threads_than_cores_are_refused() -> None:
    core = max(os.sched_getaffinity(0))
    (message,) = apart(lambda: pin([core], threads=2))
    assert "2 threads need as many cores, got 1" in str(message)


def test_more_threads_than_cores_are_mentioned() -> None:
    cores = len(os.sched_getaffinity(0))
    assert crowded(cores) == ""
    assert crowded(cores + 1).startswith(f"{cores + 1} threads share {cores} core")


def test_the_system_names_every_feature_that_llvm_finds_here() -> None:
    found = llvm.get_host_cpu_features()
    machine = machine_of(llvm.get_process_triple())
    assert cpu_features.missing(machine, [name for name in found if found[name]]) == []
    lacks = [name for name in found if not found[name] and name not in cpu_features.UNLISTED]
    if machine == "x86_64":
        assert set(lacks) == set(cpu_features.missing(machine, lacks))


@pytest.mark.parametrize(
    ("machine", "words", "lacks"),
    [
        ("aarch64", (1 << 1 | 1 << 20, 0), ["i8mm"]),
        ("aarch64", (0, 0), []),
        ("arm", (1 << 12, 0), []),
        ("riscv64", (1 << 0 | 1 << 12, 0), ["v"]),
    ],
)
def test_words_of_the_kernel_say_what_is_missing(
    machine: str, words: tuple[int, int], lacks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_features, "_hardware_words", lambda: words)
    asked = ["neon", "dotprod", "i8mm"] if machine != "riscv64" else ["m", "a", "v", "zvl128b"]
    assert cpu_features.missing(machine, asked) == lacks
