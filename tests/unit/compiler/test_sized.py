"""Models of open sizes, compiled for the sizes that they meet, against ONNX Runtime."""

from __future__ import annotations

import logging
import re
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import autotune
from autotune.compiler import sized as compiler
from autotune.compiler.constants import NoRoomError, SharedConstants
from autotune.errors import ConfigError, ModelError, UnsupportedOpError
from autotune.memory import Bytes
from autotune.runtime.sized import SizedModel
from autotune.types import Array
from tests.unit.compiler.open_models import FLOAT, attention, convolutions, model_of


def image_feeds(rng: np.random.Generator) -> dict[str, Array]:
    batch, height, width = rng.integers(1, 4), rng.integers(4, 33), rng.integers(4, 33)
    return {"x": rng.standard_normal((batch, 3, height, width)).astype(np.float32)}


def token_feeds(rng: np.random.Generator) -> dict[str, Array]:
    shape = rng.integers(1, 4), rng.integers(1, 40)
    mask = np.where(rng.random(shape) < 0.2, -10, 0).astype(np.float32)
    return {"ids": rng.integers(0, 50, shape), "mask": mask}


@pytest.mark.parametrize(
    ("made", "drawn"),
    [pytest.param(convolutions, image_feeds, marks=pytest.mark.slow), (attention, token_feeds)],
)
def test_random_sizes_equal_onnx_runtime(made: Any, drawn: Any) -> None:
    proto, rng = made(), np.random.default_rng(1)
    model = autotune.compile(proto)
    assert isinstance(model, SizedModel)
    peer = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for _ in range(4):
        feeds = drawn(rng)
        want = peer.run(None, feeds)[0]
        kinds = model.inputs.items()
        sizes = {d: n for i, k in kinds for d, n in zip(k.shape, feeds[i].shape, strict=True)}
        alone = model.specialize({symbol: sizes[symbol] for symbol in model.symbols})
        for way in (model, alone):
            np.testing.assert_allclose(way.run(feeds)["y"], want, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_sizes_share_kernels_and_weights(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "autotune.compile")
    with autotune.compile(convolutions()) as model:
        assert isinstance(model, SizedModel)
        one = model.specialize({"N": 1, "H": 8, "W": 8}).image
        two = model.specialize({"N": 1, "H": 16, "W": 8}).image
        assert np.shares_memory(one.constants, two.constants)
        alone = autotune.compile(convolutions(), shapes={"x": (1, 3, 16, 8)}).image
        assert two.constants.nbytes < one.constants.nbytes + alone.constants.nbytes
    said = [record.getMessage() for record in caplog.records]
    assert any("the sizes N, H, W of net may change from run to run" in line for line in said)
    pattern = r"net compiled for N=1, H=\d+, W=8 in \S+ s, (\d+) of its (\d+) kernels new"
    counts = [tuple(map(int, match.groups())) for s in said[1:] if (match := re.match(pattern, s))]
    (new, kernels), (new_later, kernels_later) = counts
    assert new == kernels
    assert new_later < kernels_later


def doubled() -> onnx.ModelProto:
    """A network of the same input as `convolutions`, of one kernel."""
    add = onnx.helper.make_node("Add", ["x", "x"], ["y"])
    return model_of([add], {"x": (FLOAT, ["N", 3, "H", "W"])}, ["N", 3, "H", "W"], [])


def test_symbols_are_named_and_fixed_by_shapes() -> None:
    model = autotune.compile(doubled(), shapes={"x": (2, 3, "h", "h")}, ranges={"h": (8, 64, 8)})
    assert isinstance(model, SizedModel)
    assert str(model.inputs["x"]) == "float32[2,3,h,h]"
    assert str(model.outputs["y"]) == "float32[N,3,H,W]"
    fixed = autotune.compile(doubled(), shapes={"x": (1, 3, 8, 8)})
    assert fixed.inputs["x"].shape == (1, 3, 8, 8)


def test_dimensions_without_names_are_symbols_of_their_own() -> None:
    proto = doubled()
    for dim in proto.graph.input[0].type.tensor_type.shape.dim:
        dim.ClearField("dim_param")
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    model = autotune.compile(proto)
    assert isinstance(model, SizedModel)
    assert model.symbols == ("x.0", "x.2", "x.3")
    assert str(model.outputs["y"]) == "float32[...]"


def test_what_is_wrong_is_said_when_it_is_compiled() -> None:
    proto = convolutions()
    with pytest.raises(ConfigError, match=r"a range is given for 'Q'.*are N, H, W"):
        autotune.compile(proto, ranges={"Q": (1, 2)})
    with pytest.raises(ConfigError, match=r"a range is given for 'H'.*are none"):
        autotune.compile(proto, shapes={"x": (1, 3, 8, 8)}, ranges={"H": (1, 2)})
    with pytest.raises(ModelError, match=r"shape 1x4xHxW given for input 'x' does not fit"):
        autotune.compile(proto, shapes={"x": (1, 4, "H", "W")})
    with pytest.raises(ModelError, match=r"shape 0x3xHxW of input 'x' must have positive"):
        autotune.compile(proto, shapes={"x": (0, 3, "H", "W")})
    with pytest.raises(ModelError, match="has symbolic dimensions Nx3xHxW; pass --shape x=1x3x"):
        autotune.partition(proto)
    with pytest.raises(ModelError, match="has symbolic dimensions"):
        autotune.partition(proto, shapes={"x": (1, 3, "a", "b")})
    proto.graph.node[1].op_type = "NoSuchOperator"
    with pytest.raises(UnsupportedOpError, match=r"operator NoSuchOperator .* is not supported"):
        autotune.compile(proto)


@pytest.mark.parametrize(
    "ranges", [{"H": 3}, {"H": (1,)}, {"H": (-1, 4)}, {"H": (5, 4)}, {"H": (1, 4, 0)}, {3: (1, 2)}]
)
def test_a_range_that_is_none(ranges: Any) -> None:
    with pytest.raises(ConfigError, match=r"^(the (least|most|step) of )?ranges"):
        autotune.compile(convolutions(), ranges=ranges)


def test_packings_beyond_what_is_reserved_go_to_a_new_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiler, "RESERVED_WEIGHTS", 0)
    monkeypatch.setattr(compiler, "RESERVED_BYTES", 64)
    real = SharedConstants
    made: list[int] = []

    def reserved(nbytes: int) -> SharedConstants:
        made.append(nbytes)
        return real(nbytes if len(made) == 1 else 1 << 20)

    monkeypatch.setattr(compiler, "SharedConstants", reserved)
    proto, feeds = attention(), token_feeds(np.random.default_rng(2))
    sized = autotune.compile(proto)
    assert isinstance(sized, SizedModel)
    model = sized.specialize(dict(zip(sized.symbols, feeds["ids"].shape, strict=True)))
    peer = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    np.testing.assert_allclose(
        model.run(feeds)["y"], peer.run(None, feeds)[0], rtol=1e-3, atol=1e-4
    )
    assert len(made) == 2


def test_shared_constants_are_stored_once_and_never_moved() -> None:
    constants, flat = SharedConstants(256), np.arange(100, dtype=np.uint8)

    def add(array: Bytes) -> int:
        return constants.add(array.nbytes, lambda out: np.copyto(out, array))

    first = add(flat)
    before = constants.block()
    assert add(flat) == first
    assert add(flat[:10]) == 128
    np.testing.assert_array_equal(before[first : first + 100], flat)
    assert np.shares_memory(before, constants.block())
    assert add(flat) == first  # whose bytes need no room
    with pytest.raises(NoRoomError):
        add(flat[::-1])
