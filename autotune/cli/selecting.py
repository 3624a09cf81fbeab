"""Options that select records of a log, for `query` and `log`. Standard library only, unless a
model is named."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from autotune.cli import flags
from autotune.cli import options as opt
from autotune.db.selection import Selection, parse_shape
from autotune.errors import ConfigError
from autotune.exactness import ACCURACIES, precision_named

if TYPE_CHECKING:
    from autotune.db.types import LogStore


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--op", help="only tasks of this op, such as conv2d")
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="1x56x*x64",
        help="only tasks with a tensor of this shape; NAME=1x3x224x224 fixes a MODEL's input",
    )
    parser.add_argument("--target", help="only this target: its name, key or family")
    parser.add_argument("--accuracy", choices=ACCURACIES, help="only for targets of this accuracy")
    parser.add_argument(
        "--precision",
        choices=opt.PRECISIONS,
        help="only for targets of this precision, and MODEL's tasks in it",
    )
    flags.add(parser, "calibration")
    parser.add_argument("--device", help="only what this device measured")
    parser.add_argument(
        "--since", type=opt.date(end=False), metavar="DATE", help="measured then or later, in UTC"
    )
    parser.add_argument(
        "--until", type=opt.date(end=True), metavar="DATE", help="measured then or earlier, in UTC"
    )


def selection(options: argparse.Namespace, models: Sequence[str]) -> Selection:
    """What the options select. Raises ConfigError, LogError, ModelError."""
    shapes = [text for text in options.shape if "=" not in text]
    fixed = [text for text in options.shape if "=" in text]
    if len(shapes) > 1:
        raise ConfigError(f"--shape {shapes[1]}: one shape of a tensor at most")
    if fixed and not models:
        raise ConfigError(f"--shape {fixed[0]} fixes a model's input: name the MODEL")
    return Selection(
        task_keys=task_keys(models, fixed, options) if models else None,
        op=options.op,
        shape=parse_shape(shapes[0]) if shapes else None,
        target=options.target,
        accuracy=options.accuracy,
        precision=precision_named(options.precision) if options.precision else None,
        device=options.device,
        since=options.since,
        until=options.until,
    )


def task_keys(
    models: Sequence[str], shapes: Sequence[str], options: argparse.Namespace
) -> list[str]:
    """Keys of the models' tasks in the options' precision, as any target has them, each once."""
    forms = task_forms(models, shapes, options)
    return list(dict.fromkeys(key for form in forms for key in form))


def task_forms(
    models: Sequence[str],
    shapes: Sequence[str],
    options: argparse.Namespace,
    log: LogStore | None = None,
) -> tuple[list[str], ...]:
    """Keys of the models' tasks: where attention is one of them, and where it is three; where
    tensors between kernels are short too; in the layouts that the log would give values here; in
    each that it could."""
    from autotune.compiler.layout_costs import choose_layouts
    from autotune.compiler.prepare import prepare
    from autotune.compiler.rewriting import rewriting
    from autotune.frontend import load_model  # needs onnx
    from autotune.placement.layout_choice import apply
    from autotune.placement.layout_problem import problem_of
    from autotune.placement.partition import partition
    from autotune.target import load_target
    from autotune.types import SHORT_FLOATS

    fixed = opt.parse_shapes(shapes)
    precision = precision_named(options.precision or "float32")
    loaded = [load_model(model, fixed) for model in models]
    shorts = ("", precision) if precision in SHORT_FLOATS else ("",)
    here = load_target("cpu")
    ways = [(s, None) for s in shorts] + [("", rewriting(here))]
    plain, *others = (
        [
            prepare(graph, precision, options.calibration, short=s, rewrite=way).graph
            for graph in loaded
        ]
        for s, way in ways
    )
    problems = [problem_of(graph, here) for graph in plain]
    apart = [
        [t.key for g in graphs for t in partition(g, attention=False).weights()]
        for graphs in (plain, *others)
    ]
    joined = [t.key for p in problems for t in p.dense.weights()]
    chosen = [
        t.key
        for p, g in zip(problems, plain, strict=True)
        for t in apply(p, g, here, choose_layouts(p, here, log).layouts).weights()
    ]
    return joined, *apart, chosen, [t.key for p in problems for t in p.tasks()] + joined
