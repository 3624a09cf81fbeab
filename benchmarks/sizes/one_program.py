"""One program for all sizes of a network against a compile for each size, size by size, with rows
that are kept: it can be stopped and gone on with.

    python benchmarks/sizes/one_program.py NETWORK --folder build/sizes --prepare [--count 12]
        [--seed 0]
    python benchmarks/sizes/one_program.py NETWORK --folder build/sizes [--seconds 80] [--peers]
    python benchmarks/sizes/one_program.py NETWORK ... --folder build/sizes --table

Networks, ranges and drawn sizes are those of `any_size.py`. `--prepare` compiles what the folder
does not hold yet: the program, and the network at each size alone. Then sizes that have no row are
timed, by processor time, until `--seconds` have gone by: the program and the compile for the size
alone in turns, and with `--peers` ONNX Runtime and OpenVINO with dynamic shapes among them. A row
has the least time of each; first calls over second ones are of a size as if the program had never
met it, after a run of another size, in the median of five. `--table` prints a row of a Markdown
table per network. Each program is run once at the largest of the sizes first, so that its arena
has memory.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import autotune
from autotune.runtime.model import CompiledModel
from autotune.runtime.sized import SizedModel
from benchmarks.sizes.any_size import (
    IMAGES,
    RANGES,
    Feeds,
    Run,
    Sizes,
    drawn,
    feeds_at,
    network,
    onnxruntime_run,
    openvino_run,
)

ROUNDS, SECONDS = 40, 3.0
"""Most turns of all engines at a size, and seconds after which no further one begins."""
FIRST_CALLS = 5
Row = dict[str, Any]


class Folder:
    """What is compiled, and the rows, of one network."""

    def __init__(self, options: argparse.Namespace, name: str) -> None:
        self.name, self.stem = name, Path(name).stem
        self.root = options.folder
        self.root.mkdir(parents=True, exist_ok=True)
        self.ranges = RANGES.get(name, IMAGES)
        self.sizes = list(drawn(self.ranges, options.count, options.seed))
        self.rows_path = self.root / f"{self.stem}.jsonl"

    @property
    def program(self) -> Path:
        return cast(Path, self.root / f"{self.stem}.model")

    def alone(self, sizes: Sizes) -> Path:
        return cast(Path, self.root / f"{self.stem}-{_said(sizes)}.model")

    def rows(self) -> list[Row]:
        if not self.rows_path.exists():
            return []
        return [json.loads(line) for line in self.rows_path.read_text().splitlines()]

    def missing(self) -> Iterator[dict[str, int]]:
        """Sizes without a row."""
        there = {_said(row["sizes"]) for row in self.rows()}
        for sizes in self.sizes:
            if _said(sizes) not in there:
                there.add(_said(sizes))
                yield sizes

    def add(self, row: Row) -> None:
        with self.rows_path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def _said(sizes: Sizes) -> str:
    return "-".join(f"{symbol}{size}" for symbol, size in sizes.items())


def prepare(folder: Folder) -> None:
    """Compile what is not there."""
    proto = network(folder.name)
    if not folder.program.exists():
        start = time.perf_counter()
        made = cast(SizedModel, autotune.compile(proto, ranges=folder.ranges, threads=1))
        if not made.serves_all:
            raise SystemExit(f"{folder.name}: {made.notes[0]}")
        made.save(folder.program)
        print(f"{folder.stem}: {time.perf_counter() - start:.0f} s", *made.notes, sep="\n  ")
    inputs = autotune.load(folder.program).inputs
    for sizes in folder.missing():
        if not folder.alone(sizes).exists():
            start = time.perf_counter()
            shapes = {name: kind.at(sizes).shape for name, kind in inputs.items()}
            with autotune.compile(proto, shapes=shapes, threads=1) as alone:
                alone.save(folder.alone(sizes))
            print(f"{folder.stem} {_said(sizes)}: {time.perf_counter() - start:.0f} s", flush=True)


def measure(folder: Folder, options: argparse.Namespace) -> None:
    """Rows of sizes that have none, as long as there is time."""
    start = time.perf_counter()
    model = cast(SizedModel, autotune.load(folder.program))
    engines: dict[str, Run] = {"program": model.run}
    if options.peers:
        data = network(folder.name).SerializeToString()
        engines["onnxruntime"] = onnxruntime_run(data, 1)
        engines["openvino"] = openvino_run(data, 1)
    largest = max(folder.sizes, key=lambda sizes: math.prod(sizes.values()))
    model.run(feeds_at(model, largest))
    smallest = {symbol: low for symbol, (low, _, _) in folder.ranges.items()}
    for sizes in folder.missing():
        if time.perf_counter() - start > options.seconds:
            return
        other = feeds_at(model, smallest if sizes != smallest else folder.sizes[0])
        row = measured(folder, model, engines, other, sizes)
        folder.add(row)
        least = row["least_s"]
        print(
            f"{folder.stem} {_said(sizes)}: {least['program'] * 1e3:.2f} ms, "
            f"{row['speed']:.3f} of its speed alone, memory {row['memory']:.2f}, first call "
            f"{row['first']:.2f}", flush=True,
        )  # fmt: skip


def measured(
    folder: Folder, model: SizedModel, engines: Mapping[str, Run], before: Feeds, sizes: Sizes
) -> Row:
    """The row of a size; its results are those of the compile for it alone."""
    feeds = feeds_at(model, sizes)
    first = first_calls(model, before, feeds)
    with cast(CompiledModel, autotune.load(folder.alone(sizes))) as alone:
        for name, wanted in alone.run(feeds).items():
            np.testing.assert_allclose(model.run(feeds)[name], wanted, rtol=1e-2, atol=1e-3)
        least = in_turns({**engines, "alone": alone.run}, feeds)
        image, fixed = model._anywhere(_shapes(model, feeds)).image, alone.image
        memory = _values_bytes(image) / _values_bytes(fixed)
    return {
        "sizes": dict(sizes),
        "least_s": least,
        "speed": least["alone"] / least["program"],
        "first": statistics.median(first),
        "memory": memory,
        "load": os.getloadavg()[0],
    }


def first_calls(model: SizedModel, before: Feeds, feeds: Feeds) -> list[float]:
    """First calls of a size over second ones, each time as if it had never been met."""
    out = []
    for _ in range(FIRST_CALLS):
        model._ready.clear()
        model.run(before)
        taken = [timed(model.run, feeds) for _ in range(2)]
        out.append(taken[0] / taken[1])
    return out


def timed(run: Run, feeds: Feeds) -> float:
    """Seconds of processor time, which other load on the machine takes none of."""
    start = time.process_time()
    run(feeds)
    return time.process_time() - start


def in_turns(engines: Mapping[str, Run], feeds: Feeds) -> dict[str, float]:
    """Least seconds by engine."""
    least, start = dict.fromkeys(engines, math.inf), time.perf_counter()
    for number in range(ROUNDS):
        for name, run in engines.items():
            if number == 0:
                run(feeds)
            least[name] = min(least[name], timed(run, feeds))
        if time.perf_counter() - start > SECONDS and number >= 2:
            break
    return least


def _shapes(model: SizedModel, feeds: Feeds) -> tuple[tuple[int, ...], ...]:
    return tuple(feeds[name].shape for name in model.inputs)


def _values_bytes(image: Any) -> int:
    return int(image.arena_bytes + image.workspace_bytes)


def table(folder: Folder) -> list[str]:
    rows = folder.rows()
    speeds = [row["speed"] for row in rows]
    memory = [row["memory"] for row in rows]
    firsts = [row["first"] for row in rows]
    cells = [
        folder.stem, str(len(rows)), f"{statistics.median(speeds):.3f}, {min(speeds):.3f}",
        f"{statistics.median(firsts):.2f}, {max(firsts):.2f}",
        *(_faster(rows, peer) for peer in ("onnxruntime", "openvino")),
        f"{statistics.median(memory):.2f}, {max(memory):.2f}",
    ]  # fmt: skip
    return ["| " + " | ".join(cells) + " |"]


def _faster(rows: Sequence[Row], peer: str) -> str:
    times = [row["least_s"] for row in rows if peer in row["least_s"]]
    ratios = [least[peer] / least["program"] for least in times]
    return f"{statistics.geometric_mean(ratios):.2f}x, {min(ratios):.2f}x" if ratios else "-"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=80.0)
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("--peers", action="store_true", help="ONNX Runtime and OpenVINO too")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    folders = [Folder(options, name) for name in options.networks]
    if options.table:
        print("| network | sizes | speed over that of a compile for the size alone: median, least "
              "| first call over second: median, worst | over ONNX Runtime: mean, least | over "
              "OpenVINO | memory over a size alone: median, most |")  # fmt: skip
        print("| --- | --- | --- | --- | --- | --- | --- |")
        print("\n".join(line for folder in folders for line in table(folder)))
        return 0
    for folder in folders:
        if options.prepare:
            prepare(folder)
        else:
            measure(folder, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
