"""The page. In: facts. Out: HTML that needs nothing but itself: no request is made, and the only
script sorts tables."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from autotune.db.types import Latency
from autotune.printable import printable
from autotune.report.elements import (
    Cell,
    cards,
    count_cell,
    document,
    gain,
    gain_cell,
    named,
    note,
    seconds,
    section,
    settings,
    share_cell,
    table,
    time_cell,
)
from autotune.report.facts import Facts, Ranking, RoundFacts, TaskFacts
from autotune.report.importance import Importance
from autotune.report.network import drawing
from autotune.report.plots import CURVES, curves, heaviest, roofline
from autotune.report.svg import bars, number
from cost_model.pretrained import Quality

ROUNDS, RUNS = 40, 20
"""The latest ones are shown."""


def page(facts: Facts) -> str:
    """The whole report."""
    title = f"Tuning of {facts.model}"
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f'<p class="sub">{html.escape(facts.profile.device)}, target '
        f"{html.escape(facts.target.key)}, log {html.escape(facts.log)}</p>",
        _summary(facts),
        section("End to end", _whole(facts)),
        section("Compared with an earlier run", _compared(facts)),
        section("Time per kernel", _kernels(facts)),
        section("The network", _network(facts)),
        section("Roofline", roofline(facts)),
        *([section("On boards", _on_boards(facts.boards))] if facts.boards else []),
        section("Search", curves(facts)),
        section("Parameters", _parameters(facts.importances)),
        section("Failures by reason", _failures(facts)),
        section("Cost model", _ranking(facts.rankings) + _rounds(facts.rounds)),
        section("Environment", _environment(facts)),
    ]
    # Names are a stranger's: marks of direction would reorder what is read here, too.
    return "\n".join(map(printable, document(title, "".join(parts)).split("\n")))


def _summary(facts: Facts) -> str:
    """What was measured whole, and what kernels add up to: two things, told apart."""
    before, after, groups = facts.before_s, facts.after_s, []
    if facts.latency is not None:
        run = facts.latency
        groups.append(
            cards(
                [
                    (seconds(run.before_s), "end to end before"),
                    (seconds(run.after_s), "end to end after"),
                    (gain(run.before_s, run.after_s), "faster"),
                ],
                f"The whole model, as the run of {_moment(run.created)} measured it",
            )
        )
    groups.append(
        cards(
            [
                (seconds(before), "kernels' sum before"),
                (seconds(after), "kernels' sum after"),
                (gain(before, after), "faster"),
                (str(sum(t.trials for t in facts.tasks)), "trials"),
                (str(len(facts.tasks)), "tasks"),
            ],
            "Its kernels, each measured by itself: best of the log as it is now",
        )
    )
    return "".join(groups) + note(_explained(facts))


def _explained(facts: Facts) -> str:
    missing = sum(t.best_s is None for t in facts.tasks)
    text = "Before: default schedules. "
    if facts.latency is None:
        text += (
            "The whole model was not measured: runs of `tune` on this machine measure it, unless "
            "they are short. "
        )
    elif facts.later_trials:
        text += (
            f"{facts.later_trials} trials came after the whole model was measured: the kernels "
            "below may be faster than those it ran with. "
        )
    if missing:
        text += f"{missing} tasks have no record yet, so there is no sum. "
    return text.strip()


def _moment(created: str) -> str:
    return created[:16].replace("T", " ")


def _whole(facts: Facts) -> str:
    if not facts.latencies:
        return note("The log has no run of the whole model.")
    rows = [
        (
            _moment(v.created),
            v.device,
            time_cell(v.before_s),
            time_cell(v.after_s),
            gain_cell(v.before_s, v.after_s),
            f"{seconds(min(v.after))} to {seconds(max(v.after))}",
            time_cell(v.kernels_before_s),
            time_cell(v.kernels_after_s),
        )
        for v in facts.latencies[-RUNS:]
    ]
    header = (
        "measured", "device", "before", "after", "gain", "spread of after", "kernels before",
        "kernels after",
    )  # fmt: skip
    text = (
        "Medians of whole runs, in turns at the end of a tuning run: compiled with default "
        "schedules, and with the best of the log. Beside them the sums of the kernels' times, "
        "each measured by itself."
    )
    return table(header, rows, right=(2, 3, 4, 5, 6, 7)) + note(text)


def _on_boards(runs: Sequence[Latency]) -> str:
    rows = [
        (
            _moment(v.created),
            v.device,
            v.target_key,
            time_cell(v.after_s),
            f"{seconds(min(v.after))} to {seconds(max(v.after))}",
            str(len(v.after)),
            time_cell(v.kernels_after_s),
        )
        for v in runs[-RUNS:]
    ]
    header = ("measured", "device", "target", "median", "spread", "runs", "kernels")
    text = (
        "Whole runs that `autotune bench --device --log` timed, compiled with the best schedules "
        "of the log as it was then; beside them the sum of the kernels' times in their places."
    )
    return table(header, rows, right=(3, 4, 5, 6)) + note(text)


def _compared(facts: Facts) -> str:
    """Tasks whose best time is another one than in the earlier run, the largest change first."""
    if not facts.earlier:
        return note(
            "There is no earlier run of the whole model to compare with; `autotune report --since "
            "DATE` compares with the log as it was then, `--against LOG` with another log."
        )
    both = [t for t in facts.tasks if t.best_s and t.earlier_s]
    saved = sorted(both, key=lambda t: -abs(t.calls * ((t.earlier_s or 0) - (t.best_s or 0))))
    rows = [
        (
            t.what, count_cell(t.calls), time_cell(t.earlier_s), time_cell(t.best_s),
            gain_cell(t.earlier_s, t.best_s),
        )
        for t in saved
        if t.earlier_s != t.best_s
    ]  # fmt: skip
    then = math.fsum(t.calls * (t.earlier_s or 0.0) for t in both)
    now = math.fsum(t.calls * (t.best_s or 0.0) for t in both)
    text = (
        f"Compared with {facts.earlier}: {len(both)} of {len(facts.tasks)} tasks were measured "
        f"then too, {seconds(then)} then and {seconds(now)} now in all ({gain(then, now)}); "
        f"{len(rows)} have another best time."
    )
    header = ("task", "calls", "then", "now", "faster")
    return note(text) + (table(header, rows, right=(1, 2, 3, 4)) if rows else "")


def _kernels(facts: Facts) -> str:
    timed = [t for t in heaviest(facts.tasks) if t.best_s is not None]
    whole = math.fsum(_weight(t) for t in timed) or 1.0
    shown = [
        (
            f"{t.what} ×{t.calls}",
            _weight(t),
            f"{seconds(_weight(t))}, {_weight(t) / whole:.0%}",
        )
        for t in timed[:CURVES]
    ]
    rows = [_kernel(t, whole) for t in heaviest(facts.tasks)]
    header = (
        "task and nodes", "calls", "before", "after", "gain", "share", "GFLOP/s", "of roofline",
        "trials", "failed", "best config",
    )  # fmt: skip
    text = (
        "Seconds of a call. Share: of the sum over all calls. Roofline: the least time in which "
        "direct code can do the task, its operations at the measured peak or its bytes at the "
        "measured bandwidth, whichever takes longer; it is what can be achieved without an "
        "algorithm that computes less (Winograd, Strassen), which may come out above 100%."
    )
    chart = bars(shown) if shown else note("Nothing measured yet.")
    return chart + note(text) + table(header, rows, right=(1, 2, 3, 4, 5, 6, 7, 8, 9))


def _kernel(t: TaskFacts, whole_s: float) -> tuple[Cell | str, ...]:
    rate = t.flops / t.best_s / 1e9 if t.best_s else None
    return (
        named(t.key, t.name[:60]), count_cell(t.calls), time_cell(t.default_s),
        time_cell(t.best_s), gain_cell(t.default_s, t.best_s),
        share_cell(_weight(t) / whole_s if t.best_s else None),
        Cell(text="–" if rate is None else number(rate), value=rate),
        share_cell(t.roofline_s / t.best_s if t.best_s else None),
        count_cell(t.trials), count_cell(t.failures), settings(t.best_config),
    )  # fmt: skip


def _weight(t: TaskFacts) -> float:
    """Seconds of all its calls."""
    return t.calls * (t.best_s or 0.0)


def _network(facts: Facts) -> str:
    if not facts.calls:
        return note("The network has no kernels.")
    best = {t.key: t.best_s for t in facts.tasks if t.best_s is not None}
    label = {key: seconds(value) for key, value in best.items()}
    text = (
        f"The {len(facts.calls)} kernel calls in the order in which they run, with what each "
        "reads from which; bars and discs: time of a call. Point at one for the model's own nodes."
    )
    return note(text) + f'<div class="tall">{drawing(facts.calls, best, label)}</div>'


def _parameters(importances: Sequence[Importance]) -> str:
    if not importances:
        return note("Too few records to judge by.")
    rows = [
        (i.rule, i.param, share_cell(i.share), count_cell(i.tasks), count_cell(i.samples))
        for i in importances
    ]
    text = (
        "How much of the spread of measured times (of their logarithms) a parameter explains by "
        "itself; what it does together with others is not in it. Means over tasks with enough "
        "candidates."
    )
    header = ("params", "parameter", "explains", "tasks", "samples")
    return note(text) + table(header, rows, right=(2, 3, 4))


def _failures(facts: Facts) -> str:
    rows = [(reason, float(n), str(n)) for reason, n in facts.failures]
    found = bars(rows, kind="s1") if rows else note("No candidate failed.")
    if facts.lost:
        found += note(f"Not counted, for the device was lost: {facts.lost}.")
    return found


def _ranking(rankings: Sequence[Ranking]) -> str:
    if not rankings:
        return note("Too few records to judge by.")
    rows = []
    for ranking in rankings:
        rows.append((ranking.rule, "the prior alone", *_cells(ranking.samples, ranking.prior)))
        if ranking.learnt is not None:
            cells = _cells(ranking.samples, ranking.learnt)
            rows.append((ranking.rule, "learnt from the other tasks", *cells))
    header = (
        "params",
        "predicted by",
        "samples",
        "rank correlation",
        "top-8 recall",
        "regret of 4",
    )
    text = (
        "Means over tasks. Recall: of the fastest 8, the share among the 8 predicted fastest. "
        "Regret: how much slower the best of the 4 predicted fastest is than the fastest."
    )
    return table(header, rows, right=(2, 3, 4, 5)) + note(text)


def _rounds(rounds: Sequence[RoundFacts]) -> str:
    if not rounds:
        return note("The log keeps no rankings of these tasks' rounds.")
    rows = [
        (
            _moment(r.created),
            str(r.round),
            str(r.tasks),
            str(r.samples),
            f"{r.rank_correlation:.2f}",
            f"{r.top_recall:.0%}",
            _regret(r.regret),
        )
        for r in rounds[-ROUNDS:]
    ]
    header = ("measured", "round", "tasks", "samples", "rank correlation", "recall", "regret")
    text = (
        "As candidates were ranked before they were measured, up to each round of a run, means "
        "over its tasks. Recall: of the fastest quarter, the share in the quarter predicted to be "
        "fastest. Regret: how much slower the one predicted to be fastest is than the fastest."
    )
    return table(header, rows, right=(1, 2, 3, 4, 5, 6)) + note(text)


def _cells(samples: int, quality: Quality) -> tuple[str, ...]:
    if not quality.tasks:
        return str(samples), "–", "–", "–"
    return (
        str(samples),
        f"{quality.rank_correlation:.2f}",
        f"{quality.top_recall:.0%}",
        _regret(quality.regret),
    )


def _regret(value: float) -> str:
    """Infinity: what was predicted to be fastest failed."""
    return f"{value:.1%}" if math.isfinite(value) else "failed"


def _environment(facts: Facts) -> str:
    profile, target = facts.profile, facts.target
    levels = ", ".join(
        f"{level.name} {_size(level.size_bytes)}{level.load_bytes_per_s / 1e9:.0f} GB/s"
        for level in profile.levels
    )
    rows = [
        ("target", f"{target.key}, {target.threads} thread(s), accuracy {target.accuracy}"),
        ("FMA peak of a core", f"{profile.peak_flops / 1e9:.1f} GFLOP/s"),
        ("memory levels", levels),
        *facts.environment,
    ]
    return table(("what", "value"), rows)


def _size(nbytes: int) -> str:
    return f"{number(nbytes)}B " if nbytes else ""
