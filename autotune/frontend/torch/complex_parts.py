"""ATen importers: complex tensors, of which a graph has the real and the imaginary part."""

from __future__ import annotations

from autotune.errors import UnsupportedOpError
from autotune.frontend.fourier import ComplexValue, joined, parts_of, times
from autotune.frontend.torch.context import (
    COMPLEX,
    AtenCall,
    AtenImporter,
    aten,
    importer_of,
)
from autotune.frontend.torch.functions import angle_of, distance

BY_PARTS = (
    "view.default", "_unsafe_view", "reshape", "_reshape_alias", "squeeze", "unsqueeze", "flatten",
    "unflatten", "permute", "t", "transpose", "expand", "repeat", "slice", "select", "narrow",
    "split", "split_with_sizes", "chunk", "unbind", "diagonal", "unfold", "as_strided",
    "view_copy.default", "squeeze_copy", "unsqueeze_copy", "permute_copy", "t_copy",
    "transpose_copy", "expand_copy", "slice_copy", "select_copy", "narrow_copy", "split_copy",
    "split_with_sizes_copy", "unbind_copy", "diagonal_copy", "unfold_copy", "as_strided_copy",
    "cat", "stack", "flip", "roll", "tril", "triu", "index_select", "index",
    "gather", "embedding", "clone", "alias", "detach", "lift_fresh_copy", "contiguous", "sum",
    "mean", "cumsum", "neg", "zeros", "zeros_like", "new_zeros", "empty", "empty_like",
    "empty_permuted", "empty_strided", "new_empty", "copy",
)  # fmt: skip
"""Operators that do the same to each part."""
WITH_REAL = {
    "add": ("self", "other"), "sub": ("self", "other"), "rsub": ("self", "other"),
    "where": ("self", "other"),
    "masked_fill": ("self", "value"), "slice_scatter": ("self", "src"),
    "select_scatter": ("self", "src"), "full": ("fill_value",), "full_like": ("fill_value",),
    "fill": ("value",), "constant_pad_nd": ("self", "value"), "index_put": ("self", "values"),
    "ones": (), "ones_like": (), "scatter": ("self", "src", "value"),
    "scatter_add": ("self", "src"),
}  # fmt: skip
"""The same, where operands may be real ones, which have an imaginary part of zero."""


def _by_parts(*widened: str) -> AtenImporter:
    def run(n: AtenCall) -> ComplexValue | tuple[ComplexValue | str | None, ...]:
        importer = importer_of(n.target)
        if importer is None:
            raise UnsupportedOpError("it is not supported")
        if any(isinstance(n.given(v), complex) and v not in widened for v in n.names):
            n.refuse("a complex factor")
        one, other = (importer(n.part(imaginary, widened)) for imaginary in (False, True))
        if isinstance(one, tuple) and isinstance(other, tuple):
            return tuple(ComplexValue(a, b) for a, b in zip(one, other, strict=True))  # type: ignore[arg-type]
        return ComplexValue(one, other)  # type: ignore[arg-type]

    return run


for _name in BY_PARTS:
    aten(COMPLEX + _name)(_by_parts("self", "src", "tensors"))
for _name, _widened in WITH_REAL.items():
    if _widened:
        aten(COMPLEX + _name)(_by_parts(*_widened))


@aten("complex.ones", "complex.ones_like")
def ones(n: AtenCall) -> ComplexValue:
    one, none = (n.expanded(n.constant(v, n.made_dtype), n.made_shape) for v in (1, 0))
    return ComplexValue(one, none)


# ------------------------------------------------------------------------------- real and complex


@aten("complex._to_copy", "complex.prims.convert_element_type")
def converted(n: AtenCall) -> ComplexValue | str:
    """Real numbers have an imaginary part of zero; what becomes real loses its own."""
    name = "self" if n.has("self") else "a"
    z, dtype = n.complex_value(name), n.made_dtype
    if n.gives_complex:
        return ComplexValue(n.cast(z.real, dtype), n.cast(z.imaginary, dtype))
    if dtype != "bool":
        return n.cast(z.real, dtype)
    return n.op("or", *(n.cast(v, dtype) for v in (z.real, z.imaginary)))


@aten("complex.view_as_complex", "complex.view_as_complex_copy")
def view_as_complex(n: AtenCall) -> ComplexValue:
    return parts_of(n, n.value("self"))


@aten("complex.view_as_real", "complex.view_as_real_copy")
def view_as_real(n: AtenCall) -> str:
    return joined(n, n.complex_value("self"))


@aten("complex.real")
def real(n: AtenCall) -> str:
    return n.complex_value("self").real


@aten("complex.imag")
def imaginary(n: AtenCall) -> str:
    return n.complex_value("self").imaginary


@aten("complex.complex")
def from_parts(n: AtenCall) -> ComplexValue:
    return ComplexValue(*(n.expanded(n.value(v), n.made_shape) for v in ("real", "imag")))


@aten("complex.polar")
def polar(n: AtenCall) -> ComplexValue:
    return polar_value(n, n.value("abs"), n.value("angle"))


def polar_value(n: AtenCall, size: str, angle: str) -> ComplexValue:
    """The number of a size and an angle."""
    return ComplexValue(*(n.op("mul", size, n.op(f, angle)) for f in ("cos", "sin")))


@aten("complex.abs", "complex.absolute")
def size(n: AtenCall) -> str:
    z = n.complex_value("self")
    return distance(n, z.real, z.imaginary)


@aten("complex.angle")
def angle(n: AtenCall) -> str:
    z = n.complex_value("self")
    return angle_of(n, z.imaginary, z.real)


@aten("complex._conj", "complex.conj", "complex._conj_physical", "complex.conj_physical",
      "complex._conj_copy")  # fmt: skip
def conjugate(n: AtenCall) -> ComplexValue:
    z = n.complex_value("self")
    return ComplexValue(z.real, n.op("neg", z.imaginary))


@aten("complex.resolve_conj")
def resolved(n: AtenCall) -> ComplexValue:
    return n.complex_value("self")


# ------------------------------------------------------------------------------------- arithmetic


@aten("complex.mul")
def product(n: AtenCall) -> ComplexValue:
    """Two products suffice where one operand is real."""
    for name, other in (("self", "other"), ("other", "self")):
        if isinstance(n.given(name), str | bool | int | float):
            factor, z = n.as_made(name), n.complex_value(other)
            return ComplexValue(n.op("mul", z.real, factor), n.op("mul", z.imaginary, factor))
    return times(n, n.complex_value("self"), n.complex_value("other"))


def inverse(n: AtenCall, z: ComplexValue) -> ComplexValue:
    """1 / z; scaled by what is largest in it, so that no square overflows."""
    scale = n.op("max", n.op("abs", z.real), n.op("abs", z.imaginary))
    x, y = n.op("div", z.real, scale), n.op("div", z.imaginary, scale)
    squares = n.op("add", n.op("mul", x, x), n.op("mul", y, y))
    squares = n.op("mul", squares, scale)
    return ComplexValue(n.op("div", x, squares), n.op("neg", n.op("div", y, squares)))


@aten("complex.reciprocal")
def reciprocal(n: AtenCall) -> ComplexValue:
    return inverse(n, n.complex_value("self"))


@aten("complex.div", "complex.true_divide")
def quotient(n: AtenCall) -> ComplexValue:
    z = n.complex_value("self")
    if isinstance(n.given("other"), str | bool | int | float):
        factor = n.as_made("other")
        return ComplexValue(n.op("div", z.real, factor), n.op("div", z.imaginary, factor))
    return times(n, z, inverse(n, n.complex_value("other")))


@aten("complex.square")
def square(n: AtenCall) -> ComplexValue:
    z = n.complex_value("self")
    return times(n, z, z)


@aten("complex.exp")
def exponential(n: AtenCall) -> ComplexValue:
    """Where its size is 0, no angle counts; an angle of 0 stays so at any size."""
    z = n.complex_value("self")
    scale, zero = n.op("exp", z.real), n.like(0, z.real)
    angle = n.op("where", n.op("eq", scale, zero), zero, z.imaginary)
    real, turned = (n.op("mul", scale, n.op(f, angle)) for f in ("cos", "sin"))
    return ComplexValue(real, n.op("where", n.op("eq", angle, zero), angle, turned))


@aten("complex.log")
def logarithm(n: AtenCall) -> ComplexValue:
    return log_of(n, n.complex_value("self"))


def log_of(n: AtenCall, z: ComplexValue) -> ComplexValue:
    long = n.op("log", distance(n, z.real, z.imaginary))
    return ComplexValue(long, angle_of(n, z.imaginary, z.real))


@aten("complex.mm", "complex.bmm", "complex.matmul")
def matrix_product(n: AtenCall) -> ComplexValue:
    a, b = n.complex_value("self"), n.complex_value("other" if n.has("other") else "mat2")
    if min(n.rank(a.real), n.rank(b.real)) < 2 or 0 in (*n.shape(a.real), *n.shape(b.real)):
        n.refuse(f"products of {n.shape(a.real)} and {n.shape(b.real)}")
    return times(n, a, b, "matmul")


@aten("complex.eq", "complex.ne")
def equal(n: AtenCall) -> str:
    """Whether both parts are."""
    if not all(isinstance(n.given(name), ComplexValue) for name in ("self", "other")):
        n.refuse("complex numbers beside real ones")
    one, other = n.complex_value("self"), n.complex_value("other")
    same = [
        n.op("eq", one.real, other.real), n.op("eq", one.imaginary, other.imaginary)
    ]  # fmt: skip
    found = n.op("and", *same)
    return n.op("not", found) if "aten.ne" in str(n.target) else found
