"""Show the best records of every matching task of a tuning log, the slowest task first.

All filters must hold; with --since or --until, the best among what was measured then."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from typing import Any

from autotune.cli import flags, selecting, tables
from autotune.cli import options as opt
from autotune.command_line import Parser
from autotune.db import files
from autotune.db.damage import Damage
from autotune.db.query import query_file
from autotune.db.selection import Selection
from autotune.printable import printable

Found = list[dict[str, Any]]


def arguments(parser: Parser) -> None:
    parser.add_argument(
        "model", nargs="?", metavar="MODEL", help="only this model's tasks: .onnx file or zoo:NAME"
    )
    selecting.arguments(parser)
    parser.add_argument(
        "--top", type=opt.at_least(1), default=1, metavar="K", help="records per task (default 1)"
    )
    parser.add_argument(
        "--history", action="store_true", help="every record that was the best when measured"
    )
    parser.add_argument("--format", choices=("table", "json", "csv"), default="table")
    flags.add(parser, "log")


def run(options: argparse.Namespace) -> None:
    models = [options.model] if options.model else []
    found = _find(options.log, selecting.selection(options, models), options)
    if not found:
        print(f"nothing found in {files.shown(options.log)}", file=sys.stderr)
    if options.format == "json":
        print(json.dumps(found, indent=1))
    elif options.format == "csv":
        _print_csv(found)
    elif found:
        print(as_table(found))


def _find(log: str, wanted: Selection, options: argparse.Namespace) -> Found:
    top, history = options.top, options.history
    path = files.file_of(log)
    if path is not None and not files.exists(path):
        raise files.missing(log)
    if path is not None and not files.is_text(path) and not files.trouble(path):
        damage = Damage(log)
        found = query_file(path, wanted, top=top, over_time=history, damage=damage)
        damage.tell()
        return found
    from autotune.db.opening import open_log  # needs SQLAlchemy or NumPy

    with contextlib.closing(open_log(log)) as store:
        return store.query(wanted, top=top, history=history)


_CSV = (
    "record", "task_key", "op", "description", "shapes", "target", "device", "rule", "config",
    "median_s", "gflops", "status", "model", "created", "origin",
)  # fmt: skip


def _print_csv(found: Found) -> None:
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(_CSV)
    for record in found:
        writer.writerow(_cell(record[name]) for name in _CSV)


def _cell(value: object) -> object:
    """Numbers as they are; text as one that a terminal shows, too."""
    if isinstance(value, dict):
        return json.dumps(value)
    return printable(value) if isinstance(value, str) else value


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
