"""The program IR: what tensor expressions become, steps rewrite and backends print.

    program := name, params (buffers), packs, body
    stmt    := for VAR in EXTENT [serial|parallel|unroll|vector|dot|block.x|..|thread.x|..]: stmt*
             | for VAR in EXTENT stream: fetch* stmt*     # fetches run ahead
             | alloc BUFFER: stmt*                        # lives for the duration of its body
             | if BOUND and BOUND ...: stmt*              # BOUND is  lo <= index < hi
             | BUFFER[index, ...] = value
             | BUFFER[index, ...] sum=|max=|min=|prod=|peak= value
             | prefetch BUFFER[index, ...]
             | barrier
             | mma BUFFER[...], BUFFER[...], BUFFER[...]  # a warp's step on matrices
             | wgmma COUNT BUFFER[...], BUFFER[...], BUFFER[...]  # of four warps
             | copy COUNT BUFFER[...] from BUFFER[...] | commit | wait COUNT
             | shuffle sum|max|min|prod|peak COUNT BUFFER[...]  # of threads side by side
             | fetch [COUNT, ...] BUFFER[...] from BUFFER[...]
    index   := integer affine sum  c0 + c1*atom + ...
    atom    := VAR | (index // n) | (index % n) | clamp(index, lo, hi) | int(BUFFER[index, ...])
    value   := constant | BUFFER[index, ...] | FN(value, ...) | value(index)
             | select(BOUND and ..., value, value) | table[index, ...]

Indices are logical: a buffer's strides, halo and packing say where an element lies. Extents are
constants, or expressions of sizes that every call is given (`autotune.sizes`). Loop names are
unique in a program. Top-level statements run one after the other, each when the one before is
done; threads share the iterations of a `parallel` loop, and a top-level statement without one is
run by one thread alone. All values are frozen and comparable.

On a GPU every top-level statement is one kernel launch (by one thread where nothing is bound): the
`block` loops, outermost, are its grid; the `thread` loops inside them are the threads of a block.
Several nests of thread loops may follow each other in a block, also inside serial loops, each by
the first threads of the largest one; `barrier`s between them are reached by all threads. A shared
buffer exists once per block; a register buffer allocated outside the thread loops once per thread.
A `warp` loop goes over the warps of a block; `fragment` buffers are matrices of a warp whose
elements its threads share out, by pairs of `fragment.m` and `fragment.n` loops and by `mma`.
The fetches at the head of a `stream` loop are made by a warp of their own, iterations ahead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from autotune.program.affine import Atom as Atom
from autotune.program.affine import Clamp as Clamp
from autotune.program.affine import FloorDiv as FloorDiv
from autotune.program.affine import Index as Index
from autotune.program.affine import IndexLike as IndexLike
from autotune.program.affine import LoadIndex as LoadIndex
from autotune.program.affine import Mod as Mod
from autotune.program.affine import clamp as clamp
from autotune.program.affine import index as index
from autotune.program.values import COMBINERS as COMBINERS
from autotune.program.values import COMPARISONS as COMPARISONS
from autotune.program.values import FUNCTIONS as FUNCTIONS
from autotune.program.values import Apply as Apply
from autotune.program.values import Bound as Bound
from autotune.program.values import Const as Const
from autotune.program.values import IndexValue as IndexValue
from autotune.program.values import Load as Load
from autotune.program.values import Select as Select
from autotune.program.values import Table as Table
from autotune.program.values import Value as Value
from autotune.program.values import fn as fn
from autotune.types import Layout, dense_strides

LoopKind = Literal[
    "serial", "parallel", "unroll", "vector", "dot", "tile", "block.x", "block.y", "block.z",
    "thread.x", "thread.y", "thread.z", "warp", "fragment.m", "fragment.n", "stream",
]  # fmt: skip
Scope = Literal["param", "scratch", "register", "shared", "fragment"]


@dataclass(frozen=True, slots=True)
class Buffer:
    """Storage. scope: param, scratch (memory of one call), shared (of a block) or register.

    Strides in elements; see `autotune.types.Layout` for the halo.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    scope: Scope
    strides: tuple[int, ...]
    halo: tuple[tuple[int, int], ...]
    constant: bool = False
    """A param whose contents are weights: known when the model is compiled, and packable."""
    written: bool = False
    """A param that the program writes (its output)."""
    swizzle: tuple[int, ...] = ()
    """(bits, base, shift) of shared memory: the element at offset o lies at o with `bits` of its
    bits, from `base` on, changed where those `shift` further up are set."""
    unaligned: bool = False
    """A param that may begin at any element: nothing is known of its address."""

    @staticmethod
    def dense(name: str, dtype: str, shape: tuple[int, ...], scope: Scope) -> Buffer:
        return Buffer(name, dtype, shape, scope, dense_strides(shape), ((0, 0),) * len(shape))

    def place(self, offset: int) -> int:
        """Where the element at an offset lies."""
        if not self.swizzle:
            return offset
        bits, base, shift = self.swizzle
        return offset ^ (offset >> shift & ((1 << bits) - 1) << base)

    @property
    def layout(self) -> Layout:
        return Layout(strides=self.strides, halo=self.halo)


@dataclass(frozen=True, slots=True)
class For:
    """A loop of constant extent from 0. kind: serial, parallel, unroll, vector; dot: the products
    that one instruction sums up, two of bfloat16 or four of uint8 times int8; tile: the rows of a
    matrix product that one instruction computes."""

    var: str
    extent: int
    kind: LoopKind
    body: tuple[Stmt, ...]


BLOCK_KINDS = ("block.x", "block.y", "block.z")
THREAD_KINDS = ("thread.x", "thread.y", "thread.z")
WARP = 32
"""Threads of a warp (CUDA)."""
MATRIX_KINDS: tuple[LoopKind, ...] = ("fragment.m", "fragment.n")
MATRIX = (16, 8)
"""Rows and columns of the matrices that `mma` adds to."""
MATRIX_BYTES = 32
"""Bytes of a row of an operand of `mma`."""
WARPGROUP = 4
"""Warps of a group that multiply together."""
MATRIX_SUMS = {
    "bfloat16": "float32", "float16": "float32", "float32": "float32", "int8": "int32",
    "uint8": "int32",
}  # fmt: skip
"""Element type of `mma`'s first operand -> of its sum. The second has the same; of uint8, int8."""


def matching(dtype: str) -> str:
    """Element type of `mma`'s second operand, for that of the first."""
    return "int8" if dtype == "uint8" else dtype


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


@dataclass(frozen=True, slots=True)
class Barrier:
    """All threads of a block arrive before any goes on, and see what the others wrote."""


@dataclass(frozen=True, slots=True)
class Mma:
    """A warp adds a product of matrices: for i < 16, j < 8, k < 32 / bytes of an element
    total[.., m+i, n+j] += a[.., m+i, k] * b[.., n+j, k], each place being the first element.

    `total` is a fragment, `a` and `b` lie in shared memory: bfloat16 or float16 (summed in
    float32), float32, whose last 13 bits are left out (in float32), int8, or uint8 and int8 (in
    int32)."""

    total: Load
    a: Load
    b: Load
    across: bool = False
    """Whether `b` lies the other way, b[.., k, n+j]: of bfloat16 or float16."""


@dataclass(frozen=True, slots=True)
class AsyncCopy:
    """`count` elements side by side are on their way to shared memory, and have arrived after a
    wait of the thread that asked for them."""

    to: Load
    source: Load
    count: int


@dataclass(frozen=True, slots=True)
class AsyncCommit:
    """Every thread's copies since the last commit are one group."""


@dataclass(frozen=True, slots=True)
class AsyncWait:
    """Every thread waits until at most `pending` of its newest groups are on their way."""

    pending: int


@dataclass(frozen=True, slots=True)
class Shuffle:
    """Every `width` threads side by side (a power of two, at most a warp) combine an element of
    registers that each has for itself; all of them get the result. First halves are combined with
    second halves, then quarters, and so on."""

    combine: str
    width: int
    place: Load


@dataclass(frozen=True, slots=True)
class WarpgroupMma:
    """Four warps, the first a multiple of four, add products to `count` matrices each: for c <
    count what `mma total[.., p+c, m, n], a[.., row, k], b[.., column+8*c, k]` does.

    The warps' rows of `a` follow each other, `b` is the same for all four, and both are bfloat16
    or float16 in shared memory that only fetches write. `total` is used once the stream loop is
    done."""

    total: Load
    a: Load
    b: Load
    count: int


@dataclass(frozen=True, slots=True)
class Fetch:
    """A box of a tensor comes to shared memory, the elements in the tensor's order, with zeros
    where it reaches beyond the tensor.

    It stands at the head of a `stream` loop, whose other statements see it done; it may be made
    while they still run for earlier iterations, as many as the shared buffer has copies less one.
    """

    to: Load
    """(copy, row, 0): the box's last dimension is one row of 128 bytes."""
    source: Load
    box: tuple[int, ...]
    """Elements per dimension of the source."""


Group = Barrier | Mma | AsyncCopy | AsyncCommit | AsyncWait | Shuffle | WarpgroupMma | Fetch
"""What threads do together, or for each other."""
Stmt = For | Alloc | If | Store | Prefetch | Group


@dataclass(frozen=True, slots=True)
class Pack:
    """The packing of a constant param before the call: split dimensions, then permute.

    `splits`: (dimension, factor), one after the other, each counting the dimensions as they are
    then: the dimension becomes two, (ceil(extent/factor), factor), zero padded. `order`:
    permutation of the dimensions after all splits.
    """

    buffer: str
    shape: tuple[int, ...]
    splits: tuple[tuple[int, int], ...]
    order: tuple[int, ...]
    transforms: tuple[tuple[int, int, int, int], ...] = ()
    """(dimension, m, r, stride), before the splits: the dimension of extent r becomes that of the
    filter transform of Winograd's F(m, r) at that stride, see `autotune.program.winograd`."""
    dtype: str = ""
    """Element type to round to, bfloat16 or float16, kept as its bits in uint16; empty: none."""
    strassen: tuple[int, ...] = ()
    """(reduction, channel), before the splits: these dimensions are halved, and a new first one is
    of the sums of blocks that Strassen's algorithm multiplies, see `autotune.program.strassen`."""


@dataclass(frozen=True, slots=True)
class Program:
    """One kernel. Params are in the order of `Task.params`."""

    name: str
    params: tuple[Buffer, ...]
    body: tuple[Stmt, ...]
    packs: tuple[Pack, ...] = ()
    symbols: tuple[str, ...] = ()
    """Names of sizes that a call gets, in order: see `autotune.sizes`."""


NESTED = (For, Alloc, If)
"""Statements that hold others."""


def walk(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement, parents before children."""
    left = [*reversed(body)]
    while left:
        stmt = left.pop()
        yield stmt
        if isinstance(stmt, NESTED):
            left += reversed(stmt.body)


@dataclass(frozen=True, slots=True)
class Axis:
    """A named iteration axis of a tensor expression."""

    name: str
    extent: int


@dataclass(frozen=True, slots=True)
class Updates:
    """Elements that join a tensor where indices read from memory say, one after the other in the
    order of the axes: tensor[place] = value, or with `combine` = combine(tensor[place], value)."""

    axes: tuple[Axis, ...]
    place: tuple[Index, ...]
    value: Value
    combine: str | None = None


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
    updates: Updates | None = None
    """What joins the tensor once all of it is computed."""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(a.extent for a in self.axes)
