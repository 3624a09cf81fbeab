"""Train cost models on tuning logs, for `autotune tune --model`, and say how well they rank."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from autotune.cli import flags, tables
from autotune.cli import options as opt
from autotune.command_line import Parser
from autotune.db.files import shown
from autotune.errors import ConfigError

if TYPE_CHECKING:
    from autotune.db.types import Record
    from autotune.machine.profile import DeviceProfile
    from cost_model.models import Dataset, Train
    from cost_model.train import Origin


def arguments(parser: Parser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    train = actions.add_parser("train", help="learn from the records of logs")
    train.add_argument(
        "--log",
        action="append",
        metavar="FILE|URL",
        help=f"a tuning log; may be repeated (default {opt.DEFAULT_LOG})",
    )
    train.add_argument("-o", "--output", required=True, metavar="FILE.json")
    train.add_argument("--seed", type=opt.at_least(0), default=0)
    flags.add(train, "executor", *flags.TARGET, executor="where they learn (default local)")


def run(options: argparse.Namespace) -> None:
    from autotune.cli.warned import quiet_cluster
    from autotune.db.profiles import kept_profiles
    from autotune.db.store import TuningLog
    from autotune.measure.runners.local import LocalRunner
    from autotune.target import load_target
    from autotune.tuner.engine import opened
    from autotune.tuner.transfer import samples
    from cost_model.models import fit_here
    from cost_model.pretrained import pretrain
    from cost_model.train import by_origin, datasets

    logs = options.log or [opt.DEFAULT_LOG]
    records: list[Record] = []
    profiles: dict[tuple[str, str], DeviceProfile] = {}
    for name in logs:
        with TuningLog(name, read_only=True) as log:
            records += samples(log)
            profiles |= kept_profiles(log)
    records = list({_measurement(r): r for r in records}.values())
    target = load_target(options.target, options.threads)
    with LocalRunner(target, cache_dir=opt.cache_dir()) as runner:
        profile = runner.profile()
    sets, origins = datasets(records, profile, profiles), tuple(by_origin(records))
    about = f"{len(records)} records of {', '.join(map(shown, logs))}"
    with quiet_cluster(options.executor), opened(options.executor) as engine:
        fit = engine.train if engine else fit_here
        model = pretrain(sets, options.seed, about, train=fit)
        if not len(model):
            raise ConfigError(f"too little to learn from: {about}; tune more first")
        ranked = rows(sets, origins, options.seed, fit)
    print(tables.table(HEADER, ranked, right=(2, 3, 4, 5, 6)))
    model.save(Path(options.output))
    print(f"learnt from {about}; written to {options.output}")


def _measurement(record: Record) -> object:
    """Equal for one measurement that several logs hold."""
    result = record.result
    return record.task.key, record.target.key, result.device, record.config, result.times_s


HEADER = (
    "rule",
    "left out",
    "tasks",
    "samples",
    "rank correlation",
    "top-8 recall",
    "regret of 4",
)


def rows(
    sets: Iterable[Dataset], origins: Sequence[Origin], seed: int, train: Train
) -> list[tuple[str, ...]]:
    """Per feature layout: the prior alone, then with tasks left out and, where there are several,
    devices left out. `origins`: of the sets' groups."""
    from cost_model.pretrained import LEAST, left_out, quality

    found: list[tuple[str, ...]] = []
    for data in sets:
        if len(data.time_s) < LEAST:
            continue
        devices = np.array([origins[g].device for g in data.group])
        tests = [("(the prior)", data.prior_s)]
        for what, part in (("tasks", data.group), ("devices", devices)):
            if len(set(part.tolist())) > 1:
                tests.append((what, left_out(data, part, seed, train=train)))
        for what, predicted in tests:
            q = quality(predicted, data)
            found.append(
                (
                    origins[data.group[0]].rule,
                    what,
                    str(q.tasks),
                    str(len(data.time_s)),
                    *tables.ranking(q.rank_correlation, q.top_recall, q.regret),
                )
            )
    return found
