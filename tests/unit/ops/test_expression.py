"""What later parts rely on in the shape of tensor expressions."""

from __future__ import annotations

import pytest

from autotune.errors import ConfigError
from autotune.ops import OPS, compute_flops
from autotune.ops.view import reshape_index
from autotune.program.ir import Compute, Load, Select, index
from autotune.program.text import print_index, print_value
from autotune.types import Attr, TensorType


def _expression(op: str, *shapes: tuple[int, ...], **attrs: Attr) -> tuple[Compute, ...]:
    types = [TensorType(dtype="float32", shape=s) for s in shapes]
    part = OPS.get(op)
    inputs = [(f"i{k}", t) for k, t in enumerate(types)]
    return part.expression(inputs, ("o0", part.infer(types, attrs)), attrs)


def test_convolution_axes() -> None:
    (conv,) = _expression("conv2d", (1, 6, 6, 4), (3, 3, 4, 8), pads=(1, 1, 1, 1))
    assert [a.name for a in conv.axes] == ["n", "oh", "ow", "oc"]
    assert [a.name for a in conv.reduce] == ["kh", "kw", "ic"]
    assert conv.pads == (("i0", ((0, 0), (1, 1), (1, 1), (0, 0))),)
    assert compute_flops(conv) == 2 * 6 * 6 * 8 * 9 * 4


def test_depthwise_convolution_has_no_channel_reduction() -> None:
    (conv,) = _expression("conv2d", (1, 6, 6, 4), (3, 3, 1, 4), groups=4)
    assert [a.name for a in conv.reduce] == ["kh", "kw"]
    assert print_value(conv.body) == "mul(i0[n, kh + oh, kw + ow, oc], i1[kh, kw, 0, oc])"


def test_grouped_convolution_finds_its_channels() -> None:
    (conv,) = _expression("conv2d", (1, 6, 6, 4), (3, 3, 2, 6), groups=2)
    assert "i0[n, kh + oh, kw + ow, ic + 2*(oc // 3)]" in print_value(conv.body)


def test_pads_say_what_is_read_and_no_more() -> None:
    (conv,) = _expression("conv2d", (1, 5, 5, 1), (3, 3, 1, 1), pads=(0, 0, 1, 1), strides=(2, 2))
    assert conv.pads == ()


def test_a_maximum_clamps_where_it_may() -> None:
    (pool,) = _expression("max_pool2d", (1, 5, 5, 2), kernel=(3, 3), pads=(1, 1, 1, 1))
    assert isinstance(pool.body, Load)
    (dilated,) = _expression(
        "max_pool2d", (1, 5, 5, 2), kernel=(2, 2), pads=(1, 1, 1, 1), dilations=(2, 2)
    )
    assert isinstance(dilated.body, Select)


def test_an_average_with_constant_count_is_one_multiplication() -> None:
    total, mean = _expression("avg_pool2d", (1, 4, 4, 2), kernel=(2, 2), strides=(2, 2))
    assert total.output == "o0.sum"
    assert print_value(mean.body) == "mul(o0.sum[n, oh, ow, c], float32(0.25))"


def test_stages_of_row_operators() -> None:
    outputs = [c.output for c in _expression("softmax", (2, 3))]
    assert outputs == ["o0.max", "o0.exp", "o0.sum", "o0.share", "o0"]
    outputs = [c.output for c in _expression("layer_norm", (2, 3), (3,), (3,))]
    assert outputs == ["o0.sum", "o0.mean", "o0.sq", "o0.rstd", "o0"]


@pytest.mark.parametrize(
    ("source", "target", "want"),
    [
        ((6, 4), (6, 4), ["a", "b"]),
        ((6, 1, 4), (1, 6, 4), ["b", "0", "c"]),
        ((24,), (6, 4), ["4*a + b"]),
        ((2, 3, 5), (6, 5), ["(a // 3)", "(a % 3)", "b"]),
        ((5, 2, 3), (5, 6), ["a", "(b // 3)", "(b % 3)"]),
        ((4, 6), (6, 4), ["((4*a + b) // 6)", "((4*a + b) % 6)"]),
    ],
)
def test_reshapes_stay_affine_where_dimensions_map(
    source: tuple[int, ...], target: tuple[int, ...], want: list[str]
) -> None:
    point = [index(v) for v in "abc"[: len(target)]]
    assert [print_index(i) for i in reshape_index(source, target, point)] == want


def test_an_op_is_registered_once() -> None:
    with pytest.raises(ConfigError, match="registered twice"):
        OPS.add("relu", OPS.get("relu"))
