"""Step flash_attention: attention block by block (Dao et al. 2022), so that scores never leave the
cache, by an online softmax (Milakov & Gimelshein 2018)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import ScheduleError
from autotune.program.ir import (
    Alloc,
    Bound,
    Buffer,
    Const,
    For,
    If,
    Index,
    Load,
    Program,
    Select,
    Stmt,
    Store,
    Value,
    clamp,
    fn,
    index,
)
from autotune.program.rewrite import Body, drop_alloc, map_value, replace
from autotune.schedule.algorithms.attention_loops import Attention, find_attention, moved
from autotune.schedule.base import register
from autotune.sizes import ceil_div, is_size

_UNROLL = 4
"""Vectors of a row of scores that are looked at in one iteration."""
_LEAST = Const(-3.4028234663852886e38)
"""Where the largest score starts: finite, so that a block of nothing but -inf gives zeros."""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class FlashAttention:
    """Compute softmax(f(q k)) v for `rows` rows of q at a time, over blocks of `keys` keys.

    for m, n: t = sum of q*k ; softmax's nests ; for m, d: { o = sum of p*v ; y = g(o) }   ->
    for att_b: alloc q', e, a: {
      for r: q'[r] = q[att_b*rows + r]
      for att_k: { for r, n: { t = 0 ; for k: t += q'*k ; e[r, n] = f(t) }
                   for r: e[r] = exp(e[r] - max so far), the sum so far, what to scale a[r] by
                   for r, d: { o = scaled a[r, d] ; for n: o += e*v ; a[r, d] = o } }
      for r: y = g(a / sum) }

    Loops of the products are left for further steps: att_sr, att_sn, att_sk and att_mr, att_md,
    att_mn; the sums are `scores` and `mix`.block. The others are annotated already, `lanes`
    elements side by side. `keys` divides their number; all of them at once need no scaling. Of a
    number that only a run knows, the last block's scores of keys that do not exist are -inf: the
    keys and values behind the last must be there to be read, and finite.
    Blocks that f hides from all rows by their places are left out. The last block of rows computes
    rows that do not exist as the last one, and stores those that do.
    """

    step: ClassVar[str] = "flash_attention"
    scores: str
    weights: str
    mix: str
    rows: int
    keys: int
    lanes: int

    def apply(self, program: Program) -> Program:
        found = find_attention(program, self.scores, self.weights, self.mix)
        keys = found.scores.columns.extent
        fits = is_size(keys) or keys % self.keys == 0
        if not fits or min(self.rows, self.keys, self.lanes) < 1:
            raise ScheduleError(f"blocks of {self.keys} keys do not divide {keys}")
        plan = _AttentionPlan(step=self, found=found)
        for nest in found.nests[1:]:
            program = replace(program, nest, ())
        program = replace(program, found.nests[0], (plan.whole(),))
        for name in found.inner:
            program = drop_alloc(program, name)
        return program


@dataclass(frozen=True, slots=True, kw_only=True)
class _AttentionPlan:
    """Sizes, names and the nests of a block."""

    step: FlashAttention
    found: Attention

    # ------------------------------------------------------------------------- sizes and buffers

    @property
    def row_count(self) -> int:
        return self.found.scores.rows.extent

    @property
    def depth(self) -> int:
        return self.found.scores.reduce.extent

    @property
    def width(self) -> int:
        return self.found.mix.columns.extent

    @property
    def blocks(self) -> int:
        """Blocks of keys in a row of scores."""
        return ceil_div(self.found.scores.columns.extent, self.step.keys)

    @property
    def several(self) -> bool:
        """Whether there may be more than one."""
        return is_size(self.blocks) or self.blocks > 1

    @property
    def ragged(self) -> bool:
        """Whether the last block of rows may have fewer."""
        return self.row_count % self.step.rows != 0

    def _name(self, what: str) -> str:
        return f"{self.step.weights}.{what}"

    def scratch(self) -> list[Buffer]:
        """All that lives for a block of rows."""
        rows, kind = self.step.rows, self.found.dtype
        shapes = {
            self._name("q"): (rows, self.depth),
            self.step.scores: (rows, self.step.keys),
            self._name("max"): (rows,),
            self._name("sum"): (rows,),
            f"{self.step.mix}.block": (rows, self.width),
            self._name("mix"): (rows, self.width),
        }
        if self.several:
            shapes[self._name("keep")] = (rows,)
        out = [Buffer.dense(name, kind, shape, "scratch") for name, shape in shapes.items()]
        return [*out, self._exponentials()]

    def _exponentials(self) -> Buffer:
        """Rows an odd number of vectors apart: side by side in a column, they would evict each
        other from the cache."""
        lanes, keys = self.step.lanes, self.step.keys
        stride = (-(-keys // lanes) | 1) * lanes
        shape = (self.step.rows, keys)
        none = ((0, 0), (0, 0))
        return Buffer(self._name("exp"), self.found.dtype, shape, "scratch", (stride, 1), none)

    def _registers(self, name: str) -> Buffer:
        lanes = min(self.step.lanes, self.step.keys)
        shape = (min(_UNROLL, self.step.keys // lanes), lanes)
        return Buffer.dense(self._name(name), self.found.dtype, shape, "register")

    def _seen(self, body: Body) -> Body:
        """Run for blocks of keys of which the last row of a block sees one at least."""
        seen = self.found.seen
        if seen is None:
            return body
        left = self._row(self.step.rows - 1) + seen - index("att_k") * self.step.keys
        return (If((Bound(left, 0, self.row_count + self.step.rows + seen),), body),)

    def _row(self, var: str | int) -> Index:
        return index("att_b") * self.step.rows + var

    def _known_row(self, var: str) -> Index:
        """The row, or the last one where it does not exist."""
        row = self._row(var)
        return clamp(row, 0, self.row_count - 1) if self.ragged else row

    def _key(self, var: str) -> Index:
        return (index("att_k") * self.step.keys if self.several else Index()) + var

    def _batch(self) -> dict[str, Index]:
        """The second product's loops over the batch, as the first one's."""
        pairs = zip(self.found.mix.loops[:-2], self.found.batch, strict=True)
        return {a.var: index(b.var) for a, b in pairs}

    # ------------------------------------------------------------------------------------- nests

    def whole(self) -> Stmt:
        """The loops over the batch and blocks of rows."""
        inner: Body = (self.scores(), self.softmax(), self.mix())
        if self.several:
            inner = (self.start(), For("att_k", self.blocks, "serial", self._seen(inner)))
        body: Body = (self.copy(), *inner, self.finish())
        for buffer in self.scratch():
            body = (Alloc(buffer, body),)
        count = -(-self.row_count // self.step.rows)
        body = (For("att_b", count, "serial", body),)
        for loop in reversed(self.found.batch):
            body = (For(loop.var, loop.extent, "serial", body),)
        return body[0]

    def copy(self) -> Stmt:
        """The rows of a block, side by side."""
        scores = self.found.scores

        def one(at: Index) -> Body:
            env = {scores.rows.var: self._known_row("att_q"), scores.reduce.var: at}
            source = moved(scores.left, env)
            return (Store(self._name("q"), (index("att_q"), at), source),)

        return For("att_q", self.step.rows, "serial", (self._vectors("att_q", self.depth, one),))

    def start(self) -> Stmt:
        """Nothing seen so far."""
        row = index("att_i")

        def one(at: Index) -> Body:
            return (Store(self._name("mix"), (row, at), Const(0.0)),)

        body = (
            Store(self._name("max"), (row,), _LEAST),
            Store(self._name("sum"), (row,), Const(0.0)),
            self._vectors("att_i", self.width, one),
        )
        return For("att_i", self.step.rows, "serial", body)

    def scores(self) -> Stmt:
        """e = f(q k)."""
        scores, name = self.found.scores, self.step.scores
        cell = (index("att_sr"), index("att_sn"))
        env = {scores.columns.var: self._key("att_sn"), scores.reduce.var: index("att_sk")}
        key = moved(scores.right, env)
        product = fn("mul", Load(self._name("q"), (index("att_sr"), index("att_sk"))), key)
        update = For("att_sk", self.depth, "serial", (Store(name, cell, product, "sum"),))
        env = {
            scores.rows.var: self._known_row("att_sr"),
            scores.columns.var: self._key("att_sn"),
        }
        score = _over(self.found.score, env, name, Load(name, cell))
        keys = scores.columns.extent
        if is_size(keys):
            exists = Bound(self._key("att_sn"), 0, keys)
            score = Select((exists,), score, Const(float("-inf")))
        body: Body = (
            Store(name, cell, Const(0.0)),
            update,
            Store(self._name("exp"), cell, score),
        )
        columns = For("att_sn", self.step.keys, "serial", body)
        return For("att_sr", self.step.rows, "serial", (columns,))

    def softmax(self) -> Stmt:
        """The exponentials of a block of scores, and what they add up to."""
        row = index("att_r")
        most, total = self._registers("most"), self._registers("total")
        top, seen, keep, exps = (self._name(n) for n in ("max", "sum", "keep", "exp"))

        def highest(at: Index, cell: tuple[Index, ...]) -> Body:
            return (Store(most.name, cell, Load(exps, (row, at)), "peak"),)

        def power(at: Index, cell: tuple[Index, ...]) -> Body:
            shifted = fn("sub", Load(exps, (row, at)), Load(top, (row,)))
            return (
                Store(exps, (row, at), fn("exp", shifted)),
                Store(total.name, cell, Load(exps, (row, at)), "sum"),
            )

        several = self.several
        before = (Store(keep, (row,), Load(top, (row,))),) if several else ()
        fresh = Store(top, (row,), _LEAST)
        moved = fn("exp", fn("sub", Load(keep, (row,)), Load(top, (row,))))
        carried = fn("mul", Load(seen, (row,)), Load(keep, (row,)))
        body: Body = (
            self._fill("att_m0", most, Const(float("-inf"))),
            *self._passes("att_m", highest),
            *(before or (fresh,)),
            *self._gathered("att_m", most, top, "peak"),
            *((Store(keep, (row,), moved),) if several else ()),
            self._fill("att_e0", total, Const(0.0)),
            *self._passes("att_e", power),
            Store(seen, (row,), carried if several else Const(0.0)),
            *self._gathered("att_e", total, seen, "sum"),
        )
        return For("att_r", self.step.rows, "serial", (Alloc(most, (Alloc(total, body),)),))

    def mix(self) -> Stmt:
        """a = scaled a + e v."""
        mix, name, kept = self.found.mix, f"{self.step.mix}.block", self._name("mix")
        cell = (index("att_mr"), index("att_md"))
        env = self._batch() | {
            mix.columns.var: index("att_md"),
            mix.reduce.var: self._key("att_mn"),
        }
        value = moved(mix.right, env)
        product = fn("mul", Load(self._name("exp"), (index("att_mr"), index("att_mn"))), value)
        start: Value = Const(0.0)
        if self.several:
            start = fn("mul", Load(kept, cell), Load(self._name("keep"), (index("att_mr"),)))
        update = For("att_mn", self.step.keys, "serial", (Store(name, cell, product, "sum"),))
        body: Body = (Store(name, cell, start), update, Store(kept, cell, Load(name, cell)))
        columns = For("att_md", self.width, "serial", body)
        return For("att_mr", self.step.rows, "serial", (columns,))

    def finish(self) -> Stmt:
        """y = g(a / sum)."""
        mix, row, seen = self.found.mix, index("att_o"), self._name("sum")

        def one(at: Index) -> Body:
            share: Value = fn("mul", Load(self._name("mix"), (row, at)), Load(seen, (row,)))
            if self.found.guarded:  # of no number either: what the guard takes for no scores
                some = fn("gt", Load(seen, (row,)), Const(0.0))
                share = fn("where", some, share, Const(0.0))
            env = self._batch() | {mix.rows.var: self._row("att_o"), mix.columns.var: at}
            result = self.found.result
            cell = tuple(i.substitute(env) for i in result.indices)
            return (Store(result.buffer, cell, _over(result.value, env, self.step.mix, share)),)

        inverse: Value = fn("reciprocal", Load(seen, (row,)))
        if self.found.guarded:
            some = fn("gt", Load(seen, (row,)), Const(0.0))
            inverse = fn("where", some, inverse, Const(0.0))
        body: Body = (
            Store(seen, (row,), inverse),
            self._vectors("att_o", self.width, one),
        )
        if self.ragged:
            body = (If((Bound(self._row("att_o"), 0, self.row_count),), body),)
        return For("att_o", self.step.rows, "serial", body)

    # ------------------------------------------------------------------------------ loops of them

    def _vectors(self, prefix: str, extent: int, one: Callable[[Index], Body]) -> Stmt:
        """`one` for every element of a row, in vectors."""
        lanes = min(self.step.lanes, extent)
        at = index(f"{prefix}_c") * lanes + f"{prefix}_l"
        body = one(at)
        if extent % lanes:
            body = (If((Bound(at, 0, extent),), body),)
        return For(
            f"{prefix}_c", -(-extent // lanes), "serial",
            (For(f"{prefix}_l", lanes, "vector", body),),
        )  # fmt: skip

    def _passes(self, prefix: str, one: Callable[[Index, tuple[Index, ...]], Body]) -> Body:
        """`one` for every element of a row of scores, several vectors an iteration; `one` is given
        the element and the register's cell."""
        keys, (unroll, lanes) = self.step.keys, self._registers("most").shape
        whole, out = keys // (unroll * lanes), list[Stmt]()
        for name, first, count in (
            ("", 0, unroll),
            ("t", whole * unroll * lanes, -(-(keys - whole * unroll * lanes) // lanes)),
        ):
            cell = (index(f"{prefix}_u{name}"), index(f"{prefix}_l{name}"))
            at = cell[0] * lanes + cell[1] + first
            chunk = index(f"{prefix}_c") * (unroll * lanes)
            body = one(at if name else at + chunk, cell)
            if name and (keys - first) % lanes:
                body = (If((Bound(at, 0, keys),), body),)
            inner = For(f"{prefix}_l{name}", lanes, "vector", body)
            stmt = For(f"{prefix}_u{name}", count, "unroll", (inner,))
            if name and count:
                out.append(stmt)
            elif not name:
                out.append(For(f"{prefix}_c", whole, "serial", (stmt,)))
        return tuple(out)

    def _fill(self, prefix: str, buffer: Buffer, value: Value) -> Stmt:
        unroll, lanes = buffer.shape
        cell = (index(f"{prefix}_u"), index(f"{prefix}_l"))
        body = (Store(buffer.name, cell, value),)
        inner = For(f"{prefix}_l", lanes, "vector", body)
        return For(f"{prefix}_u", unroll, "unroll", (inner,))

    def _gathered(self, prefix: str, buffer: Buffer, to: str, combine: str) -> Body:
        """All cells of registers combined into the row's element of `to`."""
        unroll, lanes = buffer.shape
        lane, out = index(f"{prefix}_lx"), list[Stmt]()
        if unroll > 1:
            other = Load(buffer.name, (index(f"{prefix}_ux") + 1, lane))
            body = (Store(buffer.name, (Index(), lane), other, combine),)
            inner = For(f"{prefix}_lx", lanes, "vector", body)
            out.append(For(f"{prefix}_ux", unroll - 1, "unroll", (inner,)))
        last = index(f"{prefix}_ly")
        body = (Store(to, (index("att_r"),), Load(buffer.name, (Index(), last)), combine),)
        out.append(For(f"{prefix}_ly", lanes, "vector", body))
        return tuple(out)


def _over(value: Value, env: dict[str, Index], buffer: str, element: Value) -> Value:
    """The value with loops replaced by indices, and loads of a buffer by its element."""

    def load(part: Value) -> Value | None:
        return element if isinstance(part, Load) and part.buffer == buffer else None

    return map_value(moved(value, env), load)
