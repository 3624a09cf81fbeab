"""Random small applications of every op: one strategy per op name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from autotune.errors import ModelError
from autotune.ops import OPS
from autotune.program.ir import FUNCTIONS
from autotune.types import Attr, freeze_attrs
from tests.contracts.case import Case, tensor
from tests.contracts.fixed_point_cases import requantize
from tests.contracts.plane_tasks import conv_planes

Draw = Callable[[st.SearchStrategy[Any]], Any]


def fits(case: Case) -> bool:
    """Whether the op accepts the case and gives something: random geometry may not."""
    try:
        return OPS.get(case.op).infer(case.types, dict(case.attrs)).size > 0
    except ModelError:
        return False


extent = st.integers(1, 5)
shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)
moved_shapes = shapes | st.lists(st.integers(2, 9), min_size=2, max_size=3).map(tuple)
"""Of what is only moved: also as wide as vectors."""


@st.composite
def conv2d(draw: Draw) -> Case:
    groups, per_group, out = draw(
        st.sampled_from([(1, 3, 4), (1, 1, 1), (1, 1, 3), (2, 2, 3), (3, 1, 2), (4, 1, 1)])
    )
    kernel = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    kinds = [("float32", "float32"), ("uint8", "int8"), ("bfloat16", "float32")]
    left, right = draw(st.sampled_from(kinds))
    shape = (draw(st.integers(1, 3)), draw(extent), draw(extent), groups * per_group)
    weights = tensor(*kernel, per_group, groups * out, dtype=right)
    return Case(
        op="conv2d",
        types=(tensor(*shape, dtype=left), weights),
        attrs=freeze_attrs({**_geometry(draw), "groups": groups}),
        constants=(1,),
    )


def _geometry(draw: Draw, pad: int = 2) -> dict[str, Attr]:
    return {
        "strides": draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        "pads": draw(st.tuples(*[st.integers(0, pad)] * 4)),
        "dilations": draw(st.tuples(st.integers(1, 2), st.integers(1, 2))),
    }


@st.composite
def matmul(draw: Draw) -> Case:
    m, n, k = draw(st.tuples(extent, extent, extent))
    batches = [((), ()), ((2,), ()), ((), (3,)), ((2, 1), (3,)), ((4,), (4,)), ((1, 2), (3, 1))]
    left, right = draw(st.sampled_from(batches))
    transposed = draw(st.booleans())
    dtypes = [
        ("float32", "float32"), ("int32", "int32"), ("uint8", "int8"), ("bfloat16", "bfloat16"),
        ("float32", "int8"),
    ]  # fmt: skip
    one, other = draw(st.sampled_from(dtypes))
    b = (*right, n, k) if transposed else (*right, k, n)
    return Case(
        op="matmul",
        types=(tensor(*left, m, k, dtype=one), tensor(*b, dtype=other)),
        attrs=freeze_attrs({"transpose_b": transposed}),
        constants=draw(st.sampled_from([(), (1,)])),
    )


@st.composite
def pool(draw: Draw, name: str) -> Case:
    attrs = _geometry(draw) | {"kernel": draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))}
    if name == "avg_pool2d" and draw(st.booleans()):
        attrs["count_include_pad"] = True
        attrs["valid_pads"] = tuple(draw(st.integers(0, p)) for p in attrs["pads"])  # type: ignore[union-attr]
    shape = (draw(st.integers(1, 3)), draw(extent), draw(extent), draw(st.integers(1, 3)))
    x = tensor(*shape, dtype=draw(st.sampled_from(["float32", "bfloat16"])))
    return Case(op=name, types=(x,), attrs=freeze_attrs(attrs))


@st.composite
def reduce(draw: Draw, name: str) -> Case:
    shape = draw(shapes)
    axes = draw(st.sets(st.integers(-len(shape), -1)))
    dtype = draw(st.sampled_from(["float32", "int64"]))
    attrs = freeze_attrs({"axes": tuple(sorted(axes)), "keepdims": draw(st.booleans())})
    return Case(op=name, types=(tensor(*shape, dtype=dtype),), attrs=attrs)


@st.composite
def argmax(draw: Draw) -> Case:
    shape = draw(shapes)
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    attrs = freeze_attrs({"axis": axis, "keepdims": draw(st.booleans())})
    dtype = draw(st.sampled_from(["float32", "int64"]))
    return Case(op="argmax", types=(tensor(*shape, dtype=dtype),), attrs=attrs)


@st.composite
def softmax(draw: Draw, name: str) -> Case:
    shape = draw(shapes)
    attrs = freeze_attrs({"axis": draw(st.integers(-len(shape), len(shape) - 1))})
    return Case(op=name, types=(tensor(*shape),), attrs=attrs)


@st.composite
def norm(draw: Draw, name: str) -> Case:
    shape = draw(shapes)
    axis = draw(st.integers(0, len(shape) - 1))
    operands = [tensor(*shape[axis:])] * draw(
        st.integers(1, 2) if name == "layer_norm" else st.just(1)
    )
    attrs = freeze_attrs({"axis": axis, "epsilon": draw(st.sampled_from([1e-5, 1e-2]))})
    constants = tuple(range(1, len(operands) + 1))
    return Case(op=name, types=(tensor(*shape), *operands), attrs=attrs, constants=constants)


@st.composite
def lrn(draw: Draw) -> Case:
    attrs = {"size": draw(st.integers(1, 5)), "alpha": 0.1}
    attrs["beta"] = draw(st.sampled_from([0.5, 0.6, 0.75, 1.0]))
    attrs["bias"] = draw(st.sampled_from([0.5, 1.5]))
    return Case(op="lrn", types=(tensor(*draw(shapes)),), attrs=freeze_attrs(attrs))


@st.composite
def function(draw: Draw, name: str) -> Case:
    shape = draw(shapes)
    operands = []
    for _ in range(FUNCTIONS[name]):
        dropped = draw(st.integers(0, len(shape)))
        operands.append(tuple(draw(st.sampled_from([e, 1])) for e in shape[dropped:]))
    if name.startswith("to_"):
        dtypes = [draw(st.sampled_from(["float32", "int32", "bool"]))]
    elif name in ("and", "or", "not"):
        dtypes = ["bool"] * FUNCTIONS[name]
    elif name.startswith("bit_"):
        dtypes = [draw(st.sampled_from(["int16", "uint8", "int64"]))] * FUNCTIONS[name]
    elif name.startswith("shift_"):
        dtypes = [draw(st.sampled_from(["int32", "uint8", "uint16", "uint64"]))] * 2
    elif name == "where":
        dtypes = ["bool", "float32", "float32"]
    elif name in ("add", "sub", "mul", "max", "min", "div", "mod", "abs", "neg", "eq", "lt"):
        dtypes = [draw(st.sampled_from(["float32", "int64"]))] * FUNCTIONS[name]
    else:
        dtypes = ["float32"] * FUNCTIONS[name]
    types = tuple(tensor(*s, dtype=d) for s, d in zip(operands, dtypes, strict=True))
    return Case(op=name, types=types)


@st.composite
def activation(draw: Draw, name: str) -> Case:
    choices: dict[str, list[dict[str, Attr]]] = {
        "clip": [{"min": 0.0, "max": 6.0}, {"min": -float("inf"), "max": 0.5}, {}],
        "leaky_relu": [{"alpha": 0.2}],
        "elu": [{"alpha": 0.7}],
        "hard_sigmoid": [
            {},
            {"alpha": 0.25, "beta": 0.4},
            {"alpha": 1 / 6},
            {"alpha": -0.5, "beta": 0.0},
            {"alpha": 0.0, "beta": 0.3},
        ],
        "gelu": [{"approximate": "none"}, {"approximate": "tanh"}],
        "snap": [{"step": 0.0625, "zero": 120.0}],
        "narrow_float": [
            {"kind": k, "saturate": s}
            for k in ("bfloat16", "float16", "float8e4m3fn", "float8e5m2fnuz", "float4e2m1")
            for s in (False, True)
        ],
        "power_of_two": [{"rounding": r} for r in ("up", "nearest", "down")],
        "low_bits": [{"bits": 4, "signed": True}, {"bits": 4, "signed": False}],
    }
    attrs = freeze_attrs(draw(st.sampled_from(choices.get(name, [{}]))))
    return Case(op=name, types=(tensor(*draw(shapes)),), attrs=attrs)


@st.composite
def scalar(draw: Draw) -> Case:
    value, dtype = draw(st.sampled_from([(1.5, "float32"), (3, "int64"), (True, "bool")]))
    return Case(op="scalar", types=(), attrs=freeze_attrs({"value": value, "dtype": dtype}))


@st.composite
def expand(draw: Draw) -> Case:
    shape = draw(shapes)
    own = tuple(draw(st.sampled_from([e, 1])) for e in shape[draw(st.integers(0, len(shape))) :])
    return Case(op="expand", types=(tensor(*own),), attrs=freeze_attrs({"shape": shape}))


@st.composite
def gather(draw: Draw) -> Case:
    shape = draw(moved_shapes)
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    some = st.lists(st.integers(1, 3), max_size=2)
    indices = draw(st.one_of(some, st.just([shape[axis]]), st.just([4])))
    types = (tensor(*shape), tensor(*indices, dtype=draw(st.sampled_from(["int32", "int64"]))))
    constants = draw(st.sampled_from([(), (1,)]))
    return Case(op="gather", types=types, attrs=freeze_attrs({"axis": axis}), constants=constants)


@st.composite
def gather_elements(draw: Draw) -> Case:
    shape = draw(moved_shapes)
    axis = draw(st.integers(0, len(shape) - 1))
    places = [draw(st.integers(1, 6 if d == axis else e)) for d, e in enumerate(shape)]
    dtype = draw(st.sampled_from(["int32", "int64"]))
    types = (tensor(*shape), tensor(*places, dtype=dtype))
    return Case(op="gather_elements", types=types, attrs=freeze_attrs({"axis": axis}))


@st.composite
def scatter(draw: Draw) -> Case:
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    axis = draw(st.integers(0, len(shape) - 1))
    updates = [draw(st.integers(1, 6)) if d == axis else e for d, e in enumerate(shape)]
    places = [draw(st.sampled_from([e, 1])) for e in updates]
    dtype, of = (
        draw(st.sampled_from(["float32", "int64"])),
        draw(st.sampled_from(["int32", "int64"])),
    )
    attrs: dict[str, Attr] = {"axis": axis - draw(st.sampled_from([0, len(shape)]))}
    attrs["reduction"] = draw(st.sampled_from(["none", "add", "mul", "max", "min"]))
    x = shape
    if draw(st.booleans()):
        attrs["extent"] = shape[axis]
        x = draw(st.sampled_from([[], [draw(st.sampled_from([e, 1])) for e in shape]]))
    types = (tensor(*x, dtype=dtype), tensor(*places, dtype=of), tensor(*updates, dtype=dtype))
    return Case(op="scatter", types=types, attrs=freeze_attrs(attrs))


@st.composite
def top_k(draw: Draw) -> Case:
    rows, extent = draw(st.integers(1, 3)), draw(st.integers(1, 40))
    dtype = draw(st.sampled_from(["int64", "int32", "float32"]))
    attrs = freeze_attrs({"count": draw(st.integers(1, extent))})
    return Case(op="top_k", types=(tensor(rows, extent, dtype=dtype),), attrs=attrs)


@st.composite
def sort_keys(draw: Draw) -> Case:
    shape, dtype = draw(shapes), draw(st.sampled_from(["float32", "int32", "int8", "uint8"]))
    types = (tensor(*shape, dtype=dtype), tensor(*shape, dtype="int64"))
    attrs = freeze_attrs({"largest": draw(st.booleans())})
    return Case(op="sort_keys", types=types, attrs=attrs)


@st.composite
def block_max(draw: Draw) -> Case:
    depth = draw(st.integers(1, 5))
    width = draw(st.integers(1, 4))
    rows, extent = draw(st.integers(1, 3)), draw(st.integers(depth * width, 40))
    dtype = draw(st.sampled_from(["float32", "int32"]))
    attrs = freeze_attrs({"depth": depth, "width": width, "largest": draw(st.booleans())})
    return Case(op="block_max", types=(tensor(rows, extent, dtype=dtype),), attrs=attrs)


@st.composite
def scan(draw: Draw) -> Case:
    shape = tuple(draw(st.integers(1, 6)) for _ in range(3))
    attrs = {name: draw(st.integers(0, 1)) for name in ("exclusive", "reverse")}
    dtype = draw(st.sampled_from(["float32", "int32", "int64"]))
    combine = "prod" if dtype == "float32" and draw(st.booleans()) else "sum"
    made = freeze_attrs({**attrs, "combine": combine})
    return Case(op="scan", types=(tensor(*shape, dtype=dtype),), attrs=made)


@st.composite
def border(draw: Draw) -> Case:
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    mode = draw(st.sampled_from(["reflect", "edge", "wrap"]))
    most = {"reflect": -1, "wrap": 0, "edge": 2}[mode]
    pads = tuple(draw(st.integers(0, min(3, e + most))) for e in [*shape, *shape])
    attrs = freeze_attrs({"pads": pads, "mode": mode})
    return Case(op="border", types=(tensor(*shape),), attrs=attrs)


@st.composite
def pad(draw: Draw) -> Case:
    shape = draw(moved_shapes)
    pads = tuple(draw(st.integers(-1, 2)) for _ in range(2 * len(shape)))
    attrs = freeze_attrs({"pads": pads, "value": draw(st.sampled_from([0.0, -1.5]))})
    return Case(op="pad", types=(tensor(*shape),), attrs=attrs)


@st.composite
def resize(draw: Draw) -> Case:
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    kept = draw(st.integers(0, len(shape) - 1))
    target = tuple(e if d == kept else draw(st.integers(1, 6)) for d, e in enumerate(shape))
    attrs = {
        "out_shape": target,
        "mode": draw(st.sampled_from(["nearest", "linear"])),
        "coordinate": draw(
            st.sampled_from(["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"])
        ),
        "nearest_mode": draw(
            st.sampled_from(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
        ),
    }
    return Case(op="resize", types=(tensor(*shape),), attrs=freeze_attrs(attrs))


@st.composite
def copy(draw: Draw) -> Case:
    return Case(op="copy", types=(tensor(*draw(moved_shapes)),))


@st.composite
def reshape(draw: Draw) -> Case:
    factors = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))

    def merged() -> tuple[int, ...]:
        out = [1]
        for f in factors:
            if draw(st.booleans()):
                out.append(f)
            else:
                out[-1] *= f
        return tuple(out)

    return Case(op="reshape", types=(tensor(*merged()),), attrs=freeze_attrs({"shape": merged()}))


@st.composite
def transpose(draw: Draw) -> Case:
    shape = draw(moved_shapes)
    perm = tuple(draw(st.permutations(range(len(shape)))))
    return Case(op="transpose", types=(tensor(*shape),), attrs=freeze_attrs({"perm": perm}))


@st.composite
def slice_(draw: Draw) -> Case:
    shape = draw(moved_shapes)
    starts = tuple(draw(st.integers(0, e - 1)) for e in shape)
    stops = tuple(draw(st.integers(s + 1, e)) for s, e in zip(starts, shape, strict=True))
    steps = tuple(draw(st.integers(1, 3)) for _ in shape)
    attrs = freeze_attrs({"starts": starts, "stops": stops, "steps": steps})
    return Case(op="slice", types=(tensor(*shape),), attrs=attrs)


@st.composite
def concat(draw: Draw) -> Case:
    shape = list(draw(shapes))
    axis = draw(st.integers(0, len(shape) - 1))
    types = []
    for part in draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)):
        shape[axis] = part
        types.append(tensor(*shape))
    return Case(op="concat", types=tuple(types), attrs=freeze_attrs({"axis": axis - len(shape)}))


@st.composite
def causal(draw: Draw) -> Case:
    shape = draw(st.lists(st.integers(1, 6), min_size=2, max_size=4))
    attrs = freeze_attrs({"offset": draw(st.integers(0, 7))})
    return Case(op="causal", types=(tensor(*shape),), attrs=attrs)


_ACTIVATIONS = (
    "relu", "clip", "leaky_relu", "elu", "hard_sigmoid", "hard_swish", "gelu", "snap",
    "narrow_float", "power_of_two", "low_bits",
)  # fmt: skip
_REDUCTIONS = ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod")

CASES: dict[str, st.SearchStrategy[Case]] = {
    "conv2d": conv2d().filter(fits),
    "conv_planes": conv_planes().filter(fits), "matmul": matmul(),
    **{name: pool(name).filter(fits) for name in ("max_pool2d", "avg_pool2d")},
    **{name: reduce(name) for name in _REDUCTIONS},
    "argmax": argmax(),
    **{name: softmax(name) for name in ("softmax", "log_softmax")},
    **{name: norm(name) for name in ("layer_norm", "rms_norm")},
    "lrn": lrn(),
    **{name: function(name) for name in FUNCTIONS},
    **{name: activation(name) for name in _ACTIVATIONS},
    "scalar": scalar(),
    "requantize": requantize(), "expand": expand(), "causal": causal(), "gather": gather(),
    "gather_elements": gather_elements(),
    "scatter": scatter(),
    "top_k": top_k(), "sort_keys": sort_keys(),
    "block_max": block_max(),
    "pad": pad().filter(fits),
    "scan": scan(),
    "border": border().filter(fits),
    "resize": resize(),
    "copy": copy(), "reshape": reshape(), "transpose": transpose(), "slice": slice_(),
    "concat": concat(),
}  # fmt: skip
