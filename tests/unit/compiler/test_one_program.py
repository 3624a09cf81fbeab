"""One program for all sizes of a model, against ONNX Runtime at sizes that it was not made for."""

from __future__ import annotations

import copy
import functools
import logging
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import autotune
from autotune.errors import ArtifactError, ClosedError, ConfigError, FeedError, ModelError
from autotune.runtime.open_run import OpenRun
from autotune.runtime.sized import SizedModel
from autotune.types import Array
from tests.unit.compiler.open_models import (
    FLOAT,
    attention,
    convolutions,
    detector,
    model_of,
)

RANGES = {"N": (1, 3), "H": (8, 96), "W": (8, 96)}
SIZES = ((1, 8, 8), (1, 64, 64), (2, 19, 33), (3, 96, 9), (1, 9, 96), (1, 64, 64))


NETWORK = convolutions()


@functools.cache
def images(threads: int = 1) -> SizedModel:
    made = autotune.compile(NETWORK, ranges=RANGES, threads=threads)
    assert isinstance(made, SizedModel)
    return made


def image(n: int, h: int, w: int) -> Array:
    return np.random.default_rng(h).standard_normal((n, 3, h, w)).astype(np.float32)


def test_any_sizes_equal_onnx_runtime(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "autotune.compile")
    model = images()
    peer = onnxruntime.InferenceSession(
        NETWORK.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    caplog.clear()
    for sizes in SIZES:
        x = image(*sizes)
        want = peer.run(None, {"x": x})[0]
        np.testing.assert_allclose(model.run({"x": x})["y"], want, rtol=1e-3, atol=1e-4)
    assert not caplog.records  # nothing was compiled
    assert "one program serves all of them" in model.notes[0]
    assert repr(model).endswith("compiled for all sizes>")


@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_attention_over_any_sequence(threads: int) -> None:
    """Blocks of keys: none whole, some, and a last one that is not. Threads share extents that
    differ from call to call."""
    proto, rng = attention(), np.random.default_rng(3)
    model = autotune.compile(proto, ranges={"B": (1, 4), "S": (1, 200)}, threads=threads)
    assert "one program serves all of them" in model.notes[0]
    peer = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for shape in ((1, 1), (2, 33), (4, 64), (3, 7), (1, 200), (2, 129), (4, 17)):
        mask = np.where(rng.random(shape) < 0.2, -10, 0).astype(np.float32)
        feeds = {"ids": rng.integers(0, 50, shape), "mask": mask}
        want = peer.run(None, feeds)[0]
        np.testing.assert_allclose(model.run(feeds)["y"], want, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_features_of_several_scales() -> None:
    proto = detector()
    model = autotune.compile(proto, ranges={"N": (1, 2), "H": (32, 160, 32), "W": (32, 160, 32)})
    assert "one program serves all of them" in model.notes[0]
    peer = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for sizes in ((1, 32, 32), (1, 96, 160), (2, 128, 64)):
        x = image(*sizes)
        want = peer.run(None, {"x": x})[0]
        np.testing.assert_allclose(model.run({"x": x})["y"], want, rtol=1e-3, atol=1e-4)


def rows_model(nodes: list[onnx.NodeProto], *dims: int | str) -> onnx.ModelProto:
    return model_of(nodes, {"x": (FLOAT, [*dims])}, [None] * len(dims), [])


def test_tasks_in_plain_loops_are_named() -> None:
    """Linear interpolation peels borders, whose places a schedule knows of fixed sizes only."""
    resize = onnx.helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear")
    scales = onnx.numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales")
    proto = rows_model([resize], 1, 8, "H", "W")
    proto.graph.initializer.append(scales)
    model = autotune.compile(proto, ranges={"H": (4, 16), "W": (4, 16)})
    assert model.notes[1].startswith("resize of 'y' runs in plain loops: none of its schedules")
    peer = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for h, w in ((4, 4), (16, 5), (9, 13)):
        x = np.random.default_rng(h).standard_normal((1, 8, h, w)).astype(np.float32)
        want = peer.run(None, {"x": x})[0]
        np.testing.assert_allclose(model.run({"x": x})["y"], want, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_memory_is_that_of_the_kernels_that_are_called() -> None:
    """Kernels for long rows need room to work in that short ones do not take."""
    model = autotune.compile(attention(), ranges={"B": (1, 1), "S": (1, 200)})
    assert isinstance(model, SizedModel)
    feeds = {"ids": np.ones((1, 4), np.int64), "mask": np.zeros((1, 4), np.float32)}
    model.run(feeds)
    there = model._anywhere(((1, 4), (1, 4)))
    alone = model.specialize({"B": 1, "S": 4})
    needs, wanted = (m.image.arena_bytes + m.image.workspace_bytes for m in (there, alone))
    assert needs <= 4 * wanted + 65536


def test_a_caller_s_arrays_and_a_choice_of_outputs() -> None:
    x, y = image(2, 20, 20), np.empty((2, 10), np.float32)
    given = images().run({"x": x}, outputs=["y"], out={"y": y})
    assert given["y"] is y
    np.testing.assert_array_equal(y, images().run({"x": x})["y"])


def test_a_plain_run_makes_nothing_but_what_it_needs_and_a_closed_model_refuses_it() -> None:
    """Of a size that is new, since Python is what takes longer there."""
    model, x = copy.copy(images()), image(2, 40, 24)
    want = images().run({"x": x.tolist()})["y"]
    got = model.run({"x": x})["y"]
    (there,) = model._ready.values()
    assert isinstance(there, OpenRun)
    assert there._model is None
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(model.run({"x": x[:, :, ::-1][:, :, ::-1]})["y"], want)
    model.close()
    with pytest.raises(ClosedError, match="is closed"):
        there.run({"x": x})


@pytest.mark.slow
def test_threads_give_the_same_bits_in_every_run() -> None:
    """Strips overlap where the output is no multiple of them; Winograd's sums depend on where a
    strip begins, and who writes last depends on the threads."""
    model, x = images(2), image(2, 19, 33)
    first = model.run({"x": x})["y"]
    for _ in range(500):
        np.testing.assert_array_equal(model.run({"x": x})["y"], first)


def test_a_size_outside_of_its_range_is_refused() -> None:
    with pytest.raises(FeedError, match=r"'x' dimension 2 \(H\) is 97, the range is 8 to 96"):
        images().run({"x": image(1, 97, 8)})


def test_sizes_that_need_more_memory_than_there_is_are_refused() -> None:
    """Before anything is allocated: the input takes no memory, either."""
    relu = rows_model([onnx.helper.make_node("Relu", ["x"], ["y"])], "N", 3, "H", "W")
    model = autotune.compile(relu, ranges={"N": (1, 1 << 20), "H": (8, 1 << 15), "W": (8, 96)})
    x = np.broadcast_to(np.float32(0), (1 << 20, 3, 1 << 15, 96))
    with pytest.raises(ModelError, match=r"a run at N=1048576, H=32768, W=96 takes .* GiB, this"):
        model.run({"x": x})


def test_a_closed_model_says_so() -> None:
    relu = rows_model([onnx.helper.make_node("Relu", ["x"], ["y"])], "N", 3, "H", "W")
    model = autotune.compile(relu, ranges={"N": (1, 2), "H": (8, 8), "W": (8, 16)})
    assert isinstance(model, SizedModel)
    model.run({"x": image(1, 8, 8)})
    model.close()
    with pytest.raises(ClosedError):
        model.run({"x": image(1, 8, 8)})
    with pytest.raises(ClosedError):
        model.run({"x": image(1, 8, 9)})


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kept", ["file", "bytes", "pickle", "copy", "deepcopy"])
def test_what_is_kept_of_it_runs_at_any_sizes(kept: str, threads: int, tmp_path: Path) -> None:
    model = images(threads)
    model.save(tmp_path / "net.model")
    made: Callable[[SizedModel], Any] = {
        "file": lambda _: autotune.load(tmp_path / "net.model"),
        "bytes": lambda _: autotune.load((tmp_path / "net.model").read_bytes()),
        "pickle": lambda m: pickle.loads(pickle.dumps(m)),
        "copy": copy.copy,
        "deepcopy": copy.deepcopy,
    }[kept]
    with made(model) as other:
        assert (other.inputs, other.outputs) == (model.inputs, model.outputs)
        assert (other.ranges, other.notes) == (model.ranges, model.notes)
        for sizes in SIZES[:3]:
            x = image(*sizes)
            np.testing.assert_array_equal(other.run({"x": x})["y"], model.run({"x": x})["y"])
        with pytest.raises(FeedError, match="the range is 8 to 96"):
            other.run({"x": image(1, 97, 8)})
        if kept == "copy":
            assert other.specialize({"N": 1, "H": 8, "W": 8}).run({"x": image(1, 8, 8)})
        else:
            with pytest.raises(ConfigError, match="'net' comes from a file, which holds the pro"):
                other.specialize({"N": 1, "H": 8, "W": 8})
    assert model.run({"x": image(1, 8, 8)})  # closing one leaves the other


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    images().save(tmp_path / "net.model")
    data = (tmp_path / "net.model").read_bytes()
    for old, new in ((b'"units"', b'"uints"'), (b'"filled"', b'"fillet"')):
        with pytest.raises(ArtifactError, match="damaged"):
            autotune.load(data.replace(old, new))
