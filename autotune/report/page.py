"""The page. In: facts. Out: HTML that needs nothing but itself: no script, no request."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence

from autotune.report.facts import Facts, Ranking, RoundFacts, TaskFacts
from autotune.report.svg import Chart, bars, linear_axis, log_axis, number
from cost_model.pretrained import Quality

CURVES = 24
"""Tasks whose curves are drawn: the ones that take longest."""
_STYLE = """
:root { --text: #1f2933; --soft: #6b7785; --line: #d9dee4; --c0: #2563a8; --c1: #c2571a;
  --c2: #3d8b52; --back: #fff; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e8ec; --soft: #9aa5b1; --line: #3a444f;
  --c0: #6ea8e5; --c1: #ef9a62; --c2: #7cc691; --back: #16191d; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back);
  max-width: 1000px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.sub, .note, figcaption { color: var(--soft); } .note { font-size: .9rem; }
.cards { display: flex; flex-wrap: wrap; gap: 1rem; margin: 1.2rem 0; }
.card { border: 1px solid var(--line); border-radius: 6px; padding: .6rem 1rem; min-width: 8rem; }
.card b { display: block; font-size: 1.4rem; }
table { border-collapse: collapse; font-size: .88rem; width: 100%; }
th, td { text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; } .right { text-align: right; } td.right { white-space: nowrap; }
  td:last-child { overflow-wrap: anywhere; }
.curves { display: grid; grid-template-columns: repeat(auto-fill, minmax(300px, 1fr)); gap: 1rem; }
figure { margin: 0; } figcaption { font-size: .8rem; overflow-wrap: anywhere; }
svg { max-width: 100%; height: auto; } .grid { stroke: var(--line); stroke-width: .6; }
.axis { stroke: var(--soft); fill: none; } text { fill: var(--text); font-size: 11px; }
.name { fill: var(--soft); } .line { fill: none; stroke-width: 2; }
.line.s0 { stroke: var(--c0); } .line.s1 { stroke: var(--c1); stroke-dasharray: 5 4; }
.line.s2 { stroke: var(--soft); } .dot { fill-opacity: .75; }
.dot.s0, .bar.s0 { fill: var(--c0); } .dot.s1, .bar.s1 { fill: var(--c1); }
.dot.s2, .bar.s2 { fill: var(--c2); }
"""
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
        _section("End to end", _whole(facts)),
        _section("Time per kernel", _kernels(facts)),
        _section("Roofline", _roofline(facts)),
        _section("Search", _curves(facts)),
        _section("Failures by reason", _failures(facts)),
        _section("Cost model", _ranking(facts.rankings) + _rounds(facts.rounds)),
        _section("Environment", _environment(facts)),
    ]
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(parts)}</body></html>\n"
    )


def seconds(value: float | None) -> str:
    """A time with three digits and its unit; a dash for none."""
    if value is None or not math.isfinite(value):
        return "–"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def _section(title: str, body: str) -> str:
    return f"<section><h2>{html.escape(title)}</h2>{body}</section>"


def _note(text: str) -> str:
    return f'<p class="note">{html.escape(text)}</p>'


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    def line(tag: str, cells: Sequence[str]) -> str:
        opened = [f'{tag} class="right"' if i in right else tag for i in range(len(cells))]
        marked = (f"<{o}>{html.escape(c)}</{tag}>" for o, c in zip(opened, cells, strict=True))
        return f"<tr>{''.join(marked)}</tr>"

    body = "".join(line("td", row) for row in rows)
    return f"<table><thead>{line('th', header)}</thead><tbody>{body}</tbody></table>"


def _summary(facts: Facts) -> str:
    before, after, how = facts.before_s, facts.after_s, "kernels' sum"
    if facts.latency is not None:
        before, after, how = facts.latency.before_s, facts.latency.after_s, "end to end"
    missing = sum(t.best_s is None for t in facts.tasks)
    cards = [
        (f"{how} before", seconds(before)),
        (f"{how} after", seconds(after)),
        ("faster", _gain(before, after)),
        ("trials", str(sum(t.trials for t in facts.tasks))),
        ("tasks", str(len(facts.tasks))),
    ]
    body = "".join(
        f'<div class="card"><b>{html.escape(value)}</b>{html.escape(name)}</div>'
        for name, value in cards
    )
    note = "Before: default schedules."
    if facts.latency is None:
        note += (
            " The whole model was not measured: a sum of kernels instead, every task's time times "
            "its calls. Runs of `tune` on this machine measure it, unless they are short."
        )
        if missing:
            note += f" {missing} tasks have no record yet, so there is no sum."
    return f'<div class="cards">{body}</div>{_note(note)}'


def _gain(before_s: float | None, after_s: float | None) -> str:
    return f"{before_s / after_s:.2f}×" if before_s and after_s else "–"


def _whole(facts: Facts) -> str:
    if not facts.latencies:
        return _note("The log has no run of the whole model.")
    rows = [
        (
            v.created[:16].replace("T", " "),
            v.device,
            seconds(v.before_s),
            seconds(v.after_s),
            _gain(v.before_s, v.after_s),
            f"{seconds(min(v.after))} to {seconds(max(v.after))}",
            seconds(v.kernels_before_s),
            seconds(v.kernels_after_s),
        )
        for v in facts.latencies[-RUNS:]
    ]
    header = (
        "measured", "device", "before", "after", "gain", "spread of after", "kernels before",
        "kernels after",
    )  # fmt: skip
    note = (
        "Medians of whole runs, in turns at the end of a tuning run: compiled with default "
        "schedules, and with the best of the log. Beside them the sums of the kernels' times, "
        "each measured by itself."
    )
    return _table(header, rows, right=(2, 3, 4, 5, 6, 7)) + _note(note)


def _heaviest(tasks: Sequence[TaskFacts]) -> list[TaskFacts]:
    return sorted(tasks, key=lambda t: -(t.best_s or 0.0) * t.calls)


def _kernels(facts: Facts) -> str:
    timed = [t for t in _heaviest(facts.tasks) if t.best_s is not None]
    whole = math.fsum(t.calls * (t.best_s or 0.0) for t in timed) or 1.0
    shown = [
        (
            f"{t.what} ×{t.calls}",
            t.calls * (t.best_s or 0.0),
            f"{seconds(t.calls * (t.best_s or 0.0))}, {t.calls * (t.best_s or 0.0) / whole:.0%}",
        )
        for t in timed[:CURVES]
    ]
    rows = [
        (
            t.key, t.name[:60], str(t.calls), seconds(t.default_s), seconds(t.best_s),
            f"{t.default_s / t.best_s:.2f}×" if t.default_s and t.best_s else "–",
            number(t.flops / t.best_s / 1e9) if t.best_s else "–",
            f"{t.roofline_s / t.best_s:.0%}" if t.best_s else "–",
            f"{t.trials} ({t.failures})", t.best_config,
        )
        for t in _heaviest(facts.tasks)
    ]  # fmt: skip
    header = (
        "task", "nodes", "calls", "before", "after", "gain", "GFLOP/s", "of roofline",
        "trials (failed)", "best config",
    )  # fmt: skip
    chart = bars(shown) if shown else _note("Nothing measured yet.")
    return chart + _table(header, rows, right=(2, 3, 4, 5, 6, 7, 8))


def _roofline(facts: Facts) -> str:
    profile, threads = facts.profile, facts.target.threads
    dots = [t for t in facts.tasks if t.best_s and t.flops]
    if not dots:
        return _note("Nothing measured yet.")
    peak = profile.peak_flops * threads
    rates = [t.flops / t.best_s / 1e9 for t in dots if t.best_s]
    intensity = log_axis("floating-point operations per byte", [t.flops / t.nbytes for t in dots])
    rate = log_axis("GFLOP/s", [*rates, peak / 1e9])
    chart = Chart(intensity, rate, width=720, height=340)
    for level in profile.levels:
        speed = level.load_bytes_per_s * threads
        points = _roof(intensity.low, intensity.high, rate.low, peak, speed)
        chart.line(points, "s2", f"{level.name}: {speed / 1e9:.0f} GB/s")
    most = max(t.calls * (t.best_s or 0.0) for t in dots)
    for task in dots:
        assert task.best_s
        share = task.calls * task.best_s / most
        chart.dot(
            task.flops / task.nbytes,
            task.flops / task.best_s / 1e9,
            "s1" if task.flops / task.best_s > peak else "s0",
            f"{task.what}: {task.flops / task.best_s / 1e9:.1f} GFLOP/s",
            3 + 7 * math.sqrt(share),
        )
    note = (
        f"GFLOP/s over operations per byte. Peak {peak / 1e9:.0f} GFLOP/s; the slopes are "
        f"{', '.join(level.name for level in profile.levels)}, each as measured. Area: share of "
        "the model's time. Above the peak, in another colour: algorithms that compute less than "
        "the operations counted here (Winograd)."
    )
    return chart.text() + _note(note)


def _roof(
    low: float, high: float, floor: float, peak: float, bytes_per_s: float
) -> list[tuple[float, float]]:
    """A bandwidth's slope up to the peak, from where it enters the chart at its floor."""
    start = max(low, floor * 1e9 / bytes_per_s)
    ridge = min(max(peak / bytes_per_s, start), high)
    top = min(peak, ridge * bytes_per_s) / 1e9
    return [(start, min(peak, start * bytes_per_s) / 1e9), (ridge, top), (high, top)]


def _curves(facts: Facts) -> str:
    drawn = [t for t in _heaviest(facts.tasks) if sum(map(math.isfinite, t.curve)) > 1][:CURVES]
    if not drawn:
        return _note("No task has two measured candidates yet.")
    figures = "".join(_curve(task) for task in drawn)
    note = "Best time so far over trials; dashed: the roofline of direct code."
    return f'{_note(note)}<div class="curves">{figures}</div>'


def _curve(task: TaskFacts) -> str:
    points = [(n, s) for n, s in enumerate(task.curve, start=1) if math.isfinite(s)]
    least = min(points[-1][1], task.roofline_s) if task.roofline_s else points[-1][1]
    trials = linear_axis("trials", max(2.0, float(len(task.curve))), low=1.0)
    chart = Chart(
        trials, log_axis("time", [least, points[0][1]]), width=320, height=190, label_y=seconds
    )
    chart.line(points, "s0", f"{task.what}: {seconds(points[-1][1])}", steps=True)
    if task.roofline_s:
        ends = [(1.0, task.roofline_s), (trials.high, task.roofline_s)]
        chart.line(ends, "s1", f"roofline {seconds(task.roofline_s)}")
    caption = html.escape(f"{task.what} ×{task.calls}")
    return f"<figure>{chart.text()}<figcaption>{caption}</figcaption></figure>"


def _failures(facts: Facts) -> str:
    rows = [(reason, float(n), str(n)) for reason, n in facts.failures]
    found = bars(rows, kind="s1") if rows else _note("No candidate failed.")
    if facts.lost:
        found += _note(f"Not counted, for the device was lost: {facts.lost}.")
    return found


def _ranking(rankings: Sequence[Ranking]) -> str:
    if not rankings:
        return _note("Too few records to judge by.")
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
    note = (
        "Means over tasks. Recall: of the fastest 8, the share among the 8 predicted fastest. "
        "Regret: how much slower the best of the 4 predicted fastest is than the fastest."
    )
    return _table(header, rows, right=(2, 3, 4, 5)) + _note(note)


def _rounds(rounds: Sequence[RoundFacts]) -> str:
    if not rounds:
        return _note("The log keeps no rankings of these tasks' rounds.")
    rows = [
        (
            r.created[:16].replace("T", " "),
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
    note = (
        "As candidates were ranked before they were measured, up to each round of a run, means "
        "over its tasks. Recall: of the fastest quarter, the share in the quarter predicted to be "
        "fastest. Regret: how much slower the one predicted to be fastest is than the fastest."
    )
    return _table(header, rows, right=(1, 2, 3, 4, 5, 6)) + _note(note)


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
    return _table(("what", "value"), rows)


def _size(nbytes: int) -> str:
    return f"{number(nbytes)}B " if nbytes else ""
