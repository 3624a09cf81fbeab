"""The model of a command. In: its options. Out: the model, compiled or loaded."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from autotune.cli import flags
from autotune.errors import ConfigError

if TYPE_CHECKING:
    import argparse

    from autotune.runtime.model import CompiledModel
    from autotune.runtime.sized import SizedModel


def compiled(options: argparse.Namespace) -> CompiledModel:
    """The model that `options` name: an artifact loaded, anything else compiled. Raises
    ConfigError where its sizes are open."""
    from autotune.runtime.sized import SizedModel

    model = compiled_or_sized(options)
    if isinstance(model, SizedModel):
        raise open_sizes(model)
    return model


def open_sizes(model: SizedModel) -> ConfigError:
    """What to say where a command needs sizes: how to give them."""
    open_inputs = {n: t.shape for n, t in model.inputs.items() if not all_known(t.shape)}
    name, shape = next(iter(open_inputs.items()))
    example = "x".join("1" if isinstance(dim, str) else str(dim) for dim in shape)
    return ConfigError(
        f"input {name!r} has symbolic dimensions {'x'.join(map(str, shape))}; "
        f"pass --shape {name}={example} with the extents you want"
    )


def all_known(shape: tuple[int | str, ...]) -> bool:
    return all(isinstance(dim, int) for dim in shape)


def compiled_or_sized(options: argparse.Namespace) -> CompiledModel | SizedModel:
    """The same, of open sizes too."""
    from autotune.runtime.artifact import load
    from autotune.runtime.image_file import is_artifact

    if is_artifact(options.model):
        _check_free_of_choices(options)
        return load(options.model)
    from autotune.cli.options import COMPILED_TOO, absent_log, cache_dir
    from autotune.compiler.driver import compile_request
    from autotune.defects import is_told
    from autotune.frontend import check_name
    from autotune.printable import one_line
    from autotune.request import CompileRequest

    check_name(options.model, COMPILED_TOO)
    absent = absent_log(options)
    model = compile_request(flags.request(CompileRequest, options, cache_dir=cache_dir()))
    if absent:
        print(f"note: {absent}; every kernel gets its default schedule", file=sys.stderr)
    for note in (n for n in model.notes if not is_told(n)):
        print(f"note: {one_line(note)}", file=sys.stderr)
    return model


def _check_free_of_choices(options: argparse.Namespace) -> None:
    """Raise ConfigError where an option asks for what compiling has settled."""
    if given := flags.chosen(options, flags.SETTLED):
        raise ConfigError(
            f"{options.model} is compiled already, which settled {', '.join(given)}: compile "
            "the model again with what you want"
        )


def pinned(options: argparse.Namespace, model: CompiledModel | SizedModel) -> None:
    """Keep the model's threads on the cores that `options` name, if any."""
    from autotune.runtime.host import crowded, pin
    from autotune.runtime.sized import SizedModel

    if isinstance(model, SizedModel):
        threads: int = options.threads
    else:
        threads = model.image.target.threads
    if options.pin:
        pin(options.pin, threads)
    elif note := crowded(threads):
        print(f"note: {note}", file=sys.stderr)
