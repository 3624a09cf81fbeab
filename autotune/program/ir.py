"""The program IR: what tensor expressions become, steps rewrite and backends print.

    program := name, params (buffers), packs, body
    stmt    := for VAR in EXTENT [serial|parallel|unroll|vector|dot]: stmt*
             | alloc BUFFER: stmt*                        # lives for the duration of its body
             | if BOUND and BOUND ...: stmt*              # BOUND is  lo <= index < hi
             | BUFFER[index, ...] = value
             | BUFFER[index, ...] sum=|max=|min=|prod= value
             | prefetch BUFFER[index, ...]
    index   := integer affine sum  c0 + c1*atom + ...
    atom    := VAR | (index // n) | (index % n) | clamp(index, lo, hi) | int(BUFFER[index, ...])
    value   := constant | BUFFER[index, ...] | FN(value, ...) | value(index)
             | select(BOUND and ..., value, value) | table[index, ...]

Indices are logical: a buffer's strides, halo and packing say where an element lies. Extents are
constants. Loop names are unique in a program. Top-level statements run one after the other, each when
the one before is done; threads share the iterations of a `parallel` loop, and a top-level statement
without one is run by one thread alone. All values are frozen and comparable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autotune.errors import VerifyError
from autotune.types import Layout, dense_strides


@dataclass(frozen=True, slots=True)
class FloorDiv:
    """index // divisor, rounding down."""

    index: Index
    divisor: int


@dataclass(frozen=True, slots=True)
class Mod:
    """index % divisor, never negative."""

    index: Index
    divisor: int


@dataclass(frozen=True, slots=True)
class Clamp:
    """index limited to lo .. hi, both included."""

    index: Index
    lo: int
    hi: int


@dataclass(frozen=True, slots=True)
class LoadIndex:
    """An integer read from a buffer (gather): negatives count from the end, then 0 .. extent-1."""

    buffer: str
    indices: tuple[Index, ...]
    extent: int


Atom = str | FloorDiv | Mod | Clamp | LoadIndex


@dataclass(frozen=True, slots=True)
class Index:
    """Affine sum: const + sum of coefficient * atom. Build with `index`, `+` and `*`."""

    terms: tuple[tuple[Atom, int], ...] = ()
    const: int = 0

    def __add__(self, other: IndexLike) -> Index:
        other = index(other)
        return _affine([*self.terms, *other.terms], self.const + other.const)

    __radd__ = __add__

    def __sub__(self, other: IndexLike) -> Index:
        return self + index(other) * -1

    def __mul__(self, factor: int) -> Index:
        return _affine([(a, c * factor) for a, c in self.terms], self.const * factor)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> Index:
        if divisor == 1:
            return self
        if all(c % divisor == 0 for _, c in self.terms):
            return _affine([(a, c // divisor) for a, c in self.terms], self.const // divisor)
        return Index(((FloorDiv(self, divisor), 1),))

    def __mod__(self, divisor: int) -> Index:
        if divisor == 1:
            return Index()
        if all(c % divisor == 0 for _, c in self.terms):
            return Index((), self.const % divisor)
        return Index(((Mod(self, divisor), 1),))

    @property
    def is_const(self) -> bool:
        return not self.terms

    def coefficient(self, var: str) -> int:
        return next((c for a, c in self.terms if a == var), 0)

    def vars(self) -> frozenset[str]:
        """Every loop variable the index depends on, inside atoms too."""
        out: set[str] = set()
        for atom, _ in self.terms:
            if isinstance(atom, str):
                out.add(atom)
            elif isinstance(atom, LoadIndex):
                out.update(*(i.vars() for i in atom.indices))
            else:
                out |= atom.index.vars()
        return frozenset(out)

    def substitute(self, env: Mapping[str, Index]) -> Index:
        """Replace loop variables by indices."""
        out = Index((), self.const)
        for atom, c in self.terms:
            out = out + _substitute_atom(atom, env) * c
        return out


IndexLike = Index | int | str


def index(value: IndexLike) -> Index:
    """An int, a variable name or an Index, as an Index."""
    if isinstance(value, Index):
        return value
    return Index((), value) if isinstance(value, int) else Index(((value, 1),))


def clamp(value: Index, lo: int, hi: int) -> Index:
    if value.is_const:
        return Index((), min(max(value.const, lo), hi))
    return Index(((Clamp(value, lo, hi), 1),))


def _order(atom: Atom) -> tuple[int, str]:
    return (0, atom) if isinstance(atom, str) else (1, repr(atom))


def _affine(terms: list[tuple[Atom, int]], const: int) -> Index:
    total: dict[Atom, int] = {}
    for atom, c in terms:
        total[atom] = total.get(atom, 0) + c
    kept = [(a, c) for a, c in total.items() if c]
    if len(kept) > 1:
        kept.sort(key=lambda t: _order(t[0]))
    return Index(tuple(kept), const)


def _substitute_atom(atom: Atom, env: Mapping[str, Index]) -> Index:
    if isinstance(atom, str):
        return env.get(atom) or Index(((atom, 1),))
    if isinstance(atom, FloorDiv):
        return atom.index.substitute(env) // atom.divisor
    if isinstance(atom, Mod):
        return atom.index.substitute(env) % atom.divisor
    if isinstance(atom, Clamp):
        return clamp(atom.index.substitute(env), atom.lo, atom.hi)
    inner = tuple(i.substitute(env) for i in atom.indices)
    return Index(((LoadIndex(atom.buffer, inner, atom.extent), 1),))


@dataclass(frozen=True, slots=True)
class Bound:
    """lo <= index < hi."""

    index: Index
    lo: int
    hi: int


# Element functions: name -> number of arguments. Comparisons give bool; `where` takes one first.
FUNCTIONS: dict[str, int] = {
    "add": 2, "sub": 2, "mul": 2, "div": 2, "max": 2, "min": 2, "pow": 2, "mod": 2,
    "neg": 1, "abs": 1, "sqrt": 1, "rsqrt": 1, "exp": 1, "log": 1, "erf": 1, "tanh": 1,
    "sigmoid": 1, "floor": 1, "ceil": 1, "round": 1, "sign": 1, "sin": 1, "cos": 1,
    "reciprocal": 1,
    "eq": 2, "ne": 2, "lt": 2, "le": 2, "gt": 2, "ge": 2,
    "and": 2, "or": 2, "not": 1, "where": 3,
    "to_float32": 1, "to_float64": 1, "to_int32": 1, "to_int64": 1, "to_bool": 1,
    "to_int8": 1, "to_uint8": 1, "to_bfloat16": 1,
}  # fmt: skip
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
COMBINERS = ("sum", "max", "min", "prod")


@dataclass(frozen=True, slots=True)
class Const:
    """A literal."""

    value: float | int | bool
    dtype: str = "float32"


@dataclass(frozen=True, slots=True)
class Load:
    """An element of a buffer (in a tensor expression: of a named tensor)."""

    buffer: str
    indices: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Apply:
    """An element function of FUNCTIONS applied to values."""

    fn: str
    args: tuple[Value, ...]

    def __post_init__(self) -> None:
        if FUNCTIONS.get(self.fn) != len(self.args):
            raise VerifyError(f"{self.fn} takes {FUNCTIONS.get(self.fn)} values, got {self.args}")


@dataclass(frozen=True, slots=True)
class IndexValue:
    """An index as a value."""

    index: Index
    dtype: str


@dataclass(frozen=True, slots=True)
class Select:
    """`then` where all bounds hold, else `other`; the branch not taken is not loaded."""

    bounds: tuple[Bound, ...]
    then: Value
    other: Value


@dataclass(frozen=True, slots=True)
class Table:
    """An element of a small constant float32 matrix (row, column), e.g. a Winograd transform."""

    values: tuple[tuple[float, ...], ...]
    row: Index
    column: Index


Value = Const | Load | Apply | IndexValue | Select | Table


def fn(name: str, *args: Value) -> Apply:
    """Shorthand for Apply."""
    return Apply(name, tuple(args))


@dataclass(frozen=True, slots=True)
class Buffer:
    """Storage. scope: param, scratch (memory of one kernel call) or register.

    Strides in elements; see `autotune.types.Layout` for the halo.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    scope: str
    strides: tuple[int, ...]
    halo: tuple[tuple[int, int], ...]
    constant: bool = False
    """A param whose contents are weights: known when the model is compiled, and packable."""
    written: bool = False
    """A param that the program writes (its output)."""

    @staticmethod
    def dense(name: str, dtype: str, shape: tuple[int, ...], scope: str) -> Buffer:
        return Buffer(name, dtype, shape, scope, dense_strides(shape), ((0, 0),) * len(shape))

    @property
    def layout(self) -> Layout:
        return Layout(strides=self.strides, halo=self.halo)


@dataclass(frozen=True, slots=True)
class For:
    """A loop of constant extent from 0. kind: serial, parallel, unroll, vector, or dot: the
    products that one instruction sums up, two of bfloat16 or four of uint8 times int8."""

    var: str
    extent: int
    kind: str
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Alloc:
    """A buffer that lives while its body runs; contents undefined at entry."""

    buffer: Buffer
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class If:
    """Run the body where every bound holds."""

    bounds: tuple[Bound, ...]
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Store:
    """buffer[indices] = value, or with `combine` = combine(buffer[indices], value)."""

    buffer: str
    indices: tuple[Index, ...]
    value: Value
    combine: str | None = None


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Hint that the element will be read soon; no effect on results."""

    buffer: str
    indices: tuple[Index, ...]


Stmt = For | Alloc | If | Store | Prefetch


@dataclass(frozen=True, slots=True)
class Pack:
    """How a constant param is laid out before the call: split dimensions, then permute.

    `splits`: (dimension, factor), one after the other, each counting the dimensions as they are
    then: the dimension becomes two, (ceil(extent/factor), factor), zero padded. `order`:
    permutation of the dimensions after all splits.
    """

    buffer: str
    shape: tuple[int, ...]
    splits: tuple[tuple[int, int], ...]
    order: tuple[int, ...]
    transforms: tuple[tuple[int, int, int], ...] = ()
    """(dimension, m, r), before the splits: the dimension of extent r becomes m + r - 1 by the
    filter transform of Winograd's F(m, r), see `autotune.program.winograd`."""
    dtype: str = ""
    """Element type to round to; empty: as it is. bfloat16 is kept as its bits, in uint16."""


@dataclass(frozen=True, slots=True)
class Program:
    """One kernel. Params are in the order of `Task.params`."""

    name: str
    params: tuple[Buffer, ...]
    body: tuple[Stmt, ...]
    packs: tuple[Pack, ...] = ()


def walk(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement, parents before children."""
    for stmt in body:
        yield stmt
        if isinstance(stmt, For | Alloc | If):
            yield from walk(stmt.body)


@dataclass(frozen=True, slots=True)
class Axis:
    """A named iteration axis of a tensor expression."""

    name: str
    extent: int


@dataclass(frozen=True, slots=True)
class Compute:
    """One tensor by index expression: output[axes] = combine over `reduce` of body.

    One axis per output dimension, in order. `body` loads from the op's input tensors, by name, and
    from outputs of earlier Computes of the same op. A read outside a tensor's extents is allowed
    only where `pads` of that tensor says so (zeros). Without `reduce`, `combine` is None.
    """

    output: str
    dtype: str
    axes: tuple[Axis, ...]
    body: Value
    reduce: tuple[Axis, ...] = ()
    combine: str | None = None
    init: float = 0.0
    pads: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()
    """(tensor name, ((before, after) per dimension)): zero padding that the body reads."""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(a.extent for a in self.axes)
