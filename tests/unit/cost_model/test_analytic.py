from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from autotune.machine import Machine
from autotune.machine.cpu import imbalance
from autotune.machine.roofline import roofline_s
from cost_model import predict
from cost_model.analytic import estimate
from cost_model.features import features
from search_spaces.base import Column
from search_spaces.params import Choice
from tests.unit.tuner.synthetic import PROFILE, matmul_task, subject

OF = subject(matmul_task(512, 512, 512))
MACHINE = OF.machine
BASE: dict[str, Choice] = {"tm": 128, "tn": 256, "tk": 256, "rm": 6, "rn": 64, "order": "mn"}


def seconds(**choices: Choice) -> float:
    configs = {
        name: np.array([value], dtype=object if isinstance(value, str) else np.float64)
        for name, value in {**BASE, **choices}.items()
    }
    structure = OF.rule.structure(OF.task, OF.machine, configs)
    return float(estimate(structure, MACHINE).seconds[0])


def test_a_good_config_is_predicted_near_the_peak() -> None:
    assert 0.8 < 2 * 512**3 / seconds() / PROFILE.peak_flops <= 1.0


def test_few_accumulators_do_not_hide_the_latency() -> None:
    assert seconds(rm=1, rn=32) > 3 * seconds()


def test_too_many_accumulators_spill() -> None:
    assert seconds(rm=14) > 1.2 * seconds()


def test_small_register_tiles_are_bound_by_loads() -> None:
    assert seconds(rm=12, rn=16) > 1.1 * seconds(rm=6, rn=48)


def test_nothing_is_predicted_faster_than_the_peak() -> None:
    rows = OF.space.rows(10**6, np.random.default_rng(0))
    assert OF.describe(rows).prior_s.min() >= roofline_s(2 * 512**3, 0, MACHINE)


def test_imbalance_is_what_the_busiest_thread_does() -> None:
    chunks: Column = np.array([1.0, 3.0, 4.0, 5.0, 400.0])
    np.testing.assert_allclose(imbalance(chunks, 4), [4.0, 4 / 3, 1.0, 8 / 5, 1.0])


def test_threads_shorten_what_divides_evenly() -> None:
    rows = OF.space.rows(10**6, np.random.default_rng(0))[:1]
    structure = OF.rule.structure(OF.task, OF.machine, OF.space.configs(rows))
    target = PROFILE.target.with_threads(4)
    four = Machine.of(target, dataclasses.replace(PROFILE, target=target))
    assert estimate(structure, four).seconds[0] < 0.4 * estimate(structure, MACHINE).seconds[0]


def test_the_roofline_is_bytes_where_there_is_little_to_compute() -> None:
    assert roofline_s(1, 16 << 10, MACHINE) == (16 << 10) / 400e9
    assert roofline_s(1, 1 << 40, MACHINE) == pytest.approx((1 << 40) / 15e9, rel=1e-3)


def test_the_roofline_keeps_what_it_can_in_the_inner_caches() -> None:
    inner, outer = (1 << 20) - (32 << 10), 1 << 20
    wanted = (32 << 10) / 400e9 + inner / 100e9 + outer / 50e9
    assert roofline_s(1, 2 << 20, MACHINE) == pytest.approx(wanted)


def test_features_are_finite_and_named_once() -> None:
    rows = OF.space.rows(10**6, np.random.default_rng(0))
    found = OF.describe(rows)
    assert np.isfinite(found.values).all()
    assert found.values.shape == (len(rows), len(found.names))
    assert len(set(found.names)) == len(found.names)


def test_tasks_of_a_rule_have_the_same_features() -> None:
    other = subject(matmul_task(31, 17, 3))
    rows = other.space.rows(10**6, np.random.default_rng(0))
    assert other.describe(rows).names == OF.describe(rows[:1]).names


def test_infinite_extras_become_large_numbers() -> None:
    rows = OF.space.rows(10**6, np.random.default_rng(0))[:2]
    found = predict(OF.task, OF.machine, OF.space.configs(rows), OF.rule)
    extra = {"odd": np.array([np.inf, np.nan])}
    odd = dataclasses.replace(found, structure=dataclasses.replace(found.structure, extra=extra))
    assert np.isfinite(features(odd).values).all()
