"""Casts to types that graphs do not have, against the standard's reference."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import autotune
from autotune.compiler.driver import compile_graph
from autotune.errors import FeedError
from autotune.frontend.onnx.importer import import_model
from autotune.frontend.onnx.kinds import DECLARED, kind_name
from autotune.runtime.model import CompiledModel
from autotune.target import host_target
from autotune.types import Array

FLOAT = TensorProto.FLOAT
EIGHT_BITS = ("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ")
KINDS = [
    *((k, None) for k in ("BFLOAT16", "FLOAT16", "INT4", "UINT4", "INT2", "UINT2")),
    *((k, s) for k in EIGHT_BITS for s in (0, 1)),
    ("FLOAT4E2M1", None),
]


def there_and_back(kind: str, saturate: int | None, like: bool, count: int) -> onnx.ModelProto:
    attrs = {} if saturate is None else {"saturate": saturate}
    wanted = getattr(TensorProto, kind)
    if like:
        inits = [helper.make_tensor("like", wanted, [1], [1])]
        first = helper.make_node("CastLike", ["x", "like"], ["q"], **attrs)
    else:
        inits, first = [], helper.make_node("Cast", ["x"], ["q"], to=wanted, **attrs)
    back = helper.make_node("Cast", ["q"], ["y"], to=TensorProto.FLOAT)
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [count]) for n in "xy"]
    graph = helper.make_graph([first, back], "casts", info[:1], info[1:], inits)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11)


def compiled(model: onnx.ModelProto) -> CompiledModel:
    """With denormal numbers, which are bfloat16's too."""
    return compile_graph(import_model(model, {}), host_target().with_accuracy("strict"))


def numbers(kind: str) -> Array:
    """All sizes; the middles between values of the type, and what is beside them; ends."""
    rng = np.random.default_rng(3)
    if "INT" in kind:
        whole = np.arange(-40, 1100, dtype=np.float32)
        return np.concatenate([whole, whole + 0.5, whole - 0.25, [1e6, -1e6, 3e9]]).astype("f4")
    narrow = np.dtype(
        getattr(
            ml_dtypes,
            kind.lower().replace("float8", "float8_").replace("e2m1", "_e2m1fn"),
            np.float16,
        )
    )
    if kind == "BFLOAT16":
        narrow = np.dtype(ml_dtypes.bfloat16)
    whole = "u1" if narrow.itemsize == 1 else "u2"
    every = np.arange(1 << 8 * narrow.itemsize, dtype=np.uint32).astype(whole).view(narrow)
    exact = np.unique(np.abs(every.astype(np.float32)))
    exact = exact[np.isfinite(exact)]
    middles = ((exact[1:].astype(np.float64) + exact[:-1]) / 2).astype(np.float32)
    beside = [np.nextafter(middles, np.float32(end)) for end in (np.inf, 0)]
    wide = rng.standard_normal(4000) * np.exp(rng.uniform(-40, 40, 4000))
    ends = [0, 448, 464, 465, 480, 240, 248, 249, 57344, 61440, 61441, 65504, 65519, 65520, 1e9]
    x = np.concatenate([exact, middles, *beside, wide, ends]).astype(np.float32)
    return np.concatenate([x, -x, np.asarray([math.inf, -math.inf, math.nan], np.float32)])


@pytest.mark.parametrize("like", [False, True], ids=["Cast", "CastLike"])
@pytest.mark.parametrize(("kind", "saturate"), KINDS)
def test_casts_round_and_saturate_as_the_standard_says(
    kind: str, saturate: int | None, like: bool
) -> None:
    x = numbers(kind)
    model = there_and_back(kind, saturate, like, x.size)
    with np.errstate(all="ignore"):
        reference = there_and_back(kind, saturate, False, x.size)
        (want,) = ReferenceEvaluator(reference).run(None, {"x": x})
    np.testing.assert_array_equal(compiled(model).run({"x": x})["y"], want)


def test_denormal_numbers_may_be_cast_to_zeros_unless_strict() -> None:
    x = numbers("BFLOAT16")
    model = there_and_back("BFLOAT16", None, False, x.size)
    with np.errstate(all="ignore"):
        (want,) = ReferenceEvaluator(model).run(None, {"x": x})
    got = compile_graph(import_model(model, {}), host_target()).run({"x": x})["y"]
    tiny = np.abs(want) <= np.finfo(np.float32).tiny  # what is rounded to it may be denormal
    np.testing.assert_array_equal(got[~tiny], want[~tiny])
    assert np.all((got[tiny] == want[tiny]) | (got[tiny] == 0))


@pytest.mark.parametrize("kind", ["INT4", "UINT4"])
def test_whole_numbers_keep_their_lowest_bits(kind: str) -> None:
    x = np.asarray([0, 7, 8, 15, 16, 1000, -1, -8, -9, 2**31 - 1, -(2**31)], np.int32)
    model = there_and_back(kind, None, False, x.size)
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT32
    low = x & 15
    want = np.where(low > 7, low - 16, low) if kind == "INT4" else low
    np.testing.assert_array_equal(compiled(model).run({"x": x})["y"], want)


def one(operator: str, kinds: tuple[int, int], **attrs: Any) -> onnx.ModelProto:
    """A model of one operator from x to y."""
    node = helper.make_node(operator, ["x"], ["y"], **attrs)
    x, y = (helper.make_tensor_value_info(n, k, [3]) for n, k in zip("xy", kinds, strict=True))
    graph = helper.make_graph([node], "one", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11)


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)])
def test_short_floats_are_taken_and_given(dtype: np.dtype[Any]) -> None:
    kind = helper.np_dtype_to_tensor_dtype(dtype)
    x = np.asarray([1, 2.5, -3], dtype)
    model = compiled(one("Exp", (kind, kind)))
    got = model.run({"x": x})["y"]
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, np.exp(x.astype(np.float32)).astype(dtype))


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)])
def test_inputs_and_outputs_show_the_type_that_callers_have(dtype: np.dtype[Any]) -> None:
    """What a model says of its outputs is what `out` takes."""
    kind = helper.np_dtype_to_tensor_dtype(dtype)
    model = compiled(one("Exp", (kind, kind)))
    assert str(model.inputs["x"]) == str(model.outputs["y"]) == f"{dtype.name}[3]"
    assert f"x: {dtype.name}[3] -> y: {dtype.name}[3]" in repr(model)
    y = np.empty(model.outputs["y"].shape, np.dtype(model.outputs["y"].dtype))
    assert model.run({"x": np.zeros(3, dtype)}, out={"y": y})["y"] is y
    assert model.bench(1).median_s > 0


def test_a_model_of_open_sizes_shows_the_types_that_its_runs_give() -> None:
    kinds = TensorProto.FLOAT16, TensorProto.BFLOAT16
    model = one("Cast", kinds, to=TensorProto.BFLOAT16)
    for info in (*model.graph.input, *model.graph.output):
        info.type.tensor_type.shape.dim[0].dim_param = "N"
    with autotune.compile(model) as sized:
        assert str(sized.inputs["x"]) == "float16[N]"
        assert str(sized.outputs["y"]) == "bfloat16[N]"
        assert sized.run({"x": np.ones(2, np.float16)})["y"].dtype == ml_dtypes.bfloat16


def test_the_type_outside_is_kept_in_a_file(tmp_path: Any) -> None:
    from autotune.runtime.artifact import load

    model = compiled(one("Exp", (TensorProto.BFLOAT16, TensorProto.BFLOAT16)))
    model.save(tmp_path / "short.model")
    got = load(tmp_path / "short.model").run({"x": np.ones(3, ml_dtypes.bfloat16)})["y"]
    assert got.dtype == ml_dtypes.bfloat16


def test_bfloat16_is_taken_only_where_the_model_says_so() -> None:
    model = compiled(one("Exp", (TensorProto.FLOAT, TensorProto.FLOAT)))
    with pytest.raises(FeedError, match="expected float32, got bfloat16"):
        model.run({"x": np.ones(3, ml_dtypes.bfloat16)})


@pytest.mark.parametrize("kind", DECLARED, ids=kind_name)
def test_narrow_types_are_given_and_taken(kind: int) -> None:
    """All values of the type go in, and numbers come out as ml_dtypes has them."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    every = np.arange(1 << min(8 * dtype.itemsize, 16)).astype(f"u{dtype.itemsize}").view(dtype)
    bits = DECLARED[kind].removeprefix("u").removeprefix("int")
    every = np.arange(1 << int(bits)).astype("i1").astype(dtype) if bits.isdigit() else every
    wide = every.astype(np.float32)
    every = every[np.isfinite(wide) & (wide != np.float32(2.0**-127))]
    x = every[:3]
    out, back = (compiled(one("Cast", p, to=p[1])) for p in ((FLOAT, kind), (kind, FLOAT)))
    assert out.outputs["y"].dtype == back.inputs["x"].dtype == dtype.name
    for start in range(0, len(every) - 2, 3):
        x = every[start : start + 3]
        wide = back.run({"x": x})["y"]
        np.testing.assert_array_equal(wide, x.astype(np.float32))
        got = out.run({"x": wide})["y"]
        assert got.dtype == dtype
        np.testing.assert_array_equal(got.astype(np.float32), wide)


@pytest.mark.parametrize("rounding", ["up", "nearest", "down"])
def test_numbers_become_powers_of_two(rounding: str) -> None:
    x = np.exp2(np.linspace(-20, 20, 301)).astype(np.float32)
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT8E8M0, round_mode=rounding)
    infos = [
        helper.make_tensor_value_info(n, k, x.shape)
        for n, k in (("x", FLOAT), ("y", TensorProto.FLOAT8E8M0))
    ]
    graph = helper.make_graph([node], "powers", infos[:1], infos[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)
    (want,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_array_equal(compiled(model).run({"x": x})["y"], want)


def test_types_pass_through_operators() -> None:
    """What is added in 16 bits is of 16 bits, and so is what is cast like it."""
    nodes = [
        helper.make_node("Add", ["h", "h"], ["twice"]),
        helper.make_node("CastLike", ["x", "twice"], ["y"]),
    ]
    infos = [
        helper.make_tensor_value_info(n, k, [1])
        for n, k in (("x", TensorProto.FLOAT), ("h", TensorProto.FLOAT16))
    ]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT16, [1])
    graph = helper.make_graph(nodes, "like", infos, [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11)
    got = compiled(model).run({"x": np.full(1, 0.1, "f4"), "h": np.ones(1, "f2")})["y"]
    assert got.dtype == np.float16
    assert got[0] == np.float16(0.1)
