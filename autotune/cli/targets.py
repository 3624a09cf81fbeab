"""List the known targets. Copy one of them to a .toml file of your own to describe another."""

from __future__ import annotations

import argparse

from autotune.cli import options as opt
from autotune.cli import tables
from autotune.target import Target, load_target, print_target, target_names


def arguments(parser: opt.Parser) -> None:
    parser.add_argument("name", nargs="?", help="print this one as a target file")


def run(options: argparse.Namespace) -> None:
    if options.name:
        print(print_target(load_target(options.name)), end="")
        return
    rows = [_row(name, load_target(name)) for name in target_names()]
    header = ("target", "architecture", "CPU", "vector", "cores", "L1", "L2", "L3")
    print(tables.table(header, rows, right=(3, 4, 5, 6, 7)))


def _row(name: str, target: Target) -> tuple[str, ...]:
    caches = (target.l1_bytes, target.l2_bytes, target.l3_bytes)
    return (
        f"{name} (this machine)" if name == "cpu" else name,
        target.triple.split("-")[0],
        target.cpu,
        f"{target.vector_bytes * 8} bit",
        str(target.cores),
        *(f"{size // 1024} KiB" if size else "-" for size in caches),
    )
