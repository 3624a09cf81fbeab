"""Random ONNX models of many operators, types and odd shapes, compiled in every way, against
ONNX Runtime and the reference evaluator.

    python benchmarks/correctness/wild_models.py [--first 0] [--count 10000 | --seconds 3600]
        [--ways cpu,c]

In: seeds. Each seed's model is compiled in one way, drawn or named: a target, threads, an
accuracy, schedules that are drawn instead of the defaults, or a program that is exported and
compiled by the system's compiler (main_c with its sanitizers). It runs twice, in a process that
is replaced when it dies or does not answer; seeds at which a judge dies are counted. Prints a line
for each model that gives other values, is refused with more than a line, raises what is no error
of this project, dies or hangs; then counts. Exits with 1 where there was one.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import autotune
from autotune.compiler.driver import compile_graph
from autotune.errors import AutotuneError
from autotune.frontend.onnx.importer import import_model
from autotune.target import host_target, load_target
from benchmarks.correctness.wild_programs import PROGRAMS, Runs
from tests.properties.test_compiled import RandomRecords
from tests.properties.wild_models import WildModel, wild_model
from tests.properties.wild_windows import ACTIONS

PATIENCE_S = 120.0
"""Of one model; a busy machine takes a few seconds for one."""
TOLERANCE = {"bf16": 0.06, "int8": 0.3}
"""Of the largest value, beside what the model's own rounding gives; otherwise 2e-5."""
DRAWN, UNDRAWN = "drawn", "not drawn"
"""What a worker tells when it has a model, and a seed whose model one of the judges cannot run:
they end the process at some operands, or ask for more memory than there is."""
FINE = {"right", "refused", UNDRAWN}


def compiled(wild: WildModel, **options: object) -> Runs:
    return autotune.compile(wild.model, **options).run  # type: ignore[arg-type]


def drawn_schedules(wild: WildModel, target: str, seed: int) -> Runs:
    """With schedules drawn from their spaces; of models that are one native function."""
    graph = import_model(wild.model, {})
    chosen = host_target(1 + seed % 2) if target == "cpu" else load_target(target, 1)
    return compile_graph(graph, chosen, RandomRecords(graph, chosen, seed), processes=1).run


WAYS: dict[str, Callable[[WildModel, int], Runs]] = {
    "cpu": lambda w, _: compiled(w),
    "strict": lambda w, _: compiled(w, accuracy="strict"),
    "reproducible": lambda w, _: compiled(w, accuracy="reproducible"),
    "threads": lambda w, _: compiled(w, threads=2),
    "v3": lambda w, s: compiled(w, target="x86-64-v3", threads=1 + s % 2),
    "c": lambda w, _: compiled(w, target="c"),
    "bf16": lambda w, _: compiled(w, precision="bf16"),
    "int8": lambda w, _: compiled(w, precision="int8"),
    "rewrites": lambda w, _: compiled(w, rewrites="all"),
    "drawn": lambda w, s: drawn_schedules(w, "cpu", s),
    "drawn_v3": lambda w, s: drawn_schedules(w, "x86-64-v3", s),
    **PROGRAMS,
}


def verdict(wild: WildModel, seed: int, way: str) -> tuple[str, str]:
    """(kind, text): right, or refused in one line, or what is wrong."""
    feeds = {name: np.array(a) for name, a in wild.feeds.items()}
    tolerance = TOLERANCE.get(way, 2e-5)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            run = WAYS[way](wild, seed)
        for _ in range(2):
            results = list(run(feeds).values())
            for wanted, got in zip(wild.expected, results, strict=True):
                if problem := wanted.difference(np.asarray(got), tolerance):
                    return "wrong", problem
    except AutotuneError as error:
        return ("refused" if str(error).count("\n") == 0 else "lines"), str(error)
    except Exception as error:
        return "raised", f"{type(error).__name__}: {error}"
    changed = [n for n, a in wild.feeds.items() if not np.array_equal(feeds[n], a)]
    return ("inputs written", str(changed)) if changed else ("right", "")


def worker(link: Connection) -> None:
    logging.disable(logging.WARNING)
    while (asked := link.recv()) is not None:
        seed, way = asked
        try:
            wild = wild_model(seed, ACTIONS)
        except Exception as error:  # more memory than there is, or what a judge makes of it
            link.send((UNDRAWN, f"{type(error).__name__}: {error}"))
            continue
        link.send((DRAWN, ""))
        link.send(verdict(wild, seed, way))


class Workers:
    """One process that answers, replaced when it dies."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._start()

    def _start(self) -> None:
        self._link, other = self._context.Pipe()
        self._process = self._context.Process(target=worker, args=(other,), daemon=True)
        self._process.start()
        other.close()

    def ask(self, seed: int, way: str) -> tuple[str, str]:
        self._link.send((seed, way))
        drawn = False
        try:
            while self._link.poll(PATIENCE_S):
                kind, text = self._link.recv()
                if kind != DRAWN:
                    return kind, text
                drawn = True
            kind, text = "hangs", f"no answer in {PATIENCE_S:.0f} s"
        except EOFError:
            self._process.join()
            kind, text = "died", f"exit status {self._process.exitcode}"
        self._process.kill()
        self._start()
        return (kind, text) if drawn else (UNDRAWN, f"{kind}: {text}")

    def close(self) -> None:
        self._link.send(None)
        self._process.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--ways", default=",".join(WAYS), help="of " + ", ".join(WAYS))
    parser.add_argument("--refused", action="store_true", help="print refusals too")
    options = parser.parse_args()
    ways, counts, begin = options.ways.split(","), Counter[str](), time.monotonic()
    workers = Workers()
    for seed in range(options.first, options.first + options.count):
        if time.monotonic() - begin > options.seconds:
            break
        way = ways[seed % len(ways)]
        kind, text = workers.ask(seed, way)
        counts[kind] += 1
        if kind not in FINE or (options.refused and kind == "refused"):
            print(f"{seed} {way}: {kind}: {text[:300]}", flush=True)
    workers.close()
    print(", ".join(f"{kind} {count}" for kind, count in counts.most_common()))
    return 0 if set(counts) <= FINE else 1


if __name__ == "__main__":
    sys.exit(main())
