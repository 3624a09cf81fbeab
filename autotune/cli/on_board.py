"""A model on a board instead of here. In: options with --device. Out: its outputs and times.

The model is compiled here, for the board's target, and sent as code: the board has to be started
with --accept-objects.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.cli import flags, models
from autotune.command_line import Parser
from autotune.errors import ConfigError
from autotune.types import Array

if TYPE_CHECKING:
    from autotune.runtime.model import CompiledModel, ModelTimes
    from autotune.target import Target
    from rpc_server.client.board_runner import RpcRunner
    from rpc_server.client.models import ModelRun

LOCAL = "local"
COUNTING = ("/simulated ", "/serial ")
"""In the names of devices that count cycles."""
_SMALL_BYTES = 1 << 20


def arguments(parser: Parser) -> None:
    parser.add_argument(
        "--device",
        default=LOCAL,
        metavar="local | rpc://HOST:PORT | tracker://HOST:PORT/KEY",
        help="where the model runs; boards take it if started with --accept-objects "
        "(default %(default)s)",
    )
    parser.add_argument(
        "--certs", metavar="DIR", help="folder of your certificate (see rpc_server certs)"
    )


def is_away(options: argparse.Namespace) -> bool:
    """Whether the model runs elsewhere. Raises ConfigError for options that are for here, or for
    there."""
    away = bool(options.device != LOCAL)
    if options.certs and not away:
        raise ConfigError("--certs is for --device of a board or a tracker; name one")
    if away and options.pin:
        raise ConfigError("--pin is for this machine: a board has its own --cores")
    return away


@contextlib.contextmanager
def board_of(options: argparse.Namespace) -> Iterator[RpcRunner]:
    """The board that the options name. Raises DeviceError."""
    from rpc_server.client.one_board import one_board
    from rpc_server.security.tls import Credentials

    credentials = Credentials(Path(options.certs)) if options.certs else None
    with one_board(options.device, credentials=credentials) as runner:
        yield runner


def compiled_for(options: argparse.Namespace, board: RpcRunner) -> CompiledModel:
    """The model for the board, where no other target is asked for."""
    from autotune.runtime.image_file import is_artifact

    if not is_artifact(options.model):
        if not flags.chosen(options, ("target",)):
            options.target = board.profile().target.with_threads(options.threads)
        options.target = _as_sent(options)
    return models.compiled(options)


def _as_sent(options: argparse.Namespace) -> Target | str:
    """The target, where it is a microcontroller as C, which its board compiles."""
    from autotune.export.write import source_target
    from autotune.target import Target, load_target

    named: Target | str = options.target
    target = named if isinstance(named, Target) else load_target(named, options.threads)
    if not target.is_compact:
        return named
    return source_target(target.with_accuracy(options.accuracy).with_precision(options.precision))


def run_there(
    board: RpcRunner, model: CompiledModel, feeds: Mapping[str, Array], repeats: int
) -> ModelRun:
    """One run for the outputs, and so many that are timed. Raises DeviceError, FeedError."""
    from autotune.runtime.dense import dense_bytes
    from autotune.runtime.image_file import image_bytes
    from rpc_server.client.models import ModelClient

    client = ModelClient(board)
    return client.run(image_bytes(model.image), dense_bytes(model, feeds), repeats)


def outputs_of(model: CompiledModel, run: ModelRun) -> dict[str, Array]:
    """The outputs by name. Raises DeviceError where the board gave others than the model has."""
    from autotune.runtime.dense import outputs_from

    return outputs_from(model, run.outputs)


def times_of(model: CompiledModel, run: ModelRun) -> ModelTimes:
    """What `bench` gives here. Raises DeviceError."""
    from autotune.runtime.dense import times_from

    return times_from(model, run.outcome.times_s, run.outcome.kernels_s)


def keep(options: argparse.Namespace, target: Target, device: str, times: ModelTimes) -> None:
    """The times in the log that the options name, for a report of the model. Raises LogError."""
    from autotune.compiler.driver import load_prepared
    from autotune.db import latencies
    from autotune.db.store import TuningLog
    from autotune.db.types import Latency
    from autotune.request import CompileRequest
    from autotune.streams import readable

    options.target = target
    with TuningLog(options.log) as log:
        graph = load_prepared(flags.request(CompileRequest, options), target, log=log).graph
        latency = Latency(
            model_key=latencies.model_key(graph),
            model=readable(options.model),
            target_key=target.key,
            device=device,
            before=(),
            after=tuple(times.latency_s),
            kernels_before_s=None,
            kernels_after_s=sum(row.time_s for row in times.kernels),
        )
        latencies.keep(log, latency)


def conditions(run: ModelRun) -> str:
    """A line about the board while it ran the model."""
    found = run.outcome
    small = found.peak_bytes < _SMALL_BYTES
    memory = f"{found.peak_bytes} bytes" if small else f"{found.peak_bytes / 2**20:.0f} MiB"
    words = [run.device, f"{memory} at most"]
    if found.temperature_c is not None:
        words.append(f"{found.temperature_c:.0f} °C")
    counts = any(word in run.device for word in COUNTING)
    if found.clock_hz and counts and found.times_s:
        cycles = round(found.times_s[0] * found.clock_hz)
        words.append(f"{cycles} cycles of {found.clock_hz / 1e6:g} MHz")
    elif found.clock_hz:
        words.append(f"{found.clock_hz / 1e9:.2f} GHz")
    sent = f"{run.sent_bytes} bytes sent" if run.sent_bytes else "nothing sent, it had the model"
    return f"on {', '.join([*words, sent])}"
