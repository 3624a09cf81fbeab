"""Samples of inputs: out of files, folders and arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autotune.errors import FeedError
from autotune.graph.feeds import random_feeds, sample_feeds
from autotune.types import TensorType

TYPES = {
    "x": TensorType(dtype="float32", shape=(2, 3)),
    "ids": TensorType(dtype="int64", shape=(2,)),
}


def arrays(*leading: int) -> dict[str, np.ndarray]:
    return {
        "x": np.arange(np.prod(leading, dtype=int) * 6, dtype=np.float64).reshape(*leading, 2, 3),
        "ids": np.ones((*leading, 2), np.int64),
    }


def test_without_a_source_samples_are_random_and_seeded() -> None:
    one, two = (sample_feeds(TYPES, None, 3, seed=4) for _ in range(2))
    assert len(one) == 3
    assert all(np.array_equal(a["x"], b["x"]) for a, b in zip(one, two, strict=True))
    assert not np.array_equal(one[0]["x"], one[1]["x"])
    assert np.array_equal(one[0]["x"], random_feeds(TYPES, 4)["x"])


def test_a_file_holds_one_sample_or_several(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", **arrays())
    np.savez(tmp_path / "more.npz", **arrays(4))
    (one,) = sample_feeds(TYPES, tmp_path / "one.npz", 9)
    assert one["x"].dtype == np.float32
    assert len(sample_feeds(TYPES, str(tmp_path / "more.npz"), 9)) == 4
    assert len(sample_feeds(TYPES, tmp_path, 9)) == 5
    assert len(sample_feeds(TYPES, tmp_path, 2)) == 2


def test_samples_may_lie_along_the_batch() -> None:
    found = sample_feeds(TYPES, {"x": np.ones((6, 3), "f4"), "ids": np.arange(6)}, 9)
    assert [f["ids"].tolist() for f in found] == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": np.ones((2, 3))}, "expected arrays x .*ids"),
        ({"x": np.ones((2, 4)), "ids": np.ones(2, int)}, "several of them"),
        ({"x": np.ones((2, 3), int), "ids": np.ones(2, int)}, "got elements of int64"),
        ({"x": np.ones((5, 2, 3)), "ids": np.ones(2, int)}, "different numbers"),
        ([], "holds no samples"),
    ],
)
def test_what_does_not_fit_is_said(given: object, message: str) -> None:
    with pytest.raises(FeedError, match=message):
        sample_feeds(TYPES, given, 4)  # type: ignore[arg-type]


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(FeedError, match="cannot read"):
        sample_feeds(TYPES, tmp_path / "none.npz", 1)
    (tmp_path / "bad.npz").write_bytes(b"not an archive")
    with pytest.raises(FeedError, match=r"bad\.npz is no \.npz file"):
        sample_feeds(TYPES, tmp_path / "bad.npz", 1)
