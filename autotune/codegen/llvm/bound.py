"""Bounds as LLVM conditions. In: bounds. Out: what is known of them now, a flag or a mask."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.codegen.expression import Val
from autotune.codegen.llvm.index import Linear
from autotune.codegen.llvm.load import LoadWriter
from autotune.codegen.llvm.text import type_text
from autotune.program.analysis import interval
from autotune.program.ir import Bound, Index
from autotune.sizes import any_size, greatest, is_size, least, surely_at_most, surely_less


class BoundWriter(LoadWriter):
    """Writes conditions."""

    def condition(self, bounds: Sequence[Bound]) -> bool | tuple[str, int]:
        """Whether all bounds hold: known now, or (i1 value or vector of them, lanes)."""
        uniform: list[str] = []
        masks: list[str] = []
        for bound in bounds:
            if self.lanes > 1 and self.irregular((bound.index,)):
                if not self._holds(bound):
                    masks.append(self._each_lane_compare(bound))
                continue
            linear = self.linear(bound.index)
            known = not any_size((linear.const, bound.lo, bound.hi))
            if not linear.terms and known:
                lanes = range(self.lanes) if linear.lane else range(1)
                step = self.known_lane(linear)
                hits = [bound.lo <= linear.const + i * step < bound.hi for i in lanes]
                if not any(hits):
                    return False
                if not all(hits):
                    bits = ", ".join(f"i1 {'true' if h else 'false'}" for h in hits)
                    masks.append(f"<{bits}>")
            elif linear.lane:
                if not self._holds(bound):
                    masks += self._lane_compare(linear, bound)
            elif known or not self._holds(bound):
                uniform.append(self._uniform_compare(linear, bound))
        if masks:
            return self._joined(masks, uniform), self.lanes
        if uniform:
            return self._and(uniform, "i1"), 1
        return True

    def _uniform_compare(self, linear: Linear, bound: Bound) -> str:
        # One unsigned comparison covers both ends.
        shifted = Linear(linear.terms, linear.const - bound.lo)
        name, depth = self.scalar(shifted)
        return self.pure(depth, f"icmp ult i64 {name}, {self.amount(bound.hi - bound.lo)}")

    def _holds(self, bound: Bound) -> bool:
        """Whether a bound holds in every iteration of the loops that are not written out."""
        now = {v: Index((), i) for v, i in self.env.items() if isinstance(i, int)}
        low, high = interval(bound.index.substitute(now), self.ranges)
        return surely_at_most(bound.lo, low) and surely_less(high, bound.hi)

    def _lane_compare(self, linear: Linear, bound: Bound) -> list[str]:
        # Lanes half as wide take half the instructions.
        step = self.known_lane(linear)
        narrow = self._fits_32_bits(linear, bound)
        base, depth = self.scalar(linear._replace(const=linear.const - bound.lo))
        if narrow:
            base = self.pure(depth, f"trunc i64 {base} to i32")
        item, dtype = ("i32", "int32") if narrow else ("i64", "int64")
        splat = self.splat(Val(base, dtype, 1), self.lanes).text
        kind = type_text(dtype, self.lanes)
        steps = ", ".join(f"{item} {i * step}" for i in range(self.lanes))
        value = self.text.emit(f"add {kind} {splat}, <{steps}>")
        limit = self._limit(bound.hi - bound.lo, item, dtype, depth)
        return [self.text.emit(f"icmp ult {kind} {value}, {limit}")]

    def _limit(self, width: int, item: str, dtype: str, depth: int) -> str:
        """A number in that many lanes, of i32 or i64."""
        if not is_size(width):
            return f"splat ({item} {width})"
        name = self.amount(width)
        if item == "i32":
            name = self.pure(depth, f"trunc i64 {name} to i32")
        return self.splat(Val(name, dtype, 1), self.lanes).text

    def _fits_32_bits(self, linear: Linear, bound: Bound) -> bool:
        low, high = interval(bound.index, self.ranges)
        reach = abs(linear.lane) * self.lanes
        return (
            least(low - bound.lo) - reach > -(2**31)
            and max(greatest(high - bound.lo), greatest(bound.hi - bound.lo)) + reach < 2**31
        )

    def _each_lane_compare(self, bound: Bound) -> str:
        """A mask for a bound on an index that divides the vector loop's variable."""
        out = Val("poison", "bool", self.lanes)
        for lane in range(self.lanes):
            with self.one_lane(lane):
                known = self.condition((bound,))
            text = known[0] if isinstance(known, tuple) else "true" if known else "false"
            out = self.insert(out, Val(text, "bool", 1), lane)
        return out.text

    def _joined(self, masks: list[str], uniform: list[str]) -> str:
        kind = type_text("bool", self.lanes)
        out = self._and(masks, kind)
        for flag in uniform:
            full = self.splat(Val(flag, "bool", 1), self.lanes).text
            out = self.text.emit(f"and {kind} {out}, {full}")
        return out

    def _and(self, flags: list[str], kind: str) -> str:
        out = flags[0]
        for flag in flags[1:]:
            out = self.text.emit(f"and {kind} {out}, {flag}")
        return out

    def under(self, mask: str) -> str:
        """A mask narrowed by the one in force."""
        if self.mask is None:
            return mask
        return self.text.emit(f"and {type_text('bool', self.lanes)} {self.mask}, {mask}")
