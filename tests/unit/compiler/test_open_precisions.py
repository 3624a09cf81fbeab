"""Models of open sizes in bfloat16 and int8: one program for all sizes, on bytes by samples of any
of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import autotune
from autotune.compiler.open_samples import DRAWN_ELEMENTS, open_samples
from autotune.errors import ConfigError, FeedError
from autotune.runtime.sized import SizedModel
from autotune.size_ranges import SizedType, SizeRange
from autotune.tuner.api import tune
from autotune.types import Array
from tests.unit.compiler.open_models import (
    FLOAT,
    attention,
    convolutions,
    detector,
    model_of,
    windows,
)
from tests.unit.compiler.test_open_recurrent import layer

RANGES = {"N": (1, 3), "H": (8, 64, 4), "W": (8, 64, 4)}


def image(*shape: int) -> dict[str, Array]:
    return {"x": np.random.default_rng(shape[-1]).standard_normal(shape).astype(np.float32)}


def tokens(*shape: int) -> dict[str, Array]:
    rng = np.random.default_rng(shape[-1])
    return {"ids": rng.integers(0, 50, shape), "mask": np.zeros(shape, np.float32)}


def peer(proto: onnx.ModelProto, feeds: dict[str, Array]) -> Array:
    given = proto.SerializeToString()
    session = onnxruntime.InferenceSession(given, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feeds)[0])


def noise(got: Array, want: Array) -> float:
    """Beside the signal."""
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


@pytest.mark.parametrize(
    ("made", "ranges", "samples", "others"),
    [
        (
            convolutions, RANGES, [image(3, 3, 8, 16), image(1, 3, 64, 20)],
            [image(1, 3, 12, 12), image(2, 3, 16, 64)],
        ),
        (
            detector, RANGES, [image(1, 3, 8, 8), image(2, 3, 32, 64)],
            [image(3, 3, 16, 12), image(1, 3, 64, 48)],
        ),
        (
            attention, None, [tokens(1, 9), tokens(3, 17), tokens(2, 40)],
            [tokens(4, 12), tokens(1, 33)],
        ),
        (
            windows, RANGES, [image(3, 3, 8, 16), image(1, 3, 64, 20)],
            [image(1, 3, 12, 12), image(2, 3, 20, 64)],
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_all_sizes_are_near_float32(
    made: Any, ranges: Any, samples: list[dict[str, Array]], others: list[dict[str, Array]]
) -> None:
    proto = made()
    model = autotune.compile(proto, ranges=ranges, precision="int8", calibration=samples)
    assert isinstance(model, SizedModel)
    assert model.quantization is not None
    assert model.quantization.contractions > 0
    assert all(row.samples == len(samples) for row in model.quantization.outputs)
    for feeds in (*samples, *others):
        got, want = model.run(feeds)["y"], peer(proto, feeds)
        assert 0 < noise(got, want) < 0.05


@pytest.mark.parametrize(
    ("made", "feeds"),
    [
        (convolutions, [image(1, 3, 8, 8), image(3, 3, 36, 20), image(2, 3, 12, 64)]),
        (detector, [image(1, 3, 8, 8), image(2, 3, 32, 64)]),
        (windows, [image(1, 3, 8, 8), image(2, 3, 20, 36), image(1, 3, 64, 64)]),
        (attention, [tokens(1, 1), tokens(3, 17), tokens(2, 40)]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize("target", ["cpu", pytest.param("x86-64-v3", marks=pytest.mark.slow)])
def test_bfloat16_is_near_float32_at_all_sizes(
    made: Any, feeds: list[dict[str, Array]], target: str
) -> None:
    """Borders of strips too, where data are copied: their neighbours are no zeros."""
    proto, ranges = made(), None if made is attention else RANGES
    model = autotune.compile(proto, target=target, ranges=ranges, precision="bf16")
    for each in feeds:
        got, want = model.run(each)["y"], peer(proto, each)
        assert noise(got, want) < 0.01
        assert np.abs(got - want).max() < 0.03 * np.abs(want).max()


def test_the_same_samples_give_what_a_compile_of_that_size_gives() -> None:
    proto, samples = convolutions(), [image(2, 3, 24, 16)]
    open_model = autotune.compile(proto, ranges=RANGES, precision="int8", calibration=samples)
    alone = autotune.compile(
        proto, shapes={"x": (2, 3, 24, 16)}, precision="int8", calibration=samples
    )
    feeds = image(2, 3, 24, 16)
    np.testing.assert_allclose(open_model.run(feeds)["y"], alone.run(feeds)["y"], atol=1e-6)
    assert open_model.quantization is not None
    assert alone.quantization is not None
    assert open_model.quantization.kept == alone.quantization.kept


@pytest.mark.slow
def test_larger_samples_have_larger_steps() -> None:
    """Ranges are those of the samples, whatever their sizes."""
    proto, feeds = convolutions(), image(1, 3, 16, 16)
    large = [{"x": 100 * image(1, 3, size, 8)["x"]} for size in (8, 20)]
    near = autotune.compile(proto, ranges=RANGES, precision="int8", calibration=[feeds])
    far = autotune.compile(proto, ranges=RANGES, precision="int8", calibration=large)
    want = peer(proto, feeds)
    errors = [float(np.abs(m.run(feeds)["y"] - want).max()) for m in (near, far)]
    assert errors[1] > 5 * errors[0]


def test_recurrent_steps_stay_in_float32() -> None:
    proto = layer("LSTM")
    model = autotune.compile(proto, ranges={"T": (1, 7), "B": (1, 2)}, precision="int8")
    x = np.random.default_rng(0).standard_normal((5, 2, 3)).astype(np.float32)
    np.testing.assert_allclose(model.run({"x": x})["y"], peer(proto, {"x": x}), atol=0.05)


def test_sizes_by_themselves_are_in_float32() -> None:
    """What is specialized, and sizes that the one program leaves out: of narrow images a stride
    would leave nothing."""
    proto, narrow = convolutions(), {"x": np.ones((1, 3, 2, 2), np.float32)}
    ranges = {"N": (1, 2), "H": (1, 64), "W": (1, 64)}
    model = autotune.compile(proto, ranges=ranges, precision="int8")
    assert isinstance(model, SizedModel)
    assert model.notes[-1] == "what is compiled for sizes by themselves is in float32"
    alone = model.specialize({"N": 1, "H": 2, "W": 2})
    np.testing.assert_allclose(alone.run(narrow)["y"], peer(proto, narrow), rtol=1e-4, atol=1e-5)


def test_drawn_samples_are_within_the_ranges_and_not_large() -> None:
    kinds = {"x": SizedType(dtype="float32", shape=("N", 3, "H", "H"))}
    ranges = {"N": SizeRange(least=0, most=512), "H": SizeRange(least=64, most=4096, step=32)}
    feeds = open_samples(kinds, ranges, (), None).feeds
    assert len(feeds) > 1
    for each in feeds:
        batch, _, height, width = each["x"].shape
        assert height == width
        assert batch in ranges["N"]
        assert height in ranges["H"]
        assert 0 < each["x"].size <= DRAWN_ELEMENTS
    assert feeds[0]["x"].size == max(each["x"].size for each in feeds)


def test_wrong_samples_and_models_are_one_line() -> None:
    proto = convolutions()

    def compiled(**options: Any) -> None:
        autotune.compile(proto, ranges=RANGES, **options)

    with pytest.raises(FeedError, match=r"dimension 2 \(H\) is 9, the range is 8 to 64"):
        compiled(precision="int8", calibration=[image(1, 3, 9, 8)])
    with pytest.raises(FeedError, match="x must be float32"):
        compiled(precision="int8", calibration=[image(1, 4, 8, 8)])
    with pytest.raises(FeedError, match="expected arrays x"):
        compiled(precision="int8", calibration=[{"z": np.zeros(3, np.float32)}])
    with pytest.raises(ConfigError, match="samples for calibration are for precision int8"):
        compiled(calibration=[image(1, 3, 8, 8)])


def test_without_one_program_there_is_no_int8_of_open_sizes() -> None:
    """Rows that are as many as the exporter saw."""
    shape = numpy_helper.from_array(np.array([4, 6]), "shape")
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    proto = model_of(nodes, {"x": (FLOAT, ["N", 12])}, [4, 6], [shape])
    with pytest.raises(ConfigError, match=r"has none \(.*cannot reshape.*\); fix N with --shape"):
        autotune.compile(proto, ranges={"N": (1, 8)}, precision="int8")


def test_it_is_tuned_on_bytes(tmp_path: Path, measured: Path) -> None:
    options = {
        "log": tmp_path / "tuning.db", "cache_dir": measured, "ranges": RANGES,
        "precision": "int8", "calibration": [image(2, 3, 24, 32)],
    }  # fmt: skip
    proto, at = convolutions(), {"N": (1,), "H": (32,), "W": (32,)}
    report = tune(proto, at=at, trials=6, **options)  # type: ignore[arg-type]
    kinds = {value.type.dtype for r in report.tasks for value in r.task.by_role("input")}
    assert "uint8" in kinds
    model = autotune.compile(proto, **options)  # type: ignore[arg-type]
    feeds = image(2, 3, 32, 48)
    assert 0 < noise(model.run(feeds)["y"], peer(proto, feeds)) < 0.05
