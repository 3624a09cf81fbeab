"""How many trials a search needs, replayed on spaces that were measured once.

`measure` fills `benchmarks/data` (a minute a task, in pieces of any length: what it has built and
timed is kept in its folder of work, to be removed when kernels are generated otherwise); `replay`
searches it, a hundred seeds of a task in seconds and the same figures every time, prints tables
and draws the curves. Tasks that the prior was fitted to, and fresh ones, are counted apart.

Usage: python benchmarks/search/search_efficiency.py replay [--seeds 100] [--out build/search]
           [TASK ...]
       python benchmarks/search/search_efficiency.py measure [--limit 450] [--seconds 60]
           [TASK ...]

Both take `--data FOLDER`, that of a machine's surveys: `benchmarks/data` is Zen 4's, and folders
in it (`granite_rapids`) are other machines'.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from autotune.errors import AutotuneError, ConfigError
from autotune.measure.runners.local import LocalRunner
from autotune.target import load_target
from autotune.tuner.strategies import Outcome
from benchmarks.search import search_surveys
from benchmarks.search.recorded_search import (
    SEARCHERS,
    Recorded,
    Searcher,
    curve,
    histories,
    knowledge,
    search,
    trials_to,
)
from benchmarks.search.recorded_spaces import save_survey
from benchmarks.search.search_surveys import Surveyor
from benchmarks.search.search_tasks import fresh, tasks
from cost_model.metrics import rank_correlation, regret, top_k_recall
from search_spaces.base import Column

WORK = Path("build/surveys")
HISTORY = 32
"""Trials of each other task that transfer starts with."""
TRIALS = 100
ENOUGH = 1.01
"""A search ends within this of the best: measurements scatter by as much."""
STATISTICS = {"50": "medians", "mean": "means", "90": "90th percentiles"}
"""By which searchers are compared. The last one counts: it is the budget after which nine of ten
runs have arrived. Where most configs of a space are good, the median of every searcher is 1."""
NEAR = (1.05, 1.02)
"""Within how much of the survey's best a search has arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Best-so-far over the survey's best, [seeds, trials], of one searcher on one task."""

    searcher: str
    task: str
    ratio: Column

    def trials(self, near: float) -> Column:
        return np.array([trials_to(row, near) for row in self.ratio])


def measure(options: argparse.Namespace) -> None:
    """Survey the tasks on this machine, one thread, and write their files; what is not finished
    after `--seconds` goes on from where it was. With `--build`, only the objects are made."""
    new, work, build = fresh(), options.work, options.build
    every = {**tasks(), **new}
    _check(options.tasks, sorted(every))
    stop = search_surveys.deadline(options.seconds)
    with LocalRunner(load_target(options.target), cache_dir=work) as runner:
        for name in options.tasks or every:
            start = time.perf_counter()
            surveyor = Surveyor(name, every[name], runner.profile(), work)
            draft = surveyor.draft(options.limit)
            done = surveyor.measure(draft, runner, stop, build_only=build)
            if done:
                folder = options.data / search_surveys.FRESH if name in new else options.data
                folder.mkdir(parents=True, exist_ok=True)
                save_survey(surveyor.survey(draft), folder / f"{name}.npz")
            failed = int((np.isinf(draft.least_s) & (draft.passes > 0)).sum())
            print(
                f"{name}: {len(draft.rows)} configs, {failed} failed, "
                f"{len(draft.unsettled())} not settled, {time.perf_counter() - start:.0f} s"
                f"{'' if done or build else '; run the same command again'}"
            )
            if stop():
                return


def _check(names: Sequence[str], known: Sequence[str]) -> None:
    unknown = sorted(set(names).difference(known))
    if unknown:
        raise ConfigError(f"no survey of {', '.join(unknown)}; known: {', '.join(known)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Whose surveys are searched, and for how long."""

    data: Path
    seeds: int
    trials: int


def replay(wanted: Sequence[str], setup: Setup, jobs: int) -> list[Curves]:
    """Every searcher on every task, or the wanted ones, with every seed, on `jobs` processes."""
    known = sorted(_subjects(setup.data))
    _check(wanted, known)
    names = [name for name in known if not wanted or name in wanted]
    with ProcessPoolExecutor(jobs) as pool:
        found = pool.map(functools.partial(_history, setup.data), known)
        history = dict(zip(known, found, strict=True))
        work = (
            (searcher, name, setup, history if searcher.transfer else {})
            for name in names
            for searcher in SEARCHERS
        )
        return list(pool.map(_replay_one, *zip(*work, strict=True)))


@functools.cache
def _subjects(data: Path) -> dict[str, Recorded]:
    """Surveys are read once per process."""
    found = search_surveys.machine_surveys(data)
    return {n: Recorded.from_survey(s) for n, s in found.items()}


def _history(data: Path, name: str) -> tuple[Outcome, ...]:
    return histories({name: _subjects(data)[name]}, HISTORY)[name]


def _replay_one(
    searcher: Searcher, name: str, setup: Setup, history: Mapping[str, Sequence[Outcome]]
) -> Curves:
    """One searcher on one task; `history` of every task, where it learns from others."""
    subjects, known = _subjects(setup.data), None
    subject, trials = subjects[name], setup.trials
    best_s = float(subject.survey.seconds.min())
    if searcher.transfer:
        known = knowledge(subjects, history, name)
        subject = known.taught(subject)
    rows = [
        curve(search(subject, searcher, seed, trials, known, enough_s=best_s * ENOUGH), trials)
        for seed in range(setup.seeds)
    ]
    return Curves(searcher=searcher.label, task=name, ratio=np.stack(rows) / best_s)


# --------------------------------------------------------------------------------------- tables


def print_trials(found: Sequence[Curves], near: float) -> None:
    """Median and 90th percentile of trials per task, and over everything, old tasks and fresh
    ones apart."""
    labels = [s.label for s in SEARCHERS]
    print(f"\ntrials to within {near - 1:.0%} of the best: median (90th percentile)")
    print(f"{'':20}" + "".join(f"{label:>16}" for label in labels))
    new = fresh()
    old = [c for c in found if c.task not in new]
    parts = {"tasks of the constants": old, "fresh tasks": [c for c in found if c.task in new]}
    for part, curves in {**parts, "all tasks": found}.items():
        if not curves:
            continue
        by = {(c.task, c.searcher): c.trials(near) for c in curves}
        names = list(dict.fromkeys(c.task for c in curves))
        print(f"{part}: {len(names)}")
        for task in names if part in parts else ():
            row = "".join(f"{_spread(by[task, n]):>16}" for n in labels)
            print(f"  {task:18}{row}")
        _print_sums(by, labels, len(names))


def _print_sums(by: Mapping[tuple[str, str], Column], labels: Sequence[str], tasks: int) -> None:
    every = {n: np.concatenate([v for (_, s), v in by.items() if s == n]) for n in labels}
    print(f"  {'pooled':18}" + "".join(f"{_spread(every[n]):>16}" for n in labels))
    for statistic, name in STATISTICS.items():
        sums = {n: _sum(by, n, statistic) for n in labels}
        print(f"  {'sum of ' + name:22}" + "".join(f"{sums[n]:>16.0f}" for n in labels)[4:])
        text = (
            f"{sums[n] / sums['all together']:.1f}x fewer trials than {n} (at most "
            f"{sums[n] / tasks:.1f}x: one trial a task)"
            for n in ("evolutionary", "random")
        )
        print("    " + ", ".join(text))


def _spread(trials: Column) -> str:
    median, most = np.percentile(trials, [50, 90], method="higher")
    return f"{median:.0f} ({most:.0f})"


def _sum(by: Mapping[tuple[str, str], Column], searcher: str, statistic: str) -> float:
    """Over all tasks, of a statistic of the trials; what never arrived counts all its trials."""
    found = [np.minimum(v, TRIALS) for (_, s), v in by.items() if s == searcher]
    if statistic == "mean":
        return float(sum(v.mean() for v in found))
    return float(sum(np.percentile(v, float(statistic), method="higher") for v in found))


def print_prior(data: Path) -> None:
    """How well the analytical prior ranks each survey, nothing learnt."""
    print(
        "\nthe prior alone       rank corr.  top-16 recall  regret of 1, 4, 16  measured/predicted"
    )
    for name, subject in _subjects(data).items():
        predicted, measured = subject.described.prior_s, subject.survey.seconds
        lost = ", ".join(f"{regret(predicted, measured, k):.1%}" for k in (1, 4, 16))
        print(
            f"{name:20}{rank_correlation(predicted, measured):12.2f}"
            f"{top_k_recall(predicted, measured, 16):15.2f}  {lost:>19}"
            f"{float(np.median(measured / predicted)):20.2f}"
        )


# ---------------------------------------------------------------------------------------- plots


def draw(found: Sequence[Curves], folder: Path) -> None:
    """One panel per task, and one over all: mean and 90 % band of best-so-far."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    mpl.rcParams |= {"svg.hashsalt": "search", "svg.fonttype": "none"}
    names = ["all tasks", *dict.fromkeys(c.task for c in found)]
    across = 3 if len(names) <= 9 else 4
    down = -(-len(names) // across)
    figure, axes = plt.subplots(
        down, across, figsize=(4.5 * across, 2.7 * down), sharex=True, squeeze=False
    )
    for name, axis in zip(names, axes.flat, strict=False):
        for searcher in SEARCHERS:
            chosen = [c.ratio for c in found if c.searcher == searcher.label]
            if name != "all tasks":
                chosen = [c.ratio for c in found if (c.task, c.searcher) == (name, searcher.label)]
            ratio = np.concatenate(chosen)
            trial = np.unique(np.geomspace(1, ratio.shape[1], 40).astype(int))
            ratio = ratio[:, trial - 1]
            low, high = np.percentile(ratio, [5, 95], axis=0)
            (line,) = axis.plot(trial, ratio.mean(axis=0), label=searcher.label)
            axis.fill_between(trial, low, high, color=line.get_color(), alpha=0.12, linewidth=0)
        axis.set(title=name, xscale="log", ylim=(0.98, 2.0))
        axis.axhline(1.05, color="grey", linewidth=0.6, linestyle=":")
    for axis in list(axes.flat)[len(names) :]:
        axis.axis("off")
    axes[0, 0].legend()
    figure.supxlabel("trials")
    figure.supylabel("best so far, over the best of the space (mean, 90 % of the seeds)")
    figure.tight_layout(rect=(0.02, 0, 1, 1))
    folder.mkdir(parents=True, exist_ok=True)
    for kind in ("svg", "png"):
        figure.savefig(folder / f"search_efficiency.{kind}", metadata={"Date": None}
                       if kind == "svg" else None, dpi=80)  # fmt: skip
    plt.close(figure)
    _slim(folder / "search_efficiency.svg")
    print(f"\nplots: {folder}/search_efficiency.svg, .png")


def _slim(picture: Path) -> None:
    """Leave out digits that nobody sees."""
    whole = picture.read_text(encoding="utf-8")
    picture.write_text(re.sub(r"(-?\d+\.\d)\d+", r"\1", whole), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure", help="measure the spaces on this machine")
    measuring.add_argument("tasks", nargs="*", metavar="TASK", help="only these")
    measuring.add_argument("--limit", type=int, default=450, help="configs drawn of a task")
    measuring.add_argument("--seconds", type=float, default=float("inf"), help="stop after these")
    measuring.add_argument("--build", action="store_true", help="make the objects, time nothing")
    measuring.add_argument("--work", type=Path, default=WORK, help="folder of what is unfinished")
    measuring.add_argument("--target", default="cpu", help="one that this machine runs")
    replaying = commands.add_parser("replay", help="search what was measured")
    replaying.add_argument("tasks", nargs="*", metavar="TASK", help="only these")
    replaying.add_argument("--seeds", type=int, default=100)
    replaying.add_argument("--trials", type=int, default=TRIALS)
    replaying.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    for command in (measuring, replaying):
        command.add_argument("--data", type=Path, default=search_surveys.FOLDER, help="surveys")
    replaying.add_argument("--out", type=Path, help="folder for plots (needs matplotlib)")
    options = parser.parse_args()
    if options.command == "measure":
        measure(options)
        return
    if options.out and importlib.util.find_spec("matplotlib") is None:
        raise SystemExit("error: plots need matplotlib: pip install 'autotune-compiler[bench]'")
    start = time.perf_counter()
    setup = Setup(data=options.data, seeds=options.seeds, trials=options.trials)
    found = replay(options.tasks, setup, options.jobs)
    print(f"{options.seeds} seeds, {time.perf_counter() - start:.0f} s")
    for near in NEAR:
        print_trials(found, near)
    print_prior(options.data)
    if options.out:
        draw(found, options.out)


if __name__ == "__main__":
    try:
        main()
    except AutotuneError as error:
        raise SystemExit(f"error: {error}") from None
