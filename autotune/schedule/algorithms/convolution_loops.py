"""Recognizing a naive convolution in a program: where steps that change its algorithm start."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.errors import ScheduleError
from autotune.program import ir
from autotune.program.rewrite import Body, find_loop, stores_of
from autotune.schedule.loops.nest import perfect_chain


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """A naive convolution with dilation 1 and its epilogue, as found in a program."""

    loops: tuple[ir.For, ...]
    reduce: tuple[ir.For, ...]
    data: ir.Load
    weights: str
    pads: tuple[int, int]
    strides: tuple[int, int]
    groups: int
    epilogue: Body
    buffer: ir.Buffer

    @property
    def extents(self) -> tuple[int, ...]:
        return tuple(loop.extent for loop in self.loops)

    @property
    def channels(self) -> int:
        """Channels of the data, all groups together."""
        return self.groups * self.reduce[2].extent

    def channel(self, within: str) -> ir.Index:
        """The data's channel, for the output channel's loop and one within its group."""
        oc, per_group = self.loops[3], self.reduce[2].extent
        if self.groups == 1:
            return ir.index(within)
        return (ir.index(oc.var) // (oc.extent // self.groups)) * per_group + within


def find_convolution(program: ir.Program, buffer: str) -> Convolution:
    """Recognize the loops; ScheduleError where they are no plain convolution."""
    refuse = ScheduleError(f"{buffer} is not a plain convolution with dilation 1")
    update = next((s for s in stores_of(program.body, buffer) if s.combine == "sum"), None)
    product = update.value if update else None
    if update is None or not (isinstance(product, ir.Apply) and product.fn == "mul"):
        raise refuse
    x, w = product.args
    names = [_only_var(i) for i in update.indices]
    if not (isinstance(x, ir.Load) and isinstance(w, ir.Load)) or len(names) != 4 or None in names:
        raise refuse
    chain = perfect_chain(find_loop(program, str(names[0])), 4)
    if [c.var for c in chain] != names or len(chain[3].body) < 2:
        raise refuse
    init, reduction, *epilogue = chain[3].body
    if not (
        isinstance(reduction, ir.For)
        and isinstance(init, ir.Store)
        and init.value == ir.Const(0.0)
    ):
        raise refuse
    kh, kw, ic = perfect_chain(reduction, 3)
    n, oh, ow, oc = (ir.index(v) for v in (c.var for c in chain))
    strides = tuple(x.indices[d].coefficient(chain[d].var) for d in (1, 2))
    row = x.indices[1] - oh * strides[0] - kh.var
    column = x.indices[2] - ow * strides[1] - kw.var
    plain = row.is_const and column.is_const and x.indices[0] == n and min(strides) > 0
    groups = buffers_of(program)[x.buffer].shape[3] // ic.extent
    per_group = chain[3].extent // groups
    first = ir.Index() if groups == 1 else (oc // per_group) * ic.extent
    if not plain or x.indices[3] != first + ic.var:
        raise refuse
    if w.indices != (ir.index(kh.var), ir.index(kw.var), ir.index(ic.var), oc):
        raise refuse
    if any(not isinstance(s, ir.Store) or s.combine for s in epilogue):
        raise refuse
    return Convolution(
        loops=tuple(chain),
        reduce=(kh, kw, ic),
        data=x,
        weights=w.buffer,
        pads=(-row.const, -column.const),
        strides=(strides[0], strides[1]),
        groups=groups,
        epilogue=tuple(epilogue),
        buffer=buffers_of(program)[buffer],
    )


def _only_var(value: ir.Index) -> str | None:
    atom = value.terms[0][0] if len(value.terms) == 1 and not value.const else None
    return atom if isinstance(atom, str) else None


def buffers_of(program: ir.Program) -> dict[str, ir.Buffer]:
    found = {p.name: p for p in program.params}
    return found | {
        s.buffer.name: s.buffer for s in ir.walk(program.body) if isinstance(s, ir.Alloc)
    }
