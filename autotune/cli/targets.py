"""List the known targets, and what the devices of this machine can do.

Copy one of the targets to a .toml file of your own to describe another.
"""

from __future__ import annotations

import argparse

from autotune.cli import tables
from autotune.command_line import Parser
from autotune.measure.devices import DEVICES, DeviceFacts
from autotune.target import Target, load_target, print_target, target_names


def arguments(parser: Parser) -> None:
    parser.add_argument("name", nargs="?", help="print this one as a target file")


def run(options: argparse.Namespace) -> None:
    if options.name:
        print(print_target(load_target(options.name)), end="")
        return
    rows = [_row(name, load_target(name)) for name in target_names()]
    header = ("target", "kind", "architecture", "CPU", "vector", "cores", "L1", "L2", "L3")
    print(tables.table(header, rows, right=(4, 5, 6, 7, 8)))
    print()
    found = [facts for driver in DEVICES.parts() for facts in driver.find()]
    print("\n".join(describe(found)))


def describe(found: list[DeviceFacts]) -> list[str]:
    """A line per device, then one where none of them is a GPU."""
    lines = [device_line(facts) for facts in found]
    if all(facts.arch == "cpu" for facts in found):
        lines.append("no GPU here: targets of kind cuda can be compiled for, not run")
    return lines


def device_line(facts: DeviceFacts) -> str:
    """What a device says it can do; what it does not say is left out."""
    figures = [
        f"{facts.multiprocessors} units" * bool(facts.multiprocessors),
        f"{facts.clock_hz / 1e6:.0f} MHz" * bool(facts.clock_hz),
        f"{tables.count(facts.memory_bytes)}B of memory" * bool(facts.memory_bytes),
        f"{facts.shared_bytes // 1024} KiB shared by a block" * bool(facts.shared_bytes),
        f"{facts.max_threads} threads in a block" * bool(facts.max_threads),
        f"{facts.warp} in step" * (facts.warp > 1),
        f"vectors of {8 * facts.vector_bytes} bits" * bool(facts.vector_bytes),
        ", ".join(facts.features),
    ]
    said = "; ".join(figure for figure in figures if figure)
    return f"{facts.kind} ({facts.arch}): {facts.name}, {facts.driver}: {said}"


def _row(name: str, target: Target) -> tuple[str, ...]:
    caches = (target.l1_bytes, target.l2_bytes, target.l3_bytes)
    return (
        f"{name} (this machine)" if name == "cpu" else name,
        target.kind,
        target.triple.split("-")[0],
        target.cpu,
        f"{target.vector_bytes * 8} bit",
        str(target.cores),
        *(f"{size // 1024} KiB" if size else "-" for size in caches),
    )
