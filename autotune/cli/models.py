"""What the commands do with models. In: a model's name. Out: its partition, or it compiled."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from autotune.errors import ConfigError

if TYPE_CHECKING:
    import argparse

    from autotune.db.types import Store
    from autotune.graph.ir import Graph
    from autotune.graph.plan import Partition
    from autotune.runtime.executor import CompiledModel
    from autotune.target import Target

Shapes = dict[str, tuple[int, ...]]


def load_partition(
    model: str,
    shapes: Shapes,
    target: Target,
    calibration: str | None = None,
    log: Store | None = None,
) -> Partition:
    """The model's kernel calls, as tuning and compiling see them with that log."""
    from autotune.layouts.choose import arranged

    return arranged(load_prepared(model, shapes, target, calibration), target, log)


def load_prepared(
    model: str, shapes: Shapes, target: Target, calibration: str | None = None
) -> Graph:
    """The model's graph for the target, before layouts are chosen."""
    from autotune.frontend import load_model
    from autotune.graph.prepare import prepare

    graph = load_model(model, shapes)
    return prepare(graph, target.precision, calibration, short=target.short_tensors).graph


def compiled(options: argparse.Namespace) -> CompiledModel:
    """The model that `options` name: an artifact loaded, anything else compiled."""
    from autotune.cli.options import parse_shapes
    from autotune.runtime.artifact import is_artifact, load

    if is_artifact(options.model):
        _check_free_of_choices(options)
        return load(options.model)
    import autotune
    from autotune.cli.options import COMPILED_TOO, absent_log
    from autotune.frontend import check_name

    check_name(options.model, COMPILED_TOO)
    absent = absent_log(options)
    model = autotune.compile(
        options.model,
        target=options.target,
        log=options.log,
        threads=options.threads,
        accuracy=options.accuracy,
        precision=options.precision,
        calibration=options.calibration,
        shapes=parse_shapes(options.shape),
    )
    if absent:
        print(f"note: {absent}; every kernel gets its default schedule", file=sys.stderr)
    for note in model.notes:
        print(f"note: {note}", file=sys.stderr)
    return model


def _check_free_of_choices(options: argparse.Namespace) -> None:
    """Raise ConfigError where an option asks for what compiling has settled."""
    from autotune.cli.options import Parser, log, numerics, target, threads

    parser = Parser()
    for declare in (log, target, threads, numerics):
        declare(parser)
    given = [n for n, unset in vars(parser.parse_args([])).items() if getattr(options, n) != unset]
    if options.shape:
        given.append("shape")
    if given:
        raise ConfigError(
            f"{options.model} is compiled already, which settled --{', --'.join(given)}: compile "
            "the model again with what you want"
        )


def pinned(options: argparse.Namespace, model: CompiledModel) -> None:
    """Keep the model's threads on the cores that `options` name, if any."""
    from autotune.runtime.host import crowded, pin

    threads = model.image.target.threads
    if options.pin:
        pin(options.pin, threads)
    elif note := crowded(threads):
        print(f"note: {note}", file=sys.stderr)
