from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from autotune.errors import ConfigError
from cost_model.features import Features
from cost_model.models.base import Dataset
from cost_model.pretrained import LEAST, Pretrained, left_out, pretrain, quality
from cost_model.train import join
from tests.unit.tuner.synthetic import matmul_task, subject, true_seconds

SHAPES = ((256, 256, 256), (512, 256, 128), (128, 512, 256), (384, 384, 384))


def part(shape: tuple[int, int, int], group: int, count: int = 60) -> Dataset:
    of = subject(matmul_task(*shape))
    rows = of.space.sample(np.random.default_rng(group), count)
    described = of.describe(rows)
    return Dataset(
        names=described.names,
        values=described.values,
        prior_s=described.prior_s,
        time_s=true_seconds(of, rows),
        group=np.full(count, group),
    )


DATA = join([part(shape, group) for group, shape in enumerate(SHAPES)])
NEW = part((320, 640, 64), 9)
FEATURES = Features(names=NEW.names, values=NEW.values, prior_s=NEW.prior_s)


def test_what_was_learnt_ranks_a_new_task_better_than_the_prior() -> None:
    improved = pretrain([DATA], 0).improve(FEATURES).prior_s
    before, after = quality(NEW.prior_s, NEW), quality(improved, NEW)
    assert after.rank_correlation > before.rank_correlation
    assert after.regret <= before.regret


def test_unknown_layouts_keep_their_prior() -> None:
    other = Features(names=("x",), values=np.ones((2, 1), np.float32), prior_s=np.array([1.0, 2]))
    assert pretrain([DATA], 0).improve(other) is other


def test_a_handful_of_samples_makes_no_model() -> None:
    few = part(SHAPES[0], 0, count=LEAST - 1)
    assert len(pretrain([few], 0)) == 0


def test_one_candidate_of_each_task_teaches_nothing() -> None:
    single = join([part((64 + 8 * n, 64, 64), n, count=1) for n in range(LEAST)])
    np.testing.assert_array_equal(
        pretrain([single], 0).improve(FEATURES).prior_s, FEATURES.prior_s
    )


def test_a_file_predicts_the_same(tmp_path: Path) -> None:
    model = pretrain([DATA], 3, about="four tasks")
    model.save(tmp_path / "model.json")
    loaded = Pretrained.load(tmp_path / "model.json")
    assert loaded.about == "four tasks"
    np.testing.assert_array_equal(
        loaded.improve(FEATURES).prior_s, model.improve(FEATURES).prior_s
    )


def test_a_file_of_other_features_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    pretrain([DATA], 0).save(file)
    file.write_text(file.read_text().replace('"features": ', '"features": 9', 1))
    with pytest.raises(ConfigError, match="expected features of version"):
        Pretrained.load(file)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "something else"}'])
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(ConfigError, match="not a trained cost model"):
        Pretrained.load(tmp_path / "model.json")


@pytest.mark.parametrize("state", [{}, {"names": [], "trust": "much", "trees": None}, [],
                                   {"names": [], "trust": 1.0, "trees": {"x": 1}}])  # fmt: skip
def test_a_damaged_model_is_refused(tmp_path: Path, state: object) -> None:
    file = tmp_path / "model.json"
    pretrain([DATA], 0).save(file)
    data = json.loads(file.read_text())
    data["models"][0]["state"] = state
    file.write_text(json.dumps(data))
    with pytest.raises(ConfigError, match=r"is damaged \(.*\); train"):
        Pretrained.load(file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        Pretrained.load(tmp_path / "model.json")


def test_tasks_that_are_left_out_are_predicted_by_the_others() -> None:
    predicted = left_out(DATA, DATA.group, seed=0)
    assert quality(predicted, DATA).rank_correlation > quality(DATA.prior_s, DATA).rank_correlation


def test_nothing_is_learnt_where_everything_is_left_out() -> None:
    one = part(SHAPES[0], 0)
    np.testing.assert_array_equal(left_out(one, one.group, seed=0), one.prior_s)


def test_tasks_with_few_successes_do_not_count() -> None:
    time_s = DATA.time_s.copy()
    time_s[DATA.group == 0] = np.inf
    data = Dataset(
        names=DATA.names,
        values=DATA.values,
        prior_s=DATA.prior_s,
        time_s=time_s,
        group=DATA.group,
    )
    assert quality(DATA.prior_s, data).tasks == len(SHAPES) - 1


def test_what_does_not_help_with_tasks_left_out_is_not_believed() -> None:
    noise = np.random.default_rng(0).uniform(1, 1.5, len(DATA.time_s))
    least = [DATA.prior_s[DATA.group == g].min() for g in DATA.group]
    best = DATA.prior_s == least
    as_expected = dataclasses.replace(DATA, time_s=DATA.prior_s * np.where(best, 1, noise))
    improved = pretrain([as_expected], 0).improve(FEATURES)
    np.testing.assert_array_equal(improved.prior_s, NEW.prior_s)


def test_a_file_from_before_beliefs_were_kept_is_read(tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    pretrain([DATA], 0).save(file)
    data = json.loads(file.read_text())
    for entry in data["models"]:
        del entry["belief"]
        entry["tasks"] = 8
    file.write_text(json.dumps(data))
    assert Pretrained.load(file).beliefs == {DATA.names: 0.5}
