from __future__ import annotations

import numpy as np

from autotune.db.types import Record
from autotune.measure.types import MeasureResult, Status
from cost_model.models.xgb import grades
from cost_model.train import dataset, datasets, join
from search_spaces.params import Config
from tests.unit.tuner.synthetic import PROFILE, TARGET, Subject, matmul_task, subject

OF = subject()


def record(
    of: Subject, config: Config, status: Status = Status.OK, time_s: float = 1e-3
) -> Record:
    times = (time_s,) if status is Status.OK else ()
    return Record(
        task=of.task,
        target=TARGET,
        rule="synthetic",
        config=config,
        schedule=of.rule.schedule(of.task, TARGET, config),
        result=MeasureResult(status=status, times_s=times),
    )


def some(of: Subject, count: int) -> list[Config]:
    rows = of.space.sample(np.random.default_rng(0), count)
    return [of.space.config(row) for row in rows]


def test_records_become_rows_and_failures_infinite() -> None:
    first, second = some(OF, 2)
    data = dataset(OF, [record(OF, first), record(OF, second, Status.RUN_CRASH)], group=3)
    assert data.time_s.tolist() == [1e-3, np.inf]
    assert data.group.tolist() == [3, 3]


def test_a_lost_device_is_no_sample() -> None:
    (config,) = some(OF, 1)
    assert len(dataset(OF, [record(OF, config, Status.DEVICE_LOST)], group=0).time_s) == 0


def test_configs_of_an_older_space_are_left_out() -> None:
    old = Config((("tm", 17),))
    assert len(dataset(OF, [record(OF, old)], group=0).time_s) == 0


def test_records_of_rules_not_installed_are_left_out() -> None:
    (config,) = some(OF, 1)
    assert datasets([record(OF, config)], PROFILE) == ()


def test_grades_are_relative_to_the_task() -> None:
    other = subject(matmul_task(512, 512, 512))
    near = dataset(
        OF, [record(OF, c, time_s=t) for c, t in zip(some(OF, 2), (1, 2), strict=True)], group=0
    )
    far = dataset(
        other,
        [record(other, c, time_s=t) for c, t in zip(some(other, 2), (50, 25), strict=True)],
        group=1,
    )
    np.testing.assert_array_equal(grades(join([near, far])), [31, 16, 16, 31])


def test_a_failure_has_a_lower_grade_than_every_success() -> None:
    first, second, third = some(OF, 3)
    records = [
        record(OF, first, time_s=1.0),
        record(OF, second, time_s=500.0),
        record(OF, third, Status.BUILD_ERROR),
    ]
    graded = grades(dataset(OF, records, group=0))
    assert graded[2] < graded[1] < graded[0]
