"""The options of `tune` as one value. In: options. Out: a TuneRequest, checked."""

# ruff: noqa: RUF009 (what `option` gives is a dataclass's field)

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune import arguments
from autotune.errors import DeviceError
from autotune.request import CompileRequest, check_log, option

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from autotune.db.types import LogStore
    from autotune.settings import TuneSettings
    from autotune.tuner.events import OnEvent
    from rpc_server.runners import FarmOptions

BUILD_PLACES = ("board", "host")
_check_folder = functools.partial(arguments.place, what="the path of a folder")


def _check_device(name: str, value: object) -> None:
    what = "local, rpc://HOST:PORT or tracker://HOST:PORT/KEY"
    place = arguments.text(name, value, what, DeviceError)
    if place != "local" and not place.startswith(("rpc://", "tracker://")):
        raise DeviceError(f"expected the device {what}, got {place!r}")


def _check_executor(name: str, value: object) -> None:
    from concurrent.futures import Executor

    from autotune.tuner.engine import SCHEME, check_name

    if not isinstance(value, Executor):
        check_name(arguments.text(name, value, f"an Executor or {SCHEME}HOST:PORT"))


def _check_strategy(name: str, value: object) -> None:
    from autotune.tuner.strategies import STRATEGIES

    STRATEGIES.get(arguments.text(name, value, "a name"))


def _check_cost_model(name: str, value: object) -> None:
    from cost_model.models import COST_MODELS

    COST_MODELS.get(arguments.text(name, value, "a name"))


def _check_settings(name: str, value: object) -> None:
    from autotune.settings import TuneSettings

    arguments.instance(name, value, TuneSettings, "TuneSettings or None")


def _check_farm(name: str, value: object) -> None:
    from rpc_server.runners import FarmOptions

    arguments.instance(name, value, FarmOptions, "FarmOptions or None")


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneRequest(CompileRequest):
    """What a model will be compiled with, and how to search for its best schedules. Raises an
    InputError of one line."""

    log: str | os.PathLike[str] | LogStore = option(
        "tuning.db",
        check_log("append", "repeat", "best", "top", "nearest", "records"),
        "Where results go, and earlier ones are: a path, an SQLAlchemy URL or an open log.",
    )
    device: str = option(
        "local",
        _check_device,
        "Where candidates are measured: 'local', 'rpc://HOST:PORT' or 'tracker://HOST:PORT/KEY'. "
        "On a board the target 'cpu' is the board's own.",
    )
    executor: str | Executor | None = option(
        None,
        _check_executor,
        "An Executor, or 'dask://HOST:PORT', whose workers do the building of this host, the "
        "features of large spaces and the training.",
    )
    trials: int | None = option(
        None,
        functools.partial(arguments.whole, least=1),
        "Trials that the log holds for these tasks when the run ends: the same call continues a "
        "run that was cut short.",
    )
    time_s: float | None = option(None, arguments.seconds, "Seconds to spend.")
    until_gain: float | None = option(
        None,
        arguments.share,
        "End when the next trials promise less than this share of the model's time.",
    )
    seed: int = option(0, arguments.whole, "Seed of the search and of the cost model.")
    strategy: str = option("bayesian", _check_strategy, "Name of what proposes candidates.")
    cost_model: str = option("xgb", _check_cost_model, "Name of what ranks candidates.")
    pretrained: str | os.PathLike[str] | None = option(
        None,
        functools.partial(arguments.place, what="the path of a trained cost model"),
        "A file of `autotune model train` to start from; without it, from what the log's records "
        "of other tasks teach about this kind of device.",
    )
    settings: TuneSettings | None = option(
        None, _check_settings, "Numbers of the search that are rarely changed; see configs/tune."
    )
    certs: str | os.PathLike[str] | None = option(
        None,
        _check_folder,
        "The folder of this client's certificate, for boards on other machines.",
    )
    build: str = option(
        "board",
        functools.partial(arguments.one_of, choices=BUILD_PLACES),
        "Where candidates are built: on the 'board', or on this 'host' for boards with "
        "--accept-objects.",
    )
    farm: FarmOptions | None = option(
        None, _check_farm, "How many boards of a tracker, and with which priority."
    )
    on_event: OnEvent | None = option(
        None,
        arguments.function,
        "Called with every event of the run (see `autotune.tuner.events`).",
    )
    at: Mapping[str, Sequence[int]] | None = option(
        None,
        lambda _, value: arguments.sizes(value),
        'Sizes that count most of symbolic dimensions that stay so: {"H": (224, 640)}; all '
        "combinations do. Otherwise some are drawn from the ranges.",
    )
    flush: bool = option(
        False,
        arguments.flag,
        "Time candidates with nothing but their values in the caches, not with what the rest of "
        "the model leaves there.",
    )
    dry_run: bool = option(
        False, arguments.flag, "Measure no candidate and write no log: the report has a forecast."
    )
