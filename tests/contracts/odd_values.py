"""Kernels given values that programs forget: NaN, infinities, zeros with a sign, numbers next to
nothing, the ends of integers, zero divisors, places that do not exist.

In: a backend and cases. Out: what differs from numpy, case by case. `verdicts` asks in a process
of its own, so that one that dies is a verdict too:

    python -m tests.contracts.odd_values BACKEND GROUP 0
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

import cost_model
from autotune.machine import Machine
from autotune.ops import OPS
from autotune.schedule import apply_schedule
from autotune.target import Target, host_target, load_target
from autotune.tasks.build import build_program
from autotune.types import Array, Attr, Task, TensorType, freeze_attrs
from search_spaces.rules import rule_for
from tests.contracts.case import Case, single_task, tensor
from tests.emulator import run_emulated
from tests.interpreter.interp import run
from tests.unit.codegen.kernels import run_kernel

BACKENDS = ("interp", "native", "strict", "avx2", "sse", "c", "opencl", "sm_80")
_FLUSHED = ("reduce_prod",)
"""Whose products of denormal numbers depend on their order."""
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40)
LARGE = (3.4028235e38, -3.4028235e38, 2.0**31, -(2.0**63), 255.5, -128.5, 0.75, -1.5)
_SECONDS = 600
_ORDINARY = 1e4
"""Outputs are compared as shares of numbers up to this; beyond it each by itself."""


def target_of(backend: str) -> Target:
    """`native` has this machine's vectors, `strict` too, with denormal numbers; `avx2` has half of
    AVX-512's, `sse` a quarter."""
    if backend in ("interp", "native"):
        return host_target()
    if backend == "strict":
        return host_target().with_accuracy("strict")
    if backend == "sse":
        avx2 = load_target("x86-64-v3")
        return dataclasses.replace(
            avx2, name="sse", cpu="x86-64-v2", features="+sse4.2", vector_bytes=16
        )
    return load_target({"avx2": "x86-64-v3"}.get(backend, backend))


# ------------------------------------------------------------------------------------------ cases

ROWS = (13, 37)
"""Whole vectors and a tail, whatever the lanes."""
_UNARY = (
    "neg", "abs", "sqrt", "rsqrt", "exp", "log", "erf", "tanh", "sigmoid", "floor", "ceil",
    "round", "sign", "sin", "cos", "reciprocal", "expm1", "sinh", "cosh", "tan", "asin", "acos",
    "atan", "asinh", "acosh", "atanh", "gelu_erf", "gelu_tanh", "binade",
)  # fmt: skip
_BINARY = ("add", "sub", "mul", "div", "max", "min", "pow", "mod")
_COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
_WHOLE = (
    "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8",
)  # fmt: skip
_CASTS = tuple(f"to_{name}" for name in (*_WHOLE, "bool", "float32", "float64"))


def _case(op: str, *types: TensorType, constants: tuple[int, ...] = (), **attrs: Attr) -> Case:
    return Case(op=op, types=types, attrs=freeze_attrs(attrs), constants=constants)


def _elementwise() -> Iterator[Case]:
    pairs = (len(_numbers("float32")) ** 2,)
    for name in _UNARY:
        yield _case(name, tensor(77))
    for name in ("neg", "abs", "sign"):
        for dtype in _WHOLE:
            yield _case(name, tensor(77, dtype=dtype))
    for name in (*_BINARY, *_COMPARED):
        yield _case(name, tensor(*pairs), tensor(*pairs))
        if name != "pow":
            for dtype in _WHOLE:
                size = len(_numbers(dtype)) ** 2
                yield _case(name, tensor(size, dtype=dtype), tensor(size, dtype=dtype))
    yield _case("max", tensor(*pairs, dtype="float64"), tensor(*pairs, dtype="float64"))
    for name in _CASTS:
        for dtype in ("float32", "float64", *_WHOLE, "bool"):
            yield _case(name, tensor(77, dtype=dtype))
    for dtype in _WHOLE:
        size = len(_numbers(dtype)) ** 2
        for name in ("bit_and", "bit_or", "bit_xor", "shift_left", "shift_right"):
            yield _case(name, tensor(size, dtype=dtype), tensor(size, dtype=dtype))
        yield _case("bit_not", tensor(77, dtype=dtype))
    yield _case("bits", tensor(77))
    yield _case("to_bfloat16", tensor(77))
    yield _case("where", tensor(*ROWS, dtype="bool"), tensor(*ROWS), tensor(*ROWS))
    for name, count in (("and", 2), ("or", 2), ("not", 1)):
        yield _case(name, *[tensor(*ROWS, dtype="bool")] * count)
    yield _case("scalar", value=2.0, dtype="float32")
    yield _case("expand", tensor(37), shape=ROWS)


def _activations() -> Iterator[Case]:
    for name in ("relu", "elu", "hard_sigmoid", "hard_swish", "silu", "softplus", "mish"):
        yield _case(name, tensor(77))
    for alpha, beta in ((1 / 6, 0.5), (-0.3, 0.5), (0.0, 0.5), (1e-38, 0.5), (0.2, 0.0)):
        yield _case("hard_sigmoid", tensor(77), alpha=alpha, beta=beta)
    yield _case("relu", tensor(77, dtype="int8"))
    for attrs in ({"min": -1.0, "max": 6.0}, {"min": 0.0}, {"max": 3.0}, {"min": float("inf")}):
        yield _case("clip", tensor(77), **attrs)
    for alpha in (0.01, 0.0, 1.5):
        yield _case("leaky_relu", tensor(77), alpha=alpha)
    for how in ("none", "tanh"):
        yield _case("gelu", tensor(77), approximate=how)
    yield _case("snap", tensor(77), step=0.25, zero=3.0)
    yield _case("swish", tensor(77), tensor(77))
    for kind in ("bfloat16", "float8e4m3fn", "float8e5m2"):
        for saturate in (0, 1):
            yield _case("narrow_float", tensor(77), kind=kind, saturate=saturate)
    yield _case("power_of_two", tensor(77), rounding="nearest")
    whole = (tensor(9, 37, dtype="int32"), *2 * (tensor(37, dtype="int32"),))
    for rounding, least in (("once", 33), ("twice", 31), ("twice", 32)):
        yield _case("requantize", *whole, constants=(1, 2), rounding=rounding, least_shift=least)
    yield _case("low_bits", tensor(77, dtype="int32"), bits=4, signed=True)


def _reductions() -> Iterator[Case]:
    for name in ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"):
        for axes in ((0,), (1,), (0, 1)):
            yield _case(name, tensor(*ROWS), axes=axes, keepdims=0)
        yield _case(name, tensor(*ROWS, dtype="int32"), axes=(1,), keepdims=0)
    for name in ("reduce_max", "reduce_min"):
        yield _case(name, tensor(*ROWS, dtype="float64"), axes=(1,), keepdims=0)
        yield _case(name, tensor(3, 700), axes=(1,), keepdims=0)
        yield _case(name, tensor(3, 1), axes=(0,), keepdims=0)
    for axis in (0, 1):
        yield _case("argmax", tensor(*ROWS), axis=axis)
        yield _case("argmax", tensor(*ROWS, dtype="int32"), axis=axis)
        yield _case("softmax", tensor(*ROWS), axis=axis)
        yield _case("log_softmax", tensor(*ROWS), axis=axis)
    yield _case("layer_norm", tensor(*ROWS), tensor(37), tensor(37), axis=1)
    yield _case("rms_norm", tensor(*ROWS), tensor(37), axis=1)
    for beta in (0.5, 0.6, 0.75, 1.0):
        yield _case("lrn", tensor(*ROWS), size=3, beta=beta)
    yield _case("lrn", tensor(*ROWS), size=4, alpha=0.1, bias=0.0)
    yield _case("top_k", tensor(4, 64, dtype="int64"), count=9)
    yield _case("top_k", tensor(4, 50, dtype="int32"), count=50)
    for largest in (0, 1):
        yield _case("sort_keys", tensor(*ROWS), tensor(37, dtype="int64"), largest=largest)
        yield _case("block_max", tensor(3, 72), depth=4, width=9, largest=largest)
    yield _case("causal", tensor(1, 37, 37), offset=0)
    for shape in ((3, 9, 19), (5, 40, 1)):
        yield _case("scan", tensor(*shape), combine="sum")
        yield _case("scan", tensor(*shape), combine="sum", exclusive=1, reverse=1)


def _images() -> Iterator[Case]:
    image = tensor(1, 9, 11, 19)
    padded = {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}
    for name in ("max_pool2d", "avg_pool2d"):
        yield _case(name, image, **padded)
        yield _case(name, image, kernel=(2, 2), strides=(1, 1))
        yield _case(name, image, kernel=(3, 3), dilations=(2, 2), pads=(2, 2, 2, 2))
    weights = tensor(3, 3, 19, 21)
    yield _case("conv2d", image, weights, constants=(1,), pads=(1, 1, 1, 1))
    yield _case("conv2d", image, tensor(3, 3, 1, 19), constants=(1,), groups=19)
    yield _case(
        "conv_planes", tensor(1, 19, 9, 11), tensor(19, 3, 3), constants=(1,), pads=(1, 1, 1, 1)
    )
    yield _case("matmul", tensor(7, 13), tensor(13, 37), constants=(1,))
    yield _case("matmul", tensor(2, 7, 13), tensor(2, 37, 13), transpose_b=True)
    for mode in ("nearest", "linear"):
        yield _case("resize", tensor(1, 5, 6, 19), out_shape=(1, 10, 12, 19), mode=mode)


def _places() -> Iterator[Case]:
    table = tensor(11, 19)
    for dtype in ("int32", "int64"):
        yield _case("gather", table, tensor(29, dtype=dtype), axis=0)
        yield _case("gather", table, tensor(29, dtype=dtype), axis=1)
        yield _case("gather_elements", table, tensor(11, 29, dtype=dtype), axis=1)
        yield _case("gather_elements", table, tensor(29, 19, dtype=dtype), axis=0)
        for how in ("none", "add", "max", "min", "mul"):
            one = tensor(29, 1, dtype=dtype)
            yield _case("scatter", table, one, tensor(29, 19), axis=0, reduction=how)


def _moved() -> Iterator[Case]:
    x = tensor(*ROWS)
    yield _case("pad", x, pads=(1, 2, 0, -3), value=float("-inf"))
    yield _case("copy", x)
    yield _case("reshape", x, shape=(37, 13))
    yield _case("transpose", x, perm=(1, 0))
    yield _case("slice", x, starts=(0, 2), stops=(13, 30), steps=(1, 3))
    yield _case("concat", x, x, axis=0)
    for mode in ("reflect", "edge", "wrap"):
        yield _case("border", x, pads=(2, 1, 3, 5), mode=mode)


GROUPS: dict[str, Callable[[], Iterator[Case]]] = {
    "elementwise": _elementwise, "activations": _activations, "reductions": _reductions,
    "images": _images, "places": _places, "moved": _moved,
}  # fmt: skip


# ----------------------------------------------------------------------------------------- arrays


def _numbers(dtype: str) -> Array:
    if dtype.startswith("float"):
        return np.array([*SPECIAL, *LARGE], dtype)
    limits = np.iinfo(dtype)
    return np.array([0, 1, -1 if limits.min else limits.max // 2, 2, 7, limits.min, limits.max,
                     limits.max - 1, limits.min + 1], dtype)  # fmt: skip


def arrays_of(task: Task, op: str, rng: np.random.Generator) -> dict[str, Array]:
    """Inputs by name. Ops of single elements get all pairs of odd numbers, others some of them
    among ordinary ones."""
    params = [*task.by_role("input"), *task.by_role("constant")]
    whole = OPS.get(op).kind == "elementwise" and op != "sort_keys"
    out: dict[str, Array] = {}
    array: Array
    for place, value in enumerate(params):
        type_ = value.type
        if op == "requantize" and place:  # as importers write them
            ends = (0, 2**31) if place == 1 else (33, 63)
            array = rng.integers(*ends, type_.size).astype(type_.dtype)
        elif value.role == "constant":
            array = rng.standard_normal(type_.shape).astype(type_.dtype)
        elif type_.dtype == "bool":
            array = rng.random(type_.shape) < 0.5
        elif op == "sort_keys" and place:
            array = np.arange(type_.size).astype(type_.dtype)
        elif op in ("gather", "gather_elements", "scatter") and place == 1:
            array = _no_places(type_, 11, rng)
        else:
            odd = _numbers(type_.dtype)
            odd = np.where(np.abs(odd) == odd.dtype.type(1e-40), 0, odd) if op in _FLUSHED else odd
            array = _sprinkled(type_, rng, odd, whole, place)
        out[value.name] = np.asarray(array).reshape(type_.shape)
    return out


def _no_places(type_: TensorType, extent: int, rng: np.random.Generator) -> Array:
    limits = np.iinfo(type_.dtype)
    odd = np.array([extent, -extent - 1, limits.min, limits.max, -1, 2**31 - 1], type_.dtype)
    places = rng.integers(-extent, extent, type_.size).astype(type_.dtype)
    return np.where(rng.random(type_.size) < 0.4, rng.choice(odd, type_.size), places)


def _sprinkled(
    type_: TensorType, rng: np.random.Generator, odd: Array, whole: bool, place: int
) -> Array:
    if whole:
        every = np.repeat(odd, len(odd)) if place == 0 else np.tile(odd, len(odd))
        return np.resize(every, type_.size)
    if type_.dtype.startswith("float"):
        odd = odd[: len(SPECIAL)]  # sums of large numbers depend on their order
        array = rng.standard_normal(type_.size).astype(type_.dtype)
    else:
        array = rng.integers(0, 9, type_.size).astype(type_.dtype)
    count = min(type_.size // 2, max(len(odd) + 1, type_.size // 50))
    array[rng.permutation(type_.size)[:count]] = np.resize(odd, count)  # the first one twice
    return array


# ---------------------------------------------------------------------------------------- verdict


def problem(case: Case, backend: str, number: int) -> str:
    """What is wrong with a case on a backend; empty: nothing."""
    task, target = single_task(case), target_of(backend)
    arrays = arrays_of(task, case.op, np.random.default_rng(number))
    attrs = dict(case.attrs)
    given = [arrays[name] for name in task.nodes[0].inputs]
    with np.errstate(all="ignore"):
        want = np.asarray(OPS.get(case.op).reference(given, attrs))
        also = want
        if backend != "interp" and target.flushes_denormals:
            attrs = {
                k: float(flushed(np.float32(v))) if type(v) is float else v
                for k, v in attrs.items()
            }
            also = np.asarray(OPS.get(case.op).reference([*map(flushed, given)], attrs))
    return difference(outcome(task, target, backend, arrays), want, also)


def flushed(number: npt.ArrayLike) -> Array:
    """The same with zeros in place of denormal numbers, signs kept."""
    array = np.asarray(number)
    if array.dtype.kind != "f":
        return array
    tiny = np.abs(array) < np.finfo(array.dtype).smallest_normal
    return np.where(tiny, np.copysign(array.dtype.type(0), array), array)


def outcome(task: Task, target: Target, backend: str, arrays: Mapping[str, Array]) -> Array:
    rule = rule_for(task, target)
    program = build_program(task)
    if backend != "interp":
        program = apply_schedule(
            program,
            rule.schedule(task, target, cost_model.default(task, Machine.of(target), rule)),
        )
    if backend == "interp":
        return run(program, arrays)
    if target.kind == "cuda":
        return np.asarray(run_emulated(program, target, arrays))
    return run_kernel(task, program, target, arrays)


def difference(got: Array, want: Array, also: Array | None = None) -> str:
    """Empty where every element is right by one of both arrays."""
    if got.shape != want.shape:
        return f"shape {got.shape} for {want.shape}"
    wrong = ~right(got, want)
    if also is not None:
        wrong &= ~right(got, also)
    if not wrong.any():
        return ""
    at = tuple(int(i[0]) for i in np.nonzero(wrong))
    return f"{int(wrong.sum())} of {want.size} wrong: at {list(at)} {got[at]} for {want[at]}"


def right(got: Array, want: Array) -> Array:
    """Where both are numbers or none, and close: infinities equal."""
    if want.dtype.kind != "f":
        return np.asarray(got == want)
    a, b = got.astype(np.float64), want.astype(np.float64)
    ordinary = np.abs(b[np.isfinite(b) & (np.abs(b) < _ORDINARY)])
    near = 1e-4 * np.abs(b) + 1e-5 * float(np.max(ordinary, initial=1e-3))
    with np.errstate(invalid="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= near)
    return np.asarray(same & (np.isinf(a) == np.isinf(b)))


def verdicts(backend: str, group: str) -> list[str]:
    """What is wrong with a group of cases, asked in a process of its own; those after one at which
    it dies are asked in another."""
    first, every, out = 0, list(GROUPS[group]()), list[str]()
    while first < len(every):
        command = [sys.executable, "-m", __name__, backend, group, str(first)]
        root = Path(__file__).parents[2]
        done = subprocess.run(
            command, cwd=root, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
        for number, text in lines:
            out += [f"{_named(every[number])}: {text}"] if text else []
        first = lines[-1][0] + 1 if lines else first
        if first < len(every):
            end = f"the process ended with {done.returncode}: {done.stderr[-600:]}"
            out.append(f"{_named(every[first])}: {end}")
            first += 1
    return out


def _named(case: Case) -> str:
    return f"{case.op}({', '.join(map(str, case.types))}; {dict(case.attrs)})"


def main(backend: str, group: str, first: str) -> None:
    for number, case in enumerate(GROUPS[group]()):
        if number >= int(first):
            try:
                text = problem(case, backend, number)
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
            print(json.dumps([number, text[:400]]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
