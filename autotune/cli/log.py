"""Look after tuning logs: exchange records, measure imported ones, freeze the best, mend them.

An imported record counts only after `verify` measured it here."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from autotune.atomic_file import atomic_file
from autotune.cli import flags, selecting, tables
from autotune.cli import options as opt
from autotune.command_line import Parser
from autotune.errors import ConfigError, LogError
from autotune.printable import printable

if TYPE_CHECKING:
    from autotune.db.items import Item
    from autotune.db.types import Record


def arguments(parser: Parser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, (about, declare, _) in ACTIONS.items():
        action = actions.add_parser(name, help=about, description=about)
        declare(action)
        flags.add(action, "log")


def run(options: argparse.Namespace) -> None:
    ACTIONS[options.action][2](options)


# ------------------------------------------------------------------------------- export and import


def _export_arguments(parser: Parser) -> None:
    _models(parser)
    selecting.arguments(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="default: standard output")


def _export(options: argparse.Namespace) -> None:
    from autotune.db.clock import utc_now
    from autotune.db.exchange import log_items
    from autotune.db.items import header, to_line
    from autotune.db.store import TuningLog

    wanted = selecting.selection(options, options.models)
    count = 0
    with TuningLog(options.log, read_only=True) as log, _output(options) as out:
        out.write(to_line(header(utc_now())))
        for item in log_items(log, wanted):
            out.write(to_line(item))
            count += item["kind"] == "record"
    print(
        f"{tables.counted(count, 'record')} exported",
        file=sys.stdout if options.output else sys.stderr,
    )


@contextlib.contextmanager
def _output(options: argparse.Namespace) -> Iterator[TextIO]:
    if options.output is None:
        yield sys.stdout
        return
    with (
        atomic_file(options.output, ConfigError) as out,
        io.TextIOWrapper(out, encoding="utf-8") as text,
    ):
        yield text


def _import_arguments(parser: Parser) -> None:
    parser.add_argument(
        "file", metavar="FILE", help="an exported or frozen log; - is standard input"
    )
    _trust(parser)


def _import(options: argparse.Namespace) -> None:
    source = "standard input" if options.file == "-" else Path(options.file).name
    with _items(options.file, source) as items:
        _add(options, items, source)


@contextlib.contextmanager
def _items(file: str, source: str) -> Iterator[Iterator[tuple[str, Item]]]:
    from autotune.db.frozen import frozen_items, is_frozen
    from autotune.db.items import line_items

    if file == "-":
        yield line_items(_cut(sys.stdin), source)
        return
    path = Path(file)
    if is_frozen(path):
        yield frozen_items(path)
        return
    try:
        lines = path.open(encoding="utf-8", errors="replace")
    except OSError as error:
        raise LogError(f"cannot read {file}: {error.strerror}") from None
    with lines:
        yield line_items(_cut(lines), source)


def _cut(lines: TextIO) -> Iterator[str]:
    """Its lines; one that is longer than any record comes in pieces, which does not fill the
    memory."""
    from autotune.db.items import LONGEST_LINE

    return iter(partial(lines.readline, LONGEST_LINE + 1), "")


def _merge_arguments(parser: Parser) -> None:
    parser.add_argument("others", nargs="+", metavar="LOG", help="log to take records from")
    selecting.arguments(parser)
    _trust(parser)


def _merge(options: argparse.Namespace) -> None:
    from autotune.db import files
    from autotune.db.exchange import log_items
    from autotune.db.store import TuningLog

    wanted = selecting.selection(options, ())
    for name in options.others:
        if _is_same(name, options.log):
            raise ConfigError(f"{files.shown(name)} is the log to merge into: name another one")
        with TuningLog(name, read_only=True) as other:
            items = ((f"record {n}", item) for n, item in enumerate(log_items(other, wanted), 1))
            source = other.name if other.path is None else other.path.name
            _add(options, items, source)


def _is_same(name: str, other: str) -> bool:
    from autotune.db import files

    first, second = files.file_of(name), files.file_of(other)
    if first is None or second is None:
        return name == other
    return first.resolve() == second.resolve()


def _add(options: argparse.Namespace, items: Iterator[tuple[str, Item]], source: str) -> None:
    from autotune.db.exchange import import_items
    from autotune.db.store import TuningLog

    with TuningLog(options.log) as log:
        done = import_items(log, items, source, trust=options.trust)
    parts = [f"{done.added} records added", f"{done.present} were there already"]
    if done.unknown:
        parts.append(f"{done.unknown} left out: made by another release, with steps unknown here")
    print(f"{source}: {', '.join(parts)}")
    if done.added and not options.trust:
        print("they count after `autotune log verify` has measured them here")


# ------------------------------------------------------------------------------------------ verify


def _verify_arguments(parser: Parser) -> None:
    _models(parser)
    parser.add_argument("--op", help="only tasks of this op, such as conv2d")
    flags.add(parser, *flags.TARGET, *flags.NUMERICS)
    parser.add_argument(
        "--device",
        default="local",
        metavar="local | rpc://HOST:PORT",
        help="where they are measured (default local)",
    )
    parser.add_argument(
        "--top",
        type=opt.at_least(1),
        metavar="K",
        help="of each task, only the K fastest where they were measured (default all)",
    )


def _verify(options: argparse.Namespace) -> None:
    from autotune.db.maintenance import stats
    from autotune.db.selection import Selection
    from autotune.db.store import TuningLog
    from autotune.db.verify import verify, waiting
    from autotune.target import load_target
    from autotune.tuner.resolve import component_versions
    from rpc_server.runners import runner_for

    keys = selecting.task_keys(options.models, (), options) if options.models else None
    target = load_target(options.target, options.threads)
    target = target.with_accuracy(options.accuracy).with_precision(options.precision)
    with TuningLog(options.log).must_exist() as log:
        with contextlib.closing(
            runner_for(options.device, target, cache_dir=opt.cache_dir())
        ) as runner:
            if options.device != "local" and options.target == "cpu":
                board = runner.profile().target.with_threads(options.threads)
                target = dataclasses.replace(
                    board, accuracy=target.accuracy, precision=target.precision
                )
            wanted = Selection(task_keys=keys, op=options.op)
            records = waiting(log, target, wanted, top=options.top)
            versions = component_versions()
            done = verify(log, runner, target, records, versions=versions, on_verified=_show)
        rest = stats(log).waiting
    print(f"{done.ok} verified, {done.failed} failed here, {done.lost} lost with the device")
    if rest:
        print(f"{rest} imported records still wait: of other targets, or not asked for")


def _show(imported: Record, here: Record) -> None:
    there, now = imported.result.median_s, here.result
    what = tables.seconds(now.median_s) if now.times_s else f"{now.status}: {printable(now.error)}"
    print(f"{imported.task.key}  {tables.seconds(there)} in {imported.origin}, {what} here")


# ------------------------------------------------------------------------ freeze and maintenance


def _freeze_arguments(parser: Parser) -> None:
    _models(parser)
    selecting.arguments(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FILE.json")


def _freeze(options: argparse.Namespace) -> None:
    from autotune.db.clock import utc_now
    from autotune.db.frozen import freeze
    from autotune.db.store import TuningLog

    wanted = selecting.selection(options, options.models)
    path = Path(options.output)
    with TuningLog(options.log, read_only=True) as log:
        missing = set(wanted.task_keys or ()) - {r["task_key"] for r in log.query(wanted)}
        if missing:
            fixed = [text for text in options.shape if "=" in text]
            forms = selecting.task_forms(options.models, fixed, options, log)
            missing = min((missing.intersection(keys) for keys in forms), key=len)
        count = freeze(log, wanted, path, utc_now())
    print(f"{path}: {tables.counted(count, 'record')}, {path.stat().st_size / 1e3:.0f} kB")
    if missing:
        print(f"note: without a record, so not in it: {', '.join(sorted(missing))}")


def _prune_arguments(parser: Parser) -> None:
    _models(parser)
    selecting.arguments(parser)
    parser.add_argument(
        "--keep",
        type=opt.at_least(1),
        metavar="K",
        help="delete what is slower than the K fastest of its task and target, and what was "
        "measured again",
    )
    parser.add_argument("--failures", action="store_true", help="delete failures")
    parser.add_argument(
        "--imported", action="store_true", help="delete imported records never verified"
    )
    parser.add_argument("--dry-run", action="store_true", help="only say how many")


def _prune(options: argparse.Namespace) -> None:
    from autotune.db.maintenance import Pruning, prune
    from autotune.db.store import TuningLog

    what = Pruning(keep=options.keep, failures=options.failures, imported=options.imported)
    if what == Pruning():
        raise ConfigError("say what to delete: --keep K, --failures or --imported")
    wanted = selecting.selection(options, options.models)
    with TuningLog(options.log, read_only=options.dry_run).must_exist() as log:
        count = prune(log, wanted, what, dry_run=options.dry_run)
    print(f"{tables.counted(count, 'record')} {'would go' if options.dry_run else 'deleted'}")


def _stats_arguments(_: Parser) -> None:
    """Only --log."""


def _stats(options: argparse.Namespace) -> None:
    from autotune.db.maintenance import stats
    from autotune.db.store import TuningLog

    with TuningLog(options.log, read_only=True) as log:
        found = stats(log)
        records, tasks = (
            tables.counted(found.records, "record"),
            tables.counted(found.tasks, "task"),
        )
        print(f"{log.name}: {records} of {tasks}", end="")
    print(f", {found.size_bytes / 1e6:.1f} MB, schema {found.schema}")
    if found.records:
        print(f"measured from {found.first} to {found.last}")
    for title, counts in (
        ("status", found.statuses),
        ("op", found.ops),
        ("target", found.targets),
        ("device", found.devices),
        ("origin", found.origins),
    ):
        _print_counts(title, counts)
    if found.waiting:
        print(f"{found.waiting} imported records wait to be verified: `autotune log verify`")


def _print_counts(title: str, counts: Mapping[str, int]) -> None:
    if counts:
        rows = [(name or "(unknown)", str(count)) for name, count in counts.items()]
        print("\n" + tables.table((title, "records"), rows, right=(1,)))


def _check_arguments(_: Parser) -> None:
    """Only --log."""


def _check(options: argparse.Namespace) -> None:
    from autotune.db.files import shown
    from autotune.db.repair import check

    whole, damage = check(options.log)
    name = shown(options.log)
    print(f"{name}: {tables.counted(whole, 'record')} whole")
    if not len(damage):
        return
    for row in damage.rows():
        print(f"damaged: {printable(str(row))}")
    raise LogError(
        f"tuning log {name}: {tables.counted(len(damage), 'damaged part')}; "
        f"`autotune log repair --log {name}` keeps the rest"
    )


def _repair_arguments(_: Parser) -> None:
    """Only --log."""


def _repair(options: argparse.Namespace) -> None:
    from autotune.db.files import shown
    from autotune.db.repair import repair

    done = repair(options.log)
    name = shown(options.log)
    if done is None:
        print(f"{name}: nothing is damaged")
        return
    for row in done.damage.rows():
        print(f"damaged: {printable(str(row))}")
    print(f"{name}: {tables.counted(done.records, 'record')} kept; as it was: {done.backup}")


def _upgrade_arguments(_: Parser) -> None:
    """Only --log."""


def _upgrade(options: argparse.Namespace) -> None:
    from autotune.db.maintenance import stats
    from autotune.db.store import TuningLog

    with TuningLog(options.log).must_exist() as log:
        log.claim()
        print(f"{log.name}: schema {stats(log).schema}")


def _models(parser: Parser) -> None:
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help="only these models' tasks (default all)"
    )


def _trust(parser: Parser) -> None:
    parser.add_argument(
        "--trust",
        action="store_true",
        help="let them count at once: they were measured on the same devices",
    )


ACTIONS = {
    "export": ("write records as JSON lines", _export_arguments, _export),
    "import": ("add the records of an exported or frozen log", _import_arguments, _import),
    "merge": ("add the records of other logs", _merge_arguments, _merge),
    "verify": ("measure imported records here, so that they count", _verify_arguments, _verify),
    "freeze": ("write the best records to a small file to ship", _freeze_arguments, _freeze),
    "prune": ("delete records", _prune_arguments, _prune),
    "stats": ("figures of a log", _stats_arguments, _stats),
    "check": ("list what is damaged in a log", _check_arguments, _check),
    "repair": ("keep what is whole of a damaged log", _repair_arguments, _repair),
    "upgrade": ("bring a log of an older release up to date", _upgrade_arguments, _upgrade),
}
"""Action -> (what it does, its arguments, doing it)."""
