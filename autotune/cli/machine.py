"""Measure what this machine can do, beside what its system says, and describe it in a file.

The measuring takes a few seconds once; what was found is kept until it is asked for --again.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.cli import flags, tables
from autotune.cli import options as opt
from autotune.command_line import Parser

if TYPE_CHECKING:
    from autotune.machine import Machine
    from autotune.machine.facts import Arithmetic, MachineFacts
    from autotune.machine.profile import DeviceProfile

Row = tuple[str, str, str, str]
"""What, its value with a unit, what the system believes, how much of that it is."""


def arguments(parser: Parser) -> None:
    flags.add(
        parser, *flags.TARGET, *flags.MACHINE, machine="print what this file describes instead"
    )
    parser.add_argument("--again", action="store_true", help="measure, whatever is known")
    parser.add_argument("--json", action="store_true", help="as a file for --machine has it")
    parser.add_argument("-o", "--output", metavar="FILE", help="write there (with --json)")


def run(options: argparse.Namespace) -> None:
    from autotune.errors import ConfigError

    if options.output and not options.json:
        raise ConfigError("-o writes what --json prints; name both")
    profile = _profile(options)
    if not options.json:
        print(described(profile))
        return
    text = json.dumps(profile.to_json(), indent=1) + "\n"
    if options.output is None:
        print(text, end="")
        return
    from autotune.atomic_file import write_text

    write_text(Path(options.output), text, ConfigError)
    print(f"{options.output}: {profile.device}, for --machine")


def _profile(options: argparse.Namespace) -> DeviceProfile:
    from autotune.errors import ConfigError

    if options.machine is not None:
        from autotune.machine.files import load_machine

        if options.again or options.target != "cpu":
            raise ConfigError("--machine prints a file; leave out --again and --target")
        return load_machine(options.machine)
    from autotune.measure.runners.local import LocalRunner
    from autotune.target import load_target

    target = load_target(options.target, options.threads)
    with LocalRunner(target, cache_dir=opt.cache_dir()) as runner:
        return runner.remeasure() if options.again else runner.profile()


# ------------------------------------------------------------------------------------ for people


def described(profile: DeviceProfile) -> str:
    """All that is known of a machine, a line per thing."""
    from autotune.machine import Machine
    from autotune.measure.profile import profile_lines

    machine, facts = Machine.of(profile.target, profile), profile.facts
    lines = [f"device  {profile.device}"]
    if facts is None:
        lines += [*profile_lines(profile), "no micro-benchmarks: tables fill in what is not here"]
        return "\n".join(lines)
    processor = facts.processor
    lines += [
        f"cpu     {processor.name}{f' ({processor.brand})' if processor.brand else ''}; "
        f"LLVM takes it for {processor.llvm}",
        f"can     {' '.join(processor.abilities) or '-'}",
        *profile_lines(profile),
        *disturbance_lines(facts),
        "",
        tables.table(("what", "measured", "the system says", "of it"), list(rows(machine, facts)),
                     right=(1, 2, 3)),
        "",
        tables.table(("footprint", "load", "all cores", "store", "copy", "latency"),
                     list(curve_rows(facts)), right=(0, 1, 2, 3, 4, 5)),
    ]  # fmt: skip
    return "\n".join(lines)


def disturbance_lines(facts: MachineFacts) -> Iterator[str]:
    """What else the machine did while it was measured, if that is to be known."""
    if facts.others is not None and facts.disturbed:
        yield (
            f"others  had {facts.others:.0%} of the cores meanwhile; measured again by itself "
            "when there is less of that, or now by --again"
        )


def rows(machine: Machine, facts: MachineFacts) -> Iterator[Row]:
    """A row per figure; what the machine has not is left out."""
    yield from cache_rows(machine)
    if hz := facts.clock_hz:
        said = facts.processor.said_hz
        of = f"{hz / said:.0%}" if said else ""
        yield "clock", f"{hz / 1e9:.2f} GHz", f"{said / 1e9:.2f} GHz" if said else "", of
        for width, wide in facts.clocks:
            yield f"  beside {8 * width}-bit multiply-adds", f"{wide / 1e9:.2f} GHz", "", ""
    for row in facts.arithmetic:
        yield _arithmetic_row(row, facts.clock_hz)
    for name, pairs in (("loads", facts.loads), ("stores", facts.stores)):
        for width, rate in pairs:
            yield f"{name} of {8 * width} bits", _rate(rate, facts.clock_hz), "", ""
    for name, value in (
        ("elements for all lanes", facts.broadcasts_per_s),
        ("elements gathered", facts.gathers_per_s),
    ):
        if value is not None:
            yield name, _rate(value, facts.clock_hz), "", ""
    for name, share in (
        ("additions beside multiply-adds, for nothing", facts.additions_beside),
        ("in vain beside a line that is read alone", facts.lone_line),
    ):
        if share is not None:
            yield name, f"{share:.0%}", "", ""
    for name, seconds in (
        ("addition to the next", facts.add_latency_s),
        ("a denormal number costs", facts.denormal_s),
        ("a line goes to another core in", facts.transfer_s),
        *((f"region of {n} threads", s) for n, s in facts.regions),
        *((f"{n} small pages, a load longer by", s) for n, s in facts.page_curve),
    ):
        if seconds is not None:
            yield name, _time(seconds), "", ""
    for name, bandwidth in (
        ("from another core", facts.transfer_bytes_per_s),
        ("  just written", facts.transfer_dirty_bytes_per_s),
    ):
        if bandwidth is not None:
            yield name, _bandwidth(bandwidth), "", ""
    for runs in facts.scattered:
        what = f"prefetches hide, among {tables.count(runs.footprint)}B"
        yield what, f"{runs.hidden:.0%}", "", ""
    for runs in facts.in_order:
        what = f"of {tables.count(runs.footprint)}B in order, a line beside arithmetic"
        asked = f"{_time(runs.prefetched_s)} prefetched, {_time(runs.near_s)} in L1"
        yield what, f"{_time(runs.far_s)}; {asked}", "", ""


def cache_rows(machine: Machine) -> Iterator[Row]:
    """What is really there of each cache."""
    for level, believed in enumerate((machine.l1_bytes, machine.l2_bytes, machine.l3_bytes), 1):
        if believed:
            found = machine.cache_bytes(level)
            yield f"L{level}", _size(found), _size(believed), f"{found / believed:.0%}"


def curve_rows(facts: MachineFacts) -> Iterator[tuple[str, ...]]:
    """A row per octave of footprints."""
    curves = (facts.load_curve, facts.load_curve_all, facts.store_curve, facts.copy_curve)
    latency = dict(facts.latency_curve)
    for size, _ in facts.load_curve:
        if size.bit_count() == 1:
            cells = [dict(curve).get(size) for curve in curves]
            known = [_bandwidth(c) if c is not None else "" for c in cells]
            yield (_size(size), *known, _time(latency[size]) if size in latency else "")


def _arithmetic_row(row: Arithmetic, hz: float | None) -> Row:
    width = "tile" if row.vector_bytes == _tile_bytes() else f"{8 * row.vector_bytes}-bit"
    waits = f", {_time(row.latency_s)}" + (f" = {row.latency_s * hz:.1f} cycles" if hz else "")
    rate = f"{row.multiply_adds_per_s / 1e9:.1f} G/s{waits}"
    return f"{row.kind} {row.instruction}, {width}", rate, "", ""


def _tile_bytes() -> int:
    from autotune.machine.facts import TILE_BYTES

    return TILE_BYTES


def _rate(value: float, hz: float | None) -> str:
    return f"{value / 1e9:.2f} G/s" + (f" = {value / hz:.2f} a cycle" if hz else "")


def _bandwidth(value: float) -> str:
    return f"{value / 1e9:.1f} GB/s"


def _time(seconds: float) -> str:
    return f"{seconds * 1e9:.1f} ns" if seconds < 1e-7 else tables.seconds(seconds)


def _size(count: int) -> str:
    """Bytes as caches are sold: 32 KiB, 1.5 MiB."""
    unit, name = (1 << 20, "MiB") if count >= 1 << 20 else (1 << 10, "KiB")
    value = count / unit
    digits = 0 if value == math.floor(value) or value >= 100 else 1
    return f"{value:.{digits}f} {name}"
