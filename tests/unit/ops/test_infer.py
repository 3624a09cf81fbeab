"""Types of outputs, and inputs that do not fit."""

from __future__ import annotations

import pytest

from autotune.errors import ModelError
from autotune.ops import OPS
from autotune.types import Attr, TensorType


def f32(*shape: int) -> TensorType:
    return TensorType(dtype="float32", shape=shape)


def i64(*shape: int) -> TensorType:
    return TensorType(dtype="int64", shape=shape)


def boolean(*shape: int) -> TensorType:
    return TensorType(dtype="bool", shape=shape)


def _infer(op: str, *types: TensorType, **attrs: Attr) -> TensorType:
    return OPS.get(op).infer(types, attrs)


@pytest.mark.parametrize(
    ("op", "types", "attrs", "want"),
    [
        ("conv2d", [f32(2, 9, 8, 6), f32(3, 3, 3, 4)], {"groups": 2, "strides": (2, 1)},
         f32(2, 4, 6, 4)),
        ("conv2d", [f32(1, 5, 5, 3), f32(3, 3, 3, 8)], {"pads": (1, 2, 1, 2), "dilations": (2, 1)},
         f32(1, 3, 7, 8)),
        ("matmul", [f32(4, 1, 2, 3), f32(5, 3, 7)], {}, f32(4, 5, 2, 7)),
        ("matmul", [f32(2, 3), f32(7, 3)], {"transpose_b": True}, f32(2, 7)),
        ("max_pool2d", [f32(1, 7, 7, 2)], {"kernel": (3, 3), "strides": (2, 2)}, f32(1, 3, 3, 2)),
        ("lt", [f32(3, 1), f32(4)], {}, boolean(3, 4)),
        ("where", [boolean(3), f32(), f32(2, 1)], {}, f32(2, 3)),
        ("to_int64", [f32(2)], {}, i64(2)),
        ("argmax", [f32(2, 3)], {"axis": -1, "keepdims": False}, i64(2)),
        ("reduce_mean", [f32(2, 3, 4)], {"axes": (0, -1)}, f32(1, 3, 1)),
        ("gather", [f32(5, 6), i64(2, 3)], {"axis": 1}, f32(5, 2, 3)),
        ("pad", [f32(2, 3)], {"pads": (1, 0, 0, -2)}, f32(3, 1)),
        ("slice", [f32(9, 4)], {"starts": (1, 0), "stops": (8, 4), "steps": (3, 1)}, f32(3, 4)),
        ("concat", [f32(2, 3), f32(2, 1)], {"axis": -1}, f32(2, 4)),
        ("scalar", [], {"value": 2, "dtype": "int64"}, i64()),
    ],
)  # fmt: skip
def test_output_types(
    op: str, types: list[TensorType], attrs: dict[str, Attr], want: TensorType
) -> None:
    assert _infer(op, *types, **attrs) == want


@pytest.mark.parametrize(
    ("op", "types", "attrs", "message"),
    [
        ("conv2d", [f32(1, 5, 5, 3)], {}, "conv2d takes 2 inputs, got 1"),
        ("conv2d", [f32(5, 5, 3), f32(3, 3, 3, 4)], {}, "x must be"),
        ("conv2d", [f32(1, 5, 5, 3), f32(3, 3, 4, 4)], {}, "1 groups of channels do not fit"),
        ("conv2d", [f32(1, 5, 5, 4), f32(3, 3, 2, 3)], {"groups": 2}, "2 groups"),
        ("conv2d", [f32(1, 2, 5, 3), f32(3, 3, 3, 4)], {}, "larger than padded"),
        ("conv2d", [f32(1, 5, 5, 3), f32(3, 3, 3, 4)], {"pads": (-1, 0, 0, 0)}, "not be negative"),
        ("conv2d", [f32(1, 5, 5, 3), f32(3, 3, 3, 4)], {"strides": (0, 1)}, "must be positive"),
        ("conv2d", [f32(1, 5, 5, 3), f32(3, 3, 3, 4)], {"pads": (1, 1)}, "must have 4 items"),
        ("conv2d", [i64(1, 5, 5, 3), i64(3, 3, 3, 4)], {}, "must be floating point, got int64"),
        ("matmul", [f32(3), f32(3, 4)], {}, "rank must be >= 2"),
        ("matmul", [f32(2, 3), f32(4, 5)], {}, "inner extents"),
        ("matmul", [f32(2, 2, 3), f32(3, 3, 5)], {}, "do not broadcast"),
        ("add", [f32(2), i64(2)], {}, "one dtype, got float32, int64"),
        ("add", [boolean(2), boolean(2)], {}, "must be numbers, got bool"),
        ("and", [f32(2), f32(2)], {}, "must be bool"),
        ("exp", [i64(2)], {}, "must be floating point"),
        ("where", [f32(2), f32(2), f32(2)], {}, "condition must be bool"),
        ("gelu", [f32(2)], {"approximate": "rough"}, "must be one of none, tanh"),
        ("elu", [f32(2)], {"alpha": "x"}, "'alpha' must be a number"),
        ("softmax", [f32(2, 3)], {"axis": 2}, "axis 2 is out of range for rank 2"),
        ("layer_norm", [f32(2, 3), f32(2)], {}, "do not broadcast"),
        ("layer_norm", [f32(1, 3), f32(2, 3)], {}, "must broadcast to"),
        ("reduce_sum", [f32(2, 3)], {"axes": (0, -2)}, "name a dimension twice"),
        ("reduce_max", [f32(2, 0)], {"axes": (1,)}, "cannot reduce empty dimensions"),
        ("gather", [f32(2, 3), f32(2)], {}, "indices must be int32 or int64"),
        ("resize", [i64(2)], {"out_shape": (4,), "mode": "linear"}, "linear needs floats"),
        ("reshape", [f32(2, 3)], {"shape": (4,)}, "has 6 elements"),
        ("reshape", [f32(2, 3)], {"shape": (-1,)}, "has 6 elements"),
        ("transpose", [f32(2, 3)], {"perm": (0, 0)}, "does not permute"),
        ("slice", [f32(4)], {"starts": (0,), "stops": (5,)}, "does not fit extent 4"),
        ("slice", [f32(4)], {"starts": (0,), "stops": (4,), "steps": (-1,)}, "does not fit"),
        ("concat", [f32(2, 3), f32(3, 3)], {"axis": 1}, "differ beside dimension 1"),
        ("pad", [f32(2)], {"pads": (-3, 0)}, "crops more"),
        ("scalar", [], {"value": 1.0, "dtype": "text"}, "'dtype' must be one of"),
    ],
)
def test_what_does_not_fit_is_said(
    op: str, types: list[TensorType], attrs: dict[str, Attr], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        _infer(op, *types, **attrs)
