"""Whole models given values that programs forget, against numpy. In: a target. Out: what is wrong,
model by model, said by a process of its own:  python -m tests.contracts.odd_models TARGET
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from autotune.compiler.driver import compile_graph
from autotune.frontend import load_model
from autotune.graph.interp import run_graph
from autotune.request import CompileRequest
from autotune.types import Array
from tests.contracts.odd_values import difference

_SECONDS = 600
NAN, INF = float("nan"), float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class OddModel:
    """A model of a few nodes, what it is given, and what numpy makes of it."""

    name: str
    nodes: tuple[onnx.NodeProto, ...]
    feeds: Mapping[str, Array]
    constants: Mapping[str, Array]
    want: Array

    def proto(self) -> onnx.ModelProto:
        inputs = [
            helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for k, v in self.feeds.items()
        ]
        kind = helper.np_dtype_to_tensor_dtype(self.want.dtype)
        output = helper.make_tensor_value_info("y", kind, self.want.shape)
        weights = [numpy_helper.from_array(np.asarray(v), k) for k, v in self.constants.items()]
        graph = helper.make_graph(list(self.nodes), "odd", inputs, [output], weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def _one(
    op: str, feeds: Mapping[str, Array], want: Array, *, given: str = "",
    constants: Mapping[str, Array] | None = None, outputs: str = "y", **attrs: object,
) -> OddModel:  # fmt: skip
    """A model of one node; its inputs are the feeds and constants, or named in `given`."""
    constants = constants or {}
    names = given.split() or [*feeds, *constants]
    node = helper.make_node(op, names, outputs.split(), **attrs)
    return OddModel(
        name=f"{op} {attrs or ''}", nodes=(node,), feeds=feeds, constants=constants, want=want
    )


def whole(*values: int) -> Array:
    return np.array(values, np.int64)


def odd_rows(dtype: str = "float32") -> Array:
    """Rows of 37: ordinary, with a NaN, with each infinity, with both, of -inf alone, of zeros."""
    x = np.random.default_rng(0).standard_normal((8, 37)).astype(dtype)
    x[1, 20] = x[2, 36] = NAN
    x[3, 5], x[4, 33] = INF, -INF
    x[5, 3], x[5, 30] = INF, -INF
    x[6], x[7] = -INF, -0.0
    return x


def models() -> Iterator[OddModel]:
    with np.errstate(all="ignore"):
        for part in (_sums, _extremes, _largest, _elements, _integers, _places):
            yield from part()
        yield from _attention()
        yield from _images()


def _sums() -> Iterator[OddModel]:
    x = odd_rows()
    for axis in (0, 1):
        at = {"a": np.array(axis, np.int64)}
        yield _one("CumSum", {"x": x}, np.cumsum(x, axis), constants=at)
        turned = np.flip(np.cumsum(np.flip(x, axis), axis), axis)
        yield _one("CumSum", {"x": x}, turned, constants=at, reverse=1)
        before = np.delete(np.insert(np.cumsum(x, axis), 0, 0, axis), -1, axis)
        yield _one("CumSum", {"x": x}, before, constants=at, exclusive=1)
        top = np.max(x, axis, keepdims=True)
        top = np.where(np.isfinite(top), top, 0)
        total = np.squeeze(top, axis) + np.log(np.sum(np.exp(x - top), axis))
        reduced = {"constants": {"a": whole(axis)}, "keepdims": 0}
        yield _one("ReduceLogSumExp", {"x": x}, total.astype(np.float32), **reduced)
        yield _one("ReduceL1", {"x": x}, np.abs(x).sum(axis), **reduced)
        yield _one("ReduceL2", {"x": x}, np.sqrt((x * x).sum(axis)), **reduced)
        yield _one("ReduceMean", {"x": x}, x.mean(axis), **reduced)
        apart = x - x.max(axis, keepdims=True)
        share = np.exp(apart) / np.exp(apart).sum(axis, keepdims=True)
        yield _one("Softmax", {"x": x}, share, axis=axis)
        yield _one("LogSoftmax", {"x": x}, np.log(share), axis=axis)


def _extremes() -> Iterator[OddModel]:
    column = np.array([[1], [NAN], [2]], np.float32)
    for dtype in ("float32", "float64"):
        x = odd_rows(dtype)
        for axis in (0, 1):
            reduced = {"constants": {"a": whole(axis)}, "keepdims": 0}
            yield _one("ReduceMax", {"x": x}, x.max(axis), **reduced)
            yield _one("ReduceMin", {"x": x}, x.min(axis), **reduced)
            for last in (0, 1):
                found = {"axis": axis, "keepdims": 0, "select_last_index": last}
                y = np.flip(x, axis) if last else x
                for name, pick in (("ArgMax", np.argmax), ("ArgMin", np.argmin)):
                    at = pick(y, axis)
                    at = x.shape[axis] - 1 - at if last else at
                    yield _one(name, {"x": x}, np.asarray(at, np.int64), **found)
    for name, pick in (("ReduceMax", np.max), ("ReduceMin", np.min)):
        reduced = {"constants": {"a": whole(0)}, "keepdims": 0}
        yield _one(name, {"x": column}, pick(column, 0), **reduced)


def _largest() -> Iterator[OddModel]:
    for dtype in ("float32", "float64"):
        x = np.random.default_rng(1).standard_normal((5, 37)).astype(dtype)
        x[0, 9], x[1, 30], x[2, 0] = NAN, INF, -INF
        x[3, [4, 7]] = NAN
        for largest in (0, 1):
            place = np.argsort(-x if largest else x, 1, kind="stable")
            if largest:  # numpy sorts NaN to the end
                first = np.isnan(np.take_along_axis(x, place, 1))
                place = np.take_along_axis(place, np.argsort(~first, 1, kind="stable"), 1)
            want = np.take_along_axis(x, place, 1)[:, :6]
            k = {"k": whole(6)}
            yield _one("TopK", {"x": x}, want, constants=k, outputs="y i", largest=largest)
            places = place[:, :6].astype(np.int64)
            yield _one("TopK", {"x": x}, places, constants=k, outputs="v y", largest=largest)


def _elements() -> Iterator[OddModel]:
    x, z = odd_rows(), np.roll(odd_rows(), 3, 0)
    yield _one("Max", {"x": x, "z": z}, np.maximum(x, z))
    yield _one("Min", {"x": x, "z": z}, np.minimum(x, z))
    yield _one("PRelu", {"x": x, "z": z}, np.where(x < 0, x * z, x))
    yield _one("LeakyRelu", {"x": x}, np.where(x < 0, x * np.float32(0.1), x), alpha=0.1)
    yield _one("Relu", {"x": x}, np.maximum(x, 0))
    yield _one("Clip", {"x": x}, np.clip(x, -1, 1),
               constants={"l": np.float32(-1), "h": np.float32(1)})  # fmt: skip
    low, high = np.array(-0.5, np.float32), np.array(INF, np.float32)
    yield _one("Clip", {"x": x, "l": low, "h": high}, np.clip(x, low, high))
    yield _one("Sign", {"x": x}, np.sign(x))
    yield _one("Where", {"c": x < 0, "x": x, "z": z}, np.where(x < 0, x, z))
    yield _one("IsNaN", {"x": x}, np.isnan(x))
    yield _one("IsInf", {"x": x}, np.isinf(x))
    yield _one("HardSwish", {"x": x}, x * np.clip(x / 6 + 0.5, 0, 1))
    yield _one("Sub", {"x": x}, x - x, given="x x")
    yield _one("Div", {"x": x}, x / x, given="x x")
    yield _one("Mul", {"x": x}, x * 0, constants={"z": np.float32(0)})
    yield _one("Equal", {"x": x}, ~np.isnan(x), given="x x")


def _integers() -> Iterator[OddModel]:
    for dtype in (np.int32, np.int64, np.int8, np.uint8):
        limits = np.iinfo(dtype)
        numbers = np.array([limits.min, limits.max, 0, 1, 5, limits.max - 1, 7], dtype)
        x, z = np.repeat(numbers, 7), np.tile(numbers, 7)
        if limits.min:
            z = np.where(z == 5, -1, z).astype(dtype)
        down = np.floor_divide(x, z)
        short = (down < 0) & (down * z != x) & (z != 0)
        quotient = (down + short).astype(dtype)
        yield _one("Div", {"x": x, "z": z}, quotient)
        yield _one("Mod", {"x": x, "z": z}, np.mod(x, z))
        yield _one("Mod", {"x": x, "z": z}, np.fmod(x, z), fmod=1)
        yield _one("Div", {"x": x}, np.zeros_like(x), constants={"z": np.array(0, dtype)})
        fused = (
            helper.make_node("Add", ["x", "x"], ["a"]), helper.make_node("Div", ["a", "z"], ["q"]),
            helper.make_node("Sub", ["q", "x"], ["y"]),
        )  # fmt: skip
        if np.issubdtype(dtype, np.signedinteger):
            small = np.array([4, 5, -7, 0, 9], dtype)
            by = np.array([0, -1, 2, 0, 0], dtype)
            want = np.array([-4, -10 - 5, -7 + 7, 0, -9], dtype)
            yield OddModel(name=f"fused Div {np.dtype(dtype)}", nodes=fused,
                           feeds={"x": small, "z": by}, constants={}, want=want)  # fmt: skip
    x = np.array([NAN, INF, -INF, 3e9, -3e9, 1e20, -1e20, 1.9, -1.9, 300, -300, -0.0] * 3, "f4")
    for kind in (np.int32, np.int64, np.int8, np.uint8):
        limits = np.iinfo(kind)
        exact = [0 if np.isnan(v) else limits.min if v <= limits.min else limits.max
                 if v >= limits.max else int(v) for v in x.tolist()]  # fmt: skip
        to = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        yield _one("Cast", {"x": x}, np.array(exact, kind), to=to)


def _places() -> Iterator[OddModel]:
    """Places outside are those of the nearest end, for reading and for writing."""
    table = np.arange(44, dtype=np.float32).reshape(11, 4)
    for dtype in (np.int32, np.int64):
        limits = np.iinfo(dtype)
        given = np.array([0, 11, -12, limits.min, limits.max, -1, 2**31 - 1], dtype)
        inside = np.array([0, 10, 0, 0, 10, 10, 10])
        yield _one("Gather", {"x": table, "i": given}, table[inside], axis=0)
        wide = np.repeat(given[:, None], 4, 1)
        rows = np.take_along_axis(table, np.repeat(inside[:, None], 4, 1), 0)
        yield _one("GatherElements", {"x": table, "i": wide}, rows, axis=0)
        yield _one("OneHot", {"i": np.array([1, 11, -12, -1, limits.min, limits.max], dtype)},
                   np.eye(13, 11, dtype="f4")[[1, 11, 11, 10, 11, 11]],
                   constants={"d": whole(11), "v": np.array([0, 1], "f4")})  # fmt: skip
    pairs = np.array([[1, 9], [99, 1], [-99, -2], [2**62, -(2**63)]], np.int64)
    picked = table[[1, 10, 0, 10], [3, 1, 2, 0]]
    yield _one("GatherND", {"x": table, "i": pairs}, picked)
    u = np.array([100, 200, 300, 400], np.float32)
    scattered = table.copy()
    scattered[[1, 10, 0, 10], [3, 1, 2, 0]] = u
    yield _one("ScatterND", {"x": table, "i": pairs, "u": u}, scattered)
    at = np.array([[5, 11, -12, 2**40]], np.int64)
    scattered = table.copy()
    scattered[[5, 10, 0, 10], range(4)] = u
    yield _one("ScatterElements", {"x": table, "i": at, "u": u[None]}, scattered, axis=0)
    lengths = np.array([3, 99, -4, 0], np.int64)
    turned = table.copy()
    turned[:3, 0] = turned[2::-1, 0]
    turned[:, 1] = turned[::-1, 1]
    yield _one("ReverseSequence", {"x": table, "n": lengths}, turned, batch_axis=1, time_axis=0)


def _attention() -> Iterator[OddModel]:
    """Rows that see nothing are no number, or zeros where the model says so."""
    rng = np.random.default_rng(2)
    q, k, v = (rng.standard_normal((2, 16, 32)).astype(np.float32) for _ in range(3))
    mask = np.where(rng.random((16, 16)) < 0.3, -INF, 0).astype(np.float32)
    mask[4] = -INF
    q[1, 7, 3], q[0, 9, 0] = NAN, INF
    score = q @ k.transpose(0, 2, 1) + mask
    apart = score - score.max(-1, keepdims=True)
    share = np.exp(apart) / np.exp(apart).sum(-1, keepdims=True)
    nodes = [
        helper.make_node("Transpose", ["k"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "t"], ["s"]), helper.make_node("Add", ["s", "m"], ["a"]),
        helper.make_node("Softmax", ["a"], ["w"], axis=-1),
    ]  # fmt: skip
    feeds = {"q": q, "k": k, "v": v, "m": mask}
    last = helper.make_node("MatMul", ["w", "v"], ["y"])
    yield OddModel(
        name="attention", nodes=(*nodes, last), feeds=feeds, constants={}, want=share @ v
    )
    guard = [
        helper.make_node("IsNaN", ["w"], ["n"]), helper.make_node("Where", ["n", "z", "w"], ["g"]),
        helper.make_node("MatMul", ["g", "v"], ["y"]),
    ]  # fmt: skip
    yield OddModel(
        name="guarded attention", nodes=(*nodes, *guard), feeds=feeds,
        constants={"z": np.float32(0)}, want=np.where(np.isnan(share), 0, share) @ v,
    )  # fmt: skip


def _images() -> Iterator[OddModel]:
    x = np.random.default_rng(3).standard_normal((1, 8, 9, 10)).astype(np.float32)
    x[0, 2, 4, 5], x[0, 5, 8, 9], x[0, 6, 0, 0] = NAN, INF, -INF
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    yield _one("MaxPool", {"x": x}, windows.max((4, 5)), kernel_shape=[3, 3])
    yield _one("AveragePool", {"x": x}, windows.mean((4, 5)), kernel_shape=[3, 3])
    power = np.sqrt((windows * windows).sum((4, 5)))
    yield _one("LpPool", {"x": x}, power, kernel_shape=[3, 3], p=2)
    yield _one("GlobalMaxPool", {"x": x}, x.max((2, 3), keepdims=True))
    yield _one("GlobalAveragePool", {"x": x}, x.mean((2, 3), keepdims=True))
    flat = windows.reshape(*windows.shape[:4], 9)
    first = flat.argmax(4)
    place = (np.arange(7)[:, None] + first // 3) * 10 + np.arange(8) + first % 3
    place = place + 90 * np.arange(8)[:, None, None]
    yield _one("MaxPool", {"x": x}, place.astype(np.int64), outputs="v y", kernel_shape=[3, 3])
    w = np.random.default_rng(4).standard_normal((8, 4, 1, 1)).astype(np.float32)
    halves = [np.einsum("oc,nchw->nohw", w[s, :, 0, 0], x[:, c]) for s, c in
              ((slice(0, 4), slice(0, 4)), (slice(4, 8), slice(4, 8)))]  # fmt: skip
    yield _one("Conv", {"x": x}, np.concatenate(halves, 1), constants={"w": w}, group=2)
    normal = (x - x.mean((2, 3), keepdims=True)) / np.sqrt(x.var((2, 3), keepdims=True) + 1e-5)
    ones = {"s": np.ones(8, np.float32), "b": np.zeros(8, np.float32)}
    yield _one("InstanceNormalization", {"x": x}, normal.astype(np.float32), constants=ones)
    yield _one("Hardmax", {"x": x}, np.eye(10, dtype="f4")[x.argmax(3)], axis=3)


# ---------------------------------------------------------------------------------------- verdict


def verdicts(target: str, accuracy: str = "normal") -> dict[str, str]:
    """By model what is wrong, asked in processes of their own; one that dies is a verdict too."""
    names = [model.name for model in models()]
    out: dict[str, str] = {}
    while len(out) < len(names):
        command = [sys.executable, "-m", __name__, target, accuracy, str(len(out))]
        root = Path(__file__).parents[2]
        done = subprocess.run(
            command, cwd=root, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        lines = [json.loads(s) for s in done.stdout.splitlines() if s.startswith("[")]
        out |= {f"{number} {names[number]}": text for number, text in lines}
        if len(out) < len(names):
            end = f"the process ended with {done.returncode}: {done.stderr[-400:]}"
            out[f"{len(out)} {names[len(out)]}"] = end
    return out


def outcome(model: OddModel, target: str, accuracy: str) -> Array:
    """By kernels for a target, or by numpy, as constants are folded, where that is `numpy`."""
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        onnx.save(model.proto(), file.name)
        graph = load_model(file.name, None)
    if target == "numpy":
        return run_graph(graph, dict(model.feeds), "float32")["y"]
    wanted = CompileRequest(graph, target=target, accuracy=accuracy).wanted_target()
    return compile_graph(graph, wanted, processes=1).run(dict(model.feeds))["y"]


def main(target: str, accuracy: str, first: str) -> None:
    for number, model in enumerate(models()):
        if number < int(first):
            continue
        try:
            text = difference(outcome(model, target, accuracy), model.want)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
        print(json.dumps([number, text[:400]]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
