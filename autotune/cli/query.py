"""Show the best records of every matching task of a tuning log, the slowest task first."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from autotune.cli import options as opt
from autotune.cli import tables
from autotune.db import files
from autotune.db.query import query_file

Found = list[dict[str, Any]]


def arguments(parser: opt.Parser) -> None:
    parser.add_argument(
        "model", nargs="?", metavar="MODEL", help="only this model's tasks: .onnx file or zoo:NAME"
    )
    parser.add_argument("--shape", action="append", default=[], metavar="NAME=1x3x224x224")
    parser.add_argument("--target", help="only this target: its name, key or family")
    parser.add_argument("--op", help="only tasks of this op, such as conv2d")
    parser.add_argument(
        "--top", type=opt.at_least(1), default=1, metavar="K", help="records per task (default 1)"
    )
    parser.add_argument("--format", choices=("table", "json", "csv"), default="table")
    opt.log(parser)


def run(options: argparse.Namespace) -> None:
    keys = _task_keys(options.model, options.shape) if options.model else None
    filters = {"task_keys": keys, "op": options.op, "target": options.target, "top": options.top}
    found = _find(options.log, filters)
    if not found:
        print(f"nothing found in {options.log}", file=sys.stderr)
    if options.format == "json":
        print(json.dumps(found, indent=1))
    elif options.format == "csv":
        _print_csv(found)
    elif found:
        print(as_table(found))


def _find(log: str, filters: dict[str, Any]) -> Found:
    if not files.is_url(log):
        return query_file(Path(log), **filters)
    from autotune.db.store import TuningLog  # needs SQLAlchemy

    with TuningLog(log, read_only=True, missing_ok=True) as store:
        return store.query(**filters)


def _task_keys(model: str, shapes: list[str]) -> list[str]:
    from autotune.cli.models import load_partition  # needs onnx

    return [task.key for task in load_partition(model, opt.parse_shapes(shapes)).weights()]


_CSV = (
    "record", "task_key", "op", "description", "shapes", "target", "device", "rule", "config",
    "median_s", "gflops", "status", "model", "created",
)  # fmt: skip


def _print_csv(found: Found) -> None:
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(_CSV)
    for record in found:
        cells = (record[name] for name in _CSV)
        writer.writerow(json.dumps(c) if isinstance(c, dict) else c for c in cells)


def as_table(found: Found) -> str:
    """The records as columns for a terminal."""
    rows = [
        (
            r["task_key"],
            r["description"],
            r["target"],
            tables.seconds(r["median_s"]),
            f"{r['gflops']:.1f}" if r["gflops"] else "-",
            " ".join(f"{k}={v}" for k, v in r["config"].items()),
            r["created"][:16].replace("T", " "),
        )
        for r in found
    ]
    header = ("task", "what", "target", "time", "GFLOP/s", "config", "measured")
    return tables.table(header, rows, right=(3, 4))
