"""Roofline plot of models: every kernel between what it computes and what it moves.

    python benchmarks/machines/roofline.py MODEL... [--out build/roofline.svg] [--log tuning.db]

A dot per kernel: operations of its algorithm per second, over operations per byte; its area is
the share of the model's time that all calls of it take. Lines are the measured multiply-add peak
and the bandwidths of the caches and of memory. `--out` ends in .png or .svg (extra [bench]).
Prints the models' times beside the limit that their kernels have on this machine.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import autotune
from autotune.errors import AutotuneError
from autotune.machine.profile import DeviceProfile
from autotune.measure.runners.local import LocalRunner
from autotune.runtime.roofline import KernelProfile, kernel_profiles, model_limit_s
from autotune.target import load_target

KINDS = ("direct", "winograd", "depthwise", "other")
COLOURS = {"direct": "C0", "winograd": "C1", "depthwise": "C2", "other": "C7"}


def kind(row: KernelProfile) -> str:
    """What colour a kernel has."""
    if row.kernel.op not in ("conv2d", "matmul"):
        return "other"
    if row.kernel.algorithm.startswith("winograd"):
        return "winograd"
    # A depthwise convolution has no more weights than a few per channel.
    few = row.kernel.weight_bytes * 20 < row.kernel.input_bytes
    light = row.kernel.work_flops < 8 * row.nbytes
    return "depthwise" if few and light and row.kernel.op == "conv2d" else "direct"


def profiled(
    path: str, profile: DeviceProfile, options: argparse.Namespace
) -> tuple[float, tuple[KernelProfile, ...]]:
    """(seconds of the fastest run, kernels) of a model."""
    model = autotune.compile(path, target=profile.target, log=options.log)
    runs = [model.bench(3) for _ in range(options.rounds)]
    # Of each kernel its quietest moment: other work on the machine is not the kernel's.
    rows = zip(*(times.kernels for times in runs), strict=True)
    kernels = [min(row, key=lambda kernel: kernel.time_s) for row in rows]
    fastest_s = min(min(times.latency_s) for times in runs)
    return fastest_s, kernel_profiles(model.image, kernels, profile)


def draw(rows: dict[str, Sequence[KernelProfile]], profile: DeviceProfile, out: Path) -> None:
    """A chart per model, side by side."""
    import matplotlib as mpl

    mpl.use("Agg")
    # The same figures give the same file, and letters stay letters.
    mpl.rcParams["svg.hashsalt"] = "roofline"
    mpl.rcParams["svg.fonttype"] = "none"
    import matplotlib.pyplot as plt

    count = len(rows)
    figure, charts = plt.subplots(1, count, figsize=(5.2 * count, 4.2), squeeze=False)
    for chart, (name, kernels) in zip(charts[0], rows.items(), strict=True):
        _chart(chart, name, [k for k in kernels if k.kernel.work_flops], profile)
    figure.tight_layout()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=80, metadata={"Date": None} if out.suffix == ".svg" else None)
    if out.suffix == ".svg":
        shorten(out)


def shorten(path: Path) -> None:
    """An SVG with coordinates of one digit after the point: a fraction of its size."""
    text = re.sub(r"-?\d+\.\d{2,}", lambda found: f"{float(found[0]):.1f}", path.read_text())
    path.write_text(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """Kernels that do the same work: sums over their calls."""

    kind: str
    flops: float
    nbytes: float
    time_s: float


def dots_of(kernels: Sequence[KernelProfile]) -> list[Dot]:
    """Kernels of one model, equal ones in one."""
    groups: dict[tuple[object, ...], list[KernelProfile]] = {}
    for row in kernels:
        work = (row.kernel.op, row.kernel.algorithm, row.kernel.work_flops, row.nbytes)
        groups.setdefault(work, []).append(row)
    return [
        Dot(
            kind=kind(rows[0]),
            flops=sum(row.kernel.work_flops for row in rows),
            nbytes=sum(row.nbytes for row in rows),
            time_s=sum(row.time_s for row in rows),
        )
        for rows in groups.values()
    ]


def _chart(
    chart: Any, name: str, kernels: Sequence[KernelProfile], profile: DeviceProfile
) -> None:
    threads = profile.target.threads
    peak = profile.peak_flops * threads / 1e9
    span = [0.05, max(2.0 * row.kernel.work_flops / row.nbytes for row in kernels)]
    for level in profile.levels:
        speed = level.load_bytes_per_s * threads / 1e9
        bend = peak / speed
        chart.plot([span[0], bend], [span[0] * speed, peak], lw=0.8, color="0.6")
        chart.annotate(level.name, (span[0] * 1.1, span[0] * 1.1 * speed), fontsize=7, color="0.4")
    chart.plot(span, [peak, peak], color="0.3", lw=1)
    dots = dots_of(kernels)
    whole = sum(dot.time_s for dot in dots)
    for label in KINDS:
        ours = [dot for dot in dots if dot.kind == label]
        if ours:
            chart.scatter(
                [dot.flops / dot.nbytes for dot in ours],
                [dot.flops / dot.time_s / 1e9 for dot in ours],
                [8 + 900 * dot.time_s / whole for dot in ours],
                color=COLOURS[label], alpha=0.55, linewidths=0, label=label,
            )  # fmt: skip
    chart.set(
        xscale="log", yscale="log", xlim=span, xlabel="operations per byte", ylabel="GFLOP/s",
        title=name,
    )  # fmt: skip
    legend = chart.legend(fontsize=7, loc="lower right")
    for handle in legend.legend_handles:
        handle.set_sizes([30])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", help="zoo:NAME or an .onnx file")
    parser.add_argument("--out", type=Path, default=Path("build/roofline.svg"))
    parser.add_argument("--log", help="tuning log; without one, default schedules")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20, help="of three runs each")
    options = parser.parse_args()
    with LocalRunner(load_target("cpu", options.threads)) as runner:
        profile = runner.profile()
    rows: dict[str, Sequence[KernelProfile]] = {}
    for path in options.models:
        name = Path(path).stem if path.endswith(".onnx") else path
        fastest_s, rows[name] = profiled(path, profile, options)
        limit_s = model_limit_s(rows[name])
        print(
            f"{name}: {fastest_s * 1e3:.2f} ms, limit of its kernels {limit_s * 1e3:.2f} ms "
            f"({limit_s / fastest_s:.0%})"
        )
    draw(rows, profile, options.out)
    print(f"drawn to {options.out}")


if __name__ == "__main__":
    try:
        main()
    except AutotuneError as error:
        raise SystemExit(f"error: {error}") from None
