"""Loads as LLVM values: from memory (an element, a vector, lanes far apart) and register cells.

In: a load. Out: its value, one lane where it does not depend on the vector loop. Under a mask,
lanes that are off are never read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autotune.codegen.expression import Val
from autotune.codegen.llvm.index import IndexWriter, Lane, Linear, Var
from autotune.codegen.llvm.lane_run import runs_along
from autotune.codegen.llvm.text import FunctionText, suffix_text, type_text
from autotune.codegen.llvm.window import (
    Cover,
    LaneWindow,
    cover,
    lane_indices,
    picks,
    takes_each_once,
    window_of,
)
from autotune.errors import BuildError
from autotune.program.ir import Buffer, Index, Load, LoadIndex
from autotune.types import ITEM_BYTES


class LoadWriter(IndexWriter):
    """Writes loads."""

    def __init__(self, text: FunctionText) -> None:
        super().__init__(text)
        self.cells: dict[tuple[str, int], tuple[str, int]] = {}
        self.mask: str | None = None
        self.written: set[str] = set()
        self.valignd = False
        """Whether the instruction of this name can be written."""
        self.masked_bytes = 64
        """The widest access under a mask: a register. LLVM cuts wider ones wrongly (22.1, AVX2:
        halves that are off are read, or its own assertion ends the process)."""
        self.places: dict[LoadIndex, str] = {}
        """Indices of the lane being written that were read from memory for all lanes at once."""
        self.run: tuple[str, int] | None = None
        """An unrolled loop's variable, and how many neighbours along it one load takes."""

    def load(self, value: Load) -> Val:
        """An element, or one per lane."""
        buffer = self.buffers[value.buffer]
        if buffer.scope == "register":
            return self._register(buffer, value.indices)
        if self.lanes > 1 and self.irregular(value.indices):
            return self._gather(value, buffer)
        flat = self.flat(buffer, value.indices)
        offset = self.linear(flat)
        if self.lanes == 1 or offset.lane == 0:
            depth = self.settled(value, offset)
            if depth is None and self.run and self.lanes > 1 and runs_along(flat, self.run[0]):
                return self._of_run(buffer, offset, *self.run)
            return (
                self._element(buffer, offset)
                if depth is None
                else self._ahead(buffer, offset, depth)
            )
        if offset.lane != 1:
            return self._gather(value, buffer)
        return self._vector(buffer, offset)

    def _register(self, buffer: Buffer, indices: tuple[Index, ...]) -> Val:
        """A register cell, or a vector that begins inside of one and ends in the next."""
        offset = self.linear(self.flat(buffer, indices))
        before = offset.const % self.lanes
        parts = [(buffer.name, offset.const - before + n) for n in (0, self.lanes)]
        whole = offset.terms or offset.lane != 1 or not before
        if whole or not all(part in self.cells for part in parts):
            return self._cell_value(buffer, *self.cell(buffer, indices))
        low, high = (self._cell_value(buffer, *self.cells[part]) for part in parts)
        kind = type_text(buffer.dtype, self.lanes)
        picked = ", ".join(f"i32 {before + n}" for n in range(self.lanes))
        both = f"{kind} {low.text}, {kind} {high.text}"
        text = f"shufflevector {both}, <{self.lanes} x i32> <{picked}>"
        if self.valignd and kind == "<16 x float>":
            # LLVM permutes floats by an index in a register, which overwrites one of the two.
            code = 'asm "valignd $3, $1, $2, $0", "=v,v,v,i"'
            text = f"call {kind} {code}({both}, i32 {before})"
        return Val(self.text.emit(text), buffer.dtype, self.lanes)

    def _cell_value(self, buffer: Buffer, cell: str, lanes: int) -> Val:
        kind = type_text(buffer.dtype, lanes)
        return Val(self.text.read(cell, kind), buffer.dtype, lanes)

    def _element(self, buffer: Buffer, offset: Linear) -> Val:
        kind = type_text(buffer.dtype, 1, memory=True)
        pointer = self.address(buffer, offset)
        text = f"load {kind}, ptr {pointer}, align {ITEM_BYTES[buffer.dtype]}"
        return self._from_memory(self._read(buffer, text), buffer.dtype, 1)

    def _of_run(self, buffer: Buffer, offset: Linear, var: str, width: int) -> Val:
        """An element, of a load of all its neighbours."""
        step = self.env[var]
        assert isinstance(step, int)
        lane, kind = step % width, type_text(buffer.dtype, width, memory=True)
        pointer = self.address(buffer, offset._replace(const=offset.const - lane))
        run = self._read(buffer, f"load {kind}, ptr {pointer}, align {ITEM_BYTES[buffer.dtype]}")
        return Val(self.text.emit(f"extractelement {kind} {run}, i64 {lane}"), buffer.dtype, 1)

    def settled(self, value: Load, offset: Linear) -> int | None:  # noqa: ARG002
        """Depth of the outermost loop around this place that leaves an element as it is, if it is
        known that loads may be moved out of loops."""
        return None

    def _ahead(self, buffer: Buffer, offset: Linear, depth: int) -> Val:
        """An element, loaded before the loop of that depth."""
        pointer = self.address(buffer, offset._replace(const=0))
        kind = type_text(buffer.dtype, 1, memory=True)
        if offset.const:
            item = f"getelementptr {kind}, ptr {pointer}, i64 {offset.const}"
            pointer = self.text.ahead(depth, item)
        text = f"load {kind}, ptr {pointer}, align {ITEM_BYTES[buffer.dtype]}"
        return self._from_memory(self.text.ahead(depth, text), buffer.dtype, 1)

    def _read(self, buffer: Buffer, text: str) -> str:
        """A load; written once per scope where nothing stores to the buffer."""
        if buffer.name in self.written:
            return self.text.emit(text)
        return self.text.once(text, text)

    def _vector(self, buffer: Buffer, offset: Linear) -> Val:
        loaded = self._neighbours(buffer, self.address(buffer, offset), self.lanes, self.mask)
        return self._from_memory(loaded, buffer.dtype, self.lanes)

    def _neighbours(self, buffer: Buffer, pointer: str, width: int, mask: str | None) -> str:
        """So many elements side by side; zeros where there is a mask that is off."""
        if mask is None or width <= self.masked_lanes(buffer):
            return self._read(buffer, self._load_text(buffer, pointer, width, mask))
        lanes = self.masked_lanes(buffer)
        parts = [
            self._read(buffer, self._load_text(buffer, place, lanes, part))
            for place, part in self.cut(buffer, pointer, width, mask)
        ]
        kind = type_text(buffer.dtype, lanes, memory=True)
        return self._picked(parts, kind, list(range(width)))

    def masked_lanes(self, buffer: Buffer) -> int:
        """Elements of an access under a mask, at most."""
        return max(1, self.masked_bytes // ITEM_BYTES[buffer.dtype])

    def cut(
        self, buffer: Buffer, pointer: str, width: int, mask: str
    ) -> Iterator[tuple[str, str]]:
        """Where each part of a wide access begins, and its part of the mask."""
        item, lanes = type_text(buffer.dtype, 1, memory=True), self.masked_lanes(buffer)
        for start in range(0, width, lanes):
            place = f"getelementptr {item}, ptr {pointer}, i64 {start}"
            yield (
                self.text.once(place, place),
                self._picked([mask], f"<{width} x i1>", list(range(start, start + lanes))),
            )

    def _load_text(self, buffer: Buffer, pointer: str, width: int, mask: str | None) -> str:
        """The load of so many neighbours; zeros where there is a mask that is off."""
        kind = type_text(buffer.dtype, width, memory=True)
        align = ITEM_BYTES[buffer.dtype]
        if mask is None:
            return f"load {kind}, ptr {pointer}, align {align}"
        name = f"llvm.masked.load.{_memory_suffix(buffer.dtype, width)}.p0"
        flags = f"<{width} x i1>"
        self.text.declare(name, f"declare {kind} @{name}(ptr, i32, {flags}, {kind})")
        given = f"ptr {pointer}, i32 {align}, {flags} {mask}, {kind} zeroinitializer"
        return f"call {kind} @{name}({given})"

    def _mask_of(self, number: int, window: LaneWindow, loads: Cover) -> str:
        """The lanes' mask as one of the elements of a load, which are off where no lane takes
        them."""
        lanes = {at: lane for lane, (n, at) in enumerate(picks(window, loads)) if n == number}
        order = ", ".join(f"i32 {lanes.get(at, self.lanes)}" for at in range(loads.width))
        kind = f"<{self.lanes} x i1>"
        both = f"{kind} {self.mask}, {kind} zeroinitializer"
        text = f"shufflevector {both}, <{loads.width} x i32> <{order}>"
        return self.text.once(text, text)

    def _from_memory(self, name: str, dtype: str, lanes: int) -> Val:
        if dtype == "bool":
            kind = type_text("bool", lanes, memory=True)
            zero = "0" if lanes == 1 else "zeroinitializer"
            text = f"icmp ne {kind} {name}, {zero}"
            name = self.text.once(text, text)
        return Val(name, dtype, lanes)

    @contextmanager
    def one_lane(self, lane: int) -> Iterator[None]:
        """Write for one lane alone, as if the vector loop's variable were a constant."""
        lanes, mask = self.lanes, self.mask
        names = [v for v, now in self.env.items() if isinstance(now, Lane)]
        self.lanes, self.mask = 1, None
        self.env.update(dict.fromkeys(names, lane))
        yield
        self.lanes, self.mask = lanes, mask
        self.env.update(dict.fromkeys(names, Lane(lanes)))

    def insert(self, vector: Val, element: Val, lane: int) -> Val:
        """A vector with one lane replaced."""
        kind, item = type_text(vector.dtype, vector.lanes), type_text(vector.dtype, 1)
        text = f"insertelement {kind} {vector.text}, {item} {element.text}, i64 {lane}"
        return Val(self.text.emit(text), vector.dtype, vector.lanes)

    def each_lane(self, value: Index) -> list[Index]:
        """An index in every lane of the vector loop."""
        names = {v for v, now in self.env.items() if isinstance(now, Lane)}
        known = {v: now for v, now in self.env.items() if isinstance(now, int)}
        return lane_indices(value, names, self.lanes, known, self.ranges)

    def from_window(self, buffer: Buffer, window: LaneWindow, loads: Cover) -> Val:
        """Lanes at constant distances: what covers them is loaded, and shuffled."""
        first, dtype = self.linear(window.first), buffer.dtype
        kind = type_text(dtype, loads.width, memory=True)
        parts = []
        for number, start in enumerate(loads.starts):
            pointer = self.address(buffer, first._replace(const=first.const + start))
            mask = None if self.mask is None else self._mask_of(number, window, loads)
            parts.append(self._neighbours(buffer, pointer, loads.width, mask))
        if loads.width == 1:
            return self._from_memory(parts[0], dtype, 1)
        order: list[int | None] = [n * loads.width + at for n, at in picks(window, loads)]
        return self._from_memory(self._picked(parts, kind, order), dtype, self.lanes)

    def _picked(self, parts: list[str], kind: str, order: list[int | None]) -> str:
        """Lanes from vectors end to end, by shuffles of two at a time; None: any element."""
        if len(parts) <= 2:
            lanes = ", ".join("i32 poison" if i is None else f"i32 {i}" for i in order)
            second = parts[1] if len(parts) == 2 else "poison"
            mask = f"<{len(order)} x i32> <{lanes}>"
            text = f"shufflevector {kind} {parts[0]}, {kind} {second}, {mask}"
            return self.text.once(text, text)
        width, item = (w.strip("<>") for w in kind.split(" x "))
        limit, count = 2 * int(width), len(order)
        low = self._picked(parts[:2], kind, [i if i is not None and i < limit else None
                                             for i in order])  # fmt: skip
        high = self._picked(parts[2:], kind, [i - limit if i is not None and i >= limit else None
                                              for i in order])  # fmt: skip
        both: list[int | None] = [
            None if i is None else lane + (count if i >= limit else 0)
            for lane, i in enumerate(order)
        ]
        return self._picked([low, high], f"<{count} x {item}>", both)

    def _gather(self, value: Load, buffer: Buffer) -> Val:
        """Lanes that do not lie side by side: those of a window together, others one by one."""
        mask = self.mask
        window = window_of(self.each_lane(self.flat(buffer, value.indices)))
        loads = cover(window, self.lanes) if window else None
        if window and loads and (mask is None or takes_each_once(window, loads)):
            return self.from_window(buffer, window, loads)
        out = Val("poison" if mask is None else "zeroinitializer", buffer.dtype, self.lanes)
        places = {} if mask else self._together(value.indices)
        for lane in range(self.lanes):
            self.places = {atom: names[lane] for atom, names in places.items()}
            with self.one_lane(lane):
                if mask is None:
                    element = self._element(buffer, self.linear(self.flat(buffer, value.indices)))
                    out = self.insert(out, element, lane)
                else:
                    bit = self.text.emit(f"extractelement <{out.lanes} x i1> {mask}, i64 {lane}")
                    out = self._masked_lane(value, out, bit, lane)
        self.places = {}
        return out

    def _together(self, indices: tuple[Index, ...]) -> dict[LoadIndex, tuple[str, ...]]:
        """Indices that lie side by side in memory for the lanes, loaded and limited together."""
        out = {}
        for atom in (a for i in indices for a, _ in i.terms if isinstance(a, LoadIndex)):
            buffer = self.buffers[atom.buffer]
            plain = buffer.scope != "register" and not self.irregular(atom.indices)
            if plain and self.linear(self.flat(buffer, atom.indices)).lane == 1:
                vector, kind = self._within(atom, self.lanes), type_text("int64", self.lanes)
                out[atom] = tuple(
                    self.text.emit(f"extractelement {kind} {vector}, i64 {lane}")
                    for lane in range(self.lanes)
                )
        return out

    def _masked_lane(self, value: Load, out: Val, bit: str, lane: int) -> Val:
        """Insert a lane where its mask bit is set: a branch, so that nothing outside is read."""
        buffer, vector = self.buffers[value.buffer], type_text(out.dtype, out.lanes)
        before = self.text.block
        with self.text.when(bit):
            element = self._element(buffer, self.linear(self.flat(buffer, value.indices)))
            new = self.insert(out, element, lane)
            inside = self.text.block
        text = f"phi {vector} [ {out.text}, %{before} ], [ {new.text}, %{inside} ]"
        return Val(self.text.emit(text), out.dtype, out.lanes)

    def cell(self, buffer: Buffer, indices: tuple[Index, ...]) -> tuple[str, int]:
        """(pointer, lanes) of a register cell; the index must be constant, lanes aside."""
        offset = self.linear(self.flat(buffer, indices))
        if offset.terms or offset.lane not in (0, 1):
            raise BuildError(f"register buffer {buffer.name} is indexed by a loop not unrolled")
        lanes = self.lanes if offset.lane else 1
        key = (buffer.name, offset.const)
        if key not in self.cells:
            self.cells[key] = (self.text.cell(type_text(buffer.dtype, lanes)), lanes)
        cell, made = self.cells[key]
        if made != lanes:
            raise BuildError(
                f"register buffer {buffer.name} is used with {made} and {lanes} lanes"
            )
        return cell, lanes

    def loaded(self, atom: LoadIndex) -> Var:
        if atom in self.places:
            return Var(self.places[atom], -1)
        saved, self.lanes = self.lanes, 1
        name = self._within(atom, 1)
        self.lanes = saved
        return Var(name, -1)

    def _within(self, atom: LoadIndex, lanes: int) -> str:
        """An index, or one for each lane: from the end where it is negative, and then within."""
        value = self.convert(self.load(Load(atom.buffer, atom.indices)), "int64").text
        kind, flag = type_text("int64", lanes), type_text("bool", lanes)
        extent, least, most = (
            self.splat(Val(self.amount(n), "int64", 1), lanes).text
            for n in (atom.extent, 0, atom.extent - 1)
        )
        negative = self._pure_here(f"icmp slt {kind} {value}, {least}")
        wrapped = self._pure_here(f"add {kind} {value}, {extent}")
        i = self._pure_here(f"select {flag} {negative}, {kind} {wrapped}, {kind} {value}")
        for name, limit in (("smax", least), ("smin", most)):
            function = f"llvm.{name}.{suffix_text('int64', lanes)}"
            self.text.declare(function, f"declare {kind} @{function}({kind}, {kind})")
            i = self._pure_here(f"call {kind} @{function}({kind} {i}, {kind} {limit})")
        return i

    def _pure_here(self, text: str) -> str:
        return self.text.once(text, text)


def _memory_suffix(dtype: str, lanes: int) -> str:
    return f"v{lanes}i8" if dtype == "bool" else suffix_text(dtype, lanes)
