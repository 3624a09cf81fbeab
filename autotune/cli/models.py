"""The model of a command. In: its options. Out: the model, compiled or loaded."""

from __future__ import annotations

import functools
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from autotune.cli import flags
from autotune.errors import ConfigError, FallbackWarning

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping

    from autotune.fallback.model import StagedModel
    from autotune.request import CompileRequest
    from autotune.runtime.model import CompiledModel
    from autotune.runtime.sized import SizedModel
    from autotune.types import TensorType


def compiled(options: argparse.Namespace) -> CompiledModel:
    """The model that `options` name: an artifact loaded, anything else compiled. Raises
    ConfigError where its sizes are open."""
    from autotune.runtime.sized import SizedModel

    model = compiled_whole(options)
    if isinstance(model, SizedModel):
        raise _open_sizes(options, model)
    return model


def compiled_whole(options: argparse.Namespace) -> CompiledModel | SizedModel:
    """The same, of open sizes too: one program for all of them. Raises ConfigError where there is
    none."""
    from autotune.compiler.driver import compile_request
    from autotune.runtime.sized import SizedModel

    small = getattr(options, "size", False)
    model = _compiled(options, functools.partial(compile_request, small=small))
    if isinstance(model, SizedModel) and not model.serves_all:
        raise _open_sizes(options, model)
    _tell(options, model.notes)
    return model


def size_sets_at(options: argparse.Namespace, model: SizedModel) -> list[dict[str, int]]:
    """The sets of sizes that --at gives. Raises ConfigError, FeedError."""
    from autotune.cli.options import parse_at
    from autotune.size_ranges import size_sets

    if not options.at:
        raise _open_sizes(options, model)
    return size_sets(parse_at(options.at), model.ranges)


Compiled = TypeVar("Compiled")


def run(
    model: CompiledModel | SizedModel | StagedModel, feeds: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The model's outputs; what it has to say that it did not say before, on standard error."""
    said = model.notes
    outputs = model.run(feeds)
    for note in (n for n in model.notes if n not in said):
        print(f"note: {note}", file=sys.stderr)
    return outputs


def compiled_or_sized(options: argparse.Namespace) -> CompiledModel | SizedModel | StagedModel:
    """The same, of open sizes too, and of models that only run in stages."""
    from autotune.fallback.compiling import compile_any

    warnings.simplefilter("ignore", FallbackWarning)  # they are notes, and told as these
    model = _compiled(options, compile_any)
    _tell(options, model.notes)
    return model


def _compiled(
    options: argparse.Namespace, compiling: Callable[[CompileRequest], Compiled]
) -> CompiledModel | SizedModel | Compiled:
    from autotune.cli.options import SUFFIX
    from autotune.runtime.artifact import load
    from autotune.runtime.image_file import is_artifact

    named_so = Path(options.model).suffix == SUFFIX and Path(options.model).exists()
    if named_so or is_artifact(options.model):
        _check_free_of_choices(options)
        return load(options.model)
    from autotune.cli.options import COMPILED_TOO, cache_dir
    from autotune.frontend import check_name
    from autotune.request import CompileRequest

    check_name(options.model, COMPILED_TOO)
    return compiling(flags.request(CompileRequest, options, cache_dir=cache_dir()))


def types_of(
    options: argparse.Namespace, model: CompiledModel | SizedModel
) -> Mapping[str, TensorType]:
    """Types of the model's inputs, where its sizes are open at those of --at."""
    from autotune.runtime.model import CompiledModel

    if isinstance(model, CompiledModel):
        if getattr(options, "at", None):
            raise ConfigError(f"--at is for open sizes, those of {options.model} are fixed")
        return model.inputs
    sizes, *more = size_sets_at(options, model)
    if more:
        raise ConfigError(f"--at names {len(more) + 1} sets of sizes, expected one")
    return {name: kind.at(sizes) for name, kind in model.inputs.items()}


def _tell(options: argparse.Namespace, notes: Iterable[str]) -> None:
    """What the compiler has to say, and that a log is missing, on standard error: nothing of
    artifacts, of which it was said when they were compiled."""
    from autotune.cli.options import absent_log
    from autotune.defects import is_told
    from autotune.printable import one_line
    from autotune.runtime.image_file import is_artifact

    if is_artifact(options.model):
        return
    if absent := absent_log(options):
        print(f"note: {absent}; every kernel gets its default schedule", file=sys.stderr)
    for note in (n for n in notes if not is_told(n)):
        print(f"note: {one_line(note)}", file=sys.stderr)


def _open_sizes(options: argparse.Namespace, model: SizedModel) -> ConfigError:
    """What to say where a command needs sizes: how to give them."""
    ranged = hasattr(options, "ranges") and not model.serves_all
    if hasattr(options, "at") and model.serves_all:
        example = ", ".join(f"--at {name}={model.ranges[name].least}" for name in model.symbols)
        return ConfigError(f"the sizes of {options.model} are open; give them with {example}")
    if model.serves_all:
        return ConfigError(
            f"the sizes of {options.model} are open ({', '.join(model.symbols)}), and this takes "
            "models of fixed sizes; compile the model with --shape"
        )
    name, shape = next(
        (n, kind.shape)
        for n, kind in model.inputs.items()
        if any(isinstance(dim, str) for dim in kind.shape)
    )
    example = "x".join("1" if isinstance(dim, str) else str(dim) for dim in shape)
    return ConfigError(
        f"input {name!r} has symbolic dimensions {'x'.join(map(str, shape))}; "
        f"pass --shape {name}={example} with the extents you want"
        + (f", or a --range for each of {', '.join(model.symbols)}" if ranged else "")
    )


def _check_free_of_choices(options: argparse.Namespace) -> None:
    """Raise ConfigError where an option asks for what compiling has settled."""
    if given := flags.chosen(options, flags.SETTLED):
        raise ConfigError(
            f"{options.model} is compiled already, which settled {', '.join(given)}: compile "
            "the model again with what you want"
        )


def pinned(options: argparse.Namespace, model: CompiledModel | SizedModel | StagedModel) -> None:
    """Keep the model's threads on the cores that `options` name, if any."""
    from autotune.runtime.host import crowded, pin
    from autotune.runtime.model import CompiledModel

    threads: int = options.threads
    if isinstance(model, CompiledModel):
        threads = model.image.target.threads
    if options.pin:
        pin(options.pin, threads)
    elif note := crowded(threads):
        print(f"note: {note}", file=sys.stderr)
