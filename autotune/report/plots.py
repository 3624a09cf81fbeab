"""Plots of a report. In: facts. Out: the roofline and the search of each task, as SVG with their
legends."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from autotune.report.elements import note, seconds
from autotune.report.facts import Facts, TaskFacts
from autotune.report.svg import Chart, linear_axis, log_axis, number

CURVES = 24
"""Tasks whose curves are drawn: the ones that take longest."""
LABELLED = 12
"""Points of the roofline that have a number in the legend: the ones that take longest."""


def heaviest(tasks: Sequence[TaskFacts]) -> list[TaskFacts]:
    """By the time of all calls, longest first; what was not measured comes last."""
    return sorted(tasks, key=lambda t: -(t.calls * (t.best_s or t.default_s or 0.0)))


def roofline(facts: Facts) -> str:
    """Rates over operations per byte, under the machine's measured limits."""
    profile, threads = facts.profile, facts.target.threads
    dots = heaviest([t for t in facts.tasks if t.best_s and t.flops])
    if not dots:
        return note("Nothing measured yet.")
    peak = profile.peak_flops * threads
    intensity = log_axis("floating-point operations per byte", [t.flops / t.nbytes for t in dots])
    rate = log_axis("GFLOP/s", [*map(_rate, dots), peak / 1e9])
    chart = Chart(intensity, rate, width=720, height=360)
    for level in profile.levels:
        speed = level.load_bytes_per_s * threads
        points = _roof(intensity.low, intensity.high, rate.low, peak, speed)
        said = f"{level.name}: {speed / 1e9:.0f} GB/s"
        chart.line(points, "s2", said)
        chart.write(*points[0], said)
    chart.write(intensity.high, peak / 1e9, f"peak {number(peak / 1e9)} GFLOP/s", "end")
    most = max(t.calls * (t.best_s or 0.0) for t in dots)
    for place, task in enumerate(dots, start=1):
        share = task.calls * (task.best_s or 0.0) / most
        at = task.flops / task.nbytes, _rate(task)
        chart.dot(*at, _kind(task, peak), f"{task.what}: {_rate(task):.1f} GFLOP/s",
                  3 + 7 * math.sqrt(share))  # fmt: skip
        if place <= LABELLED:
            chart.write(*at, str(place), "middle")
    text = (
        "GFLOP/s over operations per byte. The flat line is the measured peak of multiply-adds, "
        "the slopes are measured bandwidths. Area: share of the model's time."
    )
    return note(text) + chart.text() + _legend(dots, peak)


def _legend(dots: Sequence[TaskFacts], peak: float) -> str:
    kinds = [
        ("s0", "direct code: at most the peak"),
        (
            "s1",
            "above the peak: algorithms that compute less than is counted (Winograd, Strassen)",
        ),
    ]
    lines = [
        f'<li><span class="key {kind}"></span>{html.escape(text)}</li>' for kind, text in kinds
    ]
    lines += [
        f'<li><span class="key {_kind(task, peak)}"></span><b>{place}</b> '
        f"{html.escape(task.what)} ×{task.calls}: {number(_rate(task))} GFLOP/s</li>"
        for place, task in enumerate(dots[:LABELLED], start=1)
    ]
    return f'<ul class="legend">{"".join(lines)}</ul>'


def _rate(task: TaskFacts) -> float:
    """GFLOP/s of the best."""
    return task.flops / task.best_s / 1e9 if task.best_s else 0.0


def _kind(task: TaskFacts, peak: float) -> str:
    return "s1" if _rate(task) * 1e9 > peak else "s0"


def _roof(
    low: float, high: float, floor: float, peak: float, bytes_per_s: float
) -> list[tuple[float, float]]:
    """A bandwidth's slope up to the peak, from where it enters the chart at its floor."""
    start = max(low, floor * 1e9 / bytes_per_s)
    ridge = min(max(peak / bytes_per_s, start), high)
    top = min(peak, ridge * bytes_per_s) / 1e9
    return [(start, min(peak, start * bytes_per_s) / 1e9), (ridge, top), (high, top)]


def curves(facts: Facts) -> str:
    """Every trial of the heaviest tasks, and the best so far."""
    drawn = [t for t in heaviest(facts.tasks) if sum(map(math.isfinite, t.curve)) > 1][:CURVES]
    if not drawn:
        return note("No task has two measured candidates yet.")
    figures = "".join(map(_curve, drawn))
    text = (
        "Time of every trial (dots; crosses at the upper edge failed) and the best so far (line), "
        "over trials in the order of the log; dashed: the roofline of direct code."
    )
    return f'{note(text)}<div class="curves">{figures}</div>'


def _curve(task: TaskFacts) -> str:
    points = [(n, s) for n, s in enumerate(task.curve, start=1) if math.isfinite(s)]
    tried = [(n, s) for n, s in enumerate(task.trials_s, start=1) if math.isfinite(s)]
    least = min(points[-1][1], task.roofline_s or math.inf)
    trials = linear_axis("trials", max(2.0, float(len(task.curve))), low=1.0)
    chart = Chart(
        trials, log_axis("time", [least, *(s for _, s in tried)]), width=320, height=200,
        label_y=seconds,
    )  # fmt: skip
    for n, s in tried:
        chart.dot(n, s, "trial", f"trial {n}: {seconds(s)}", 1.8)
    for n, s in enumerate(task.trials_s, start=1):
        if math.isinf(s):
            chart.cross(n, f"trial {n} failed")
    chart.line(points, "s0", f"{task.what}: {seconds(points[-1][1])}", steps=True)
    if task.roofline_s:
        ends = [(1.0, task.roofline_s), (trials.high, task.roofline_s)]
        chart.line(ends, "s1", f"roofline {seconds(task.roofline_s)}")
    caption = html.escape(f"{task.what} ×{task.calls}")
    return f"<figure>{chart.text()}<figcaption>{caption}</figcaption></figure>"
