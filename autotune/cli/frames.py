"""`autotune run --state`: a model called frame after frame in a session. In: the command's options
and inputs. Out: the outputs of all calls, and the state after the last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from autotune.errors import ConfigError, FeedError
from autotune.types import Array

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from autotune.command_line import Parser
    from autotune.fallback.model import StagedModel
    from autotune.runtime.model import CompiledModel
    from autotune.runtime.sized import SizedModel
    from autotune.types import TensorType


def arguments(parser: Parser) -> None:
    from autotune.cli import options as opt

    parser.add_argument(
        "--state",
        action="append",
        default=[],
        metavar="INPUT=OUTPUT",
        help="an input that is, in the next call, this output of a call; repeat for each. "
        "--input of its name is what it begins with, else zeros, or nothing where it grows",
    )
    parser.add_argument(
        "--repeat",
        type=opt.at_least(1),
        default=1,
        metavar="N",
        help="call the model so often, with --state; the i-th call takes the i-th part of inputs "
        "that have N along a dimension in front of their own",
    )


def check(options: argparse.Namespace) -> None:
    """Raise ConfigError for options that do not go together."""
    if options.repeat > 1 and not options.state:
        raise ConfigError("--repeat is for calls that follow one another: say how, with --state")
    if options.state and options.device != "local":
        raise ConfigError("--state is for this machine; leave out --device")


def run(
    options: argparse.Namespace,
    model: CompiledModel | SizedModel | StagedModel,
    given: Mapping[str, Array],
    random: Mapping[str, TensorType],
) -> dict[str, Any]:
    """Outputs of all calls, one behind the other where there are several, and the state at the
    end by its outputs' names. `random`: inputs that are drawn for each call."""
    state = _pairs(options.state)
    initial = {name: array for name, array in given.items() if name in state}
    rest = {name: array for name, array in given.items() if name not in state}
    drawn = {name: kind for name, kind in random.items() if name not in state}
    made: dict[str, list[Array]] = {}
    with model.session(state, initial or None) as session:
        for number in range(options.repeat):
            feeds = _frame(model, rest, number, options.repeat) | _drawn(drawn, options, number)
            for name, array in session.run(feeds).items():
                made.setdefault(name, []).append(np.asarray(array))
        last = {state[name]: array.copy() for name, array in session.state.items()}
    joined = {name: _joined(arrays) for name, arrays in made.items()}
    found = joined | last
    return {name: found[name] for name in model.outputs}


def _pairs(texts: list[str]) -> dict[str, str]:
    out: dict[str, str] = {}
    for text in texts:
        name, _, then = text.partition("=")
        if not name or not then:
            raise FeedError(f"expected --state INPUT=OUTPUT, got {text!r}")
        if name in out:
            raise FeedError(f"--state of {name} is given twice; give it once")
        out[name] = then
    return out


def _frame(
    model: CompiledModel | SizedModel | StagedModel,
    given: Mapping[str, Array],
    number: int,
    count: int,
) -> dict[str, Array]:
    """What one call takes of arrays that may hold a part for each."""
    return {
        name: array[number] if count > 1 and _has_parts(model, name, array, count) else array
        for name, array in given.items()
    }


def _has_parts(
    model: CompiledModel | SizedModel | StagedModel, name: str, array: Array, count: int
) -> bool:
    kind: Any = model.inputs.get(name)
    shape = getattr(kind, "shape", None)
    if shape is None and hasattr(kind, "tensor_type"):  # of a model in stages: ONNX's own type
        shape = kind.tensor_type.shape.dim
    return shape is not None and array.ndim == len(shape) + 1 and array.shape[0] == count


def _drawn(
    kinds: Mapping[str, TensorType], options: argparse.Namespace, number: int
) -> dict[str, Array]:
    from autotune.graph.feeds import random_feeds

    return random_feeds(kinds, options.seed + number) if kinds else {}


def _joined(arrays: list[Array]) -> Array:
    """One behind the other along a dimension of their own; of one call, its array."""
    if len(arrays) == 1:
        return arrays[0]
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise FeedError(f"outputs of the calls have {len(shapes)} shapes; --repeat needs one")
    return np.stack(arrays)
