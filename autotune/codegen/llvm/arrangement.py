"""A program for any sizes arranged for some, as LLVM text: which lines of its table are called,
and where in one block of memory values and workspaces lie.

void NAME(ptr counts, ptr given, ptr values, ptr table, ptr scratch): `given` has the words that
`GIVEN` names. Rows are worked out of `counts` into `values`. Of a call's lines the one that is
predicted to take least is chosen, of nearly equal ones that which works in less memory, and copied
into `table` with its distances. Blocks, and what the chosen lines work in, are placed as
`autotune.placement.memory_plan` places them: in a few orders, each in the smallest gap that holds
it, until no more memory is taken than is alive at once. Rows of where blocks begin are moved
there; where nothing is gained, blocks stay as they are stacked, and workspaces lie above them. The
last row gets the bytes of all.
"""

from __future__ import annotations

from autotune.codegen.llvm.amounts import ALIGNED
from autotune.codegen.llvm.routine import Routine

GIVEN = (
    "amounts", "rows", "calls", "choices", "lines", "strips", "seconds", "limits", "extents",
    "lengths", "works", "width", "words", "filled", "numbers", "blocks", "first", "last", "starts",
    "sizes", "sized", "moves", "moved", "workspace",
)  # fmt: skip
"""Words of `given`: addresses of functions and arrays, and lengths. By call: in `lines` its
`choices` lines, in `numbers` what lives are counted in, or -1 where there is no workspace. By
line: `strips`, `seconds`, `works` (rows of bytes), `extents` and `lengths` of its `limits`,
`words`, and in `filled`, by argument, the row of its distance. By block: `first` and `last` number
of its life, in `starts` the row of where it is stacked. Pairs: in `sized` `sizes` of block and
row, in `moved` `moves` of row and block. `workspace`: the number of the pointer to workspaces."""
SCRATCH_ARRAYS = 9
"""Arrays of a word by block and by call."""
PROMOTIONS = 4
"""Orders that are tried after each of the two first ones."""
CLOSE = 64
"""Divisor of the bytes alive at once that gives what a plan may take beyond them."""
CROWDING = 0.03125
"""Share of its time that a line counts longer if it works in as much memory as all values take, or
more: predictions are not better than that (chosen)."""
_LIFE_BITS = 46
"""Bits of a key below those of how long a block lives: its bytes."""
_MOST = (1 << 62) - 1
_INFINITE = "0x7FF0000000000000"


def arrangement_text(symbol: str) -> str:
    """The function."""
    head = f"define void @{symbol}(ptr %counts, ptr %given, ptr %values, ptr %table, ptr %scratch)"
    f = Routine(f"{head} nounwind")
    _Arrangement(f).write()
    return "\n".join([*f.lines(), ""])


def nearest_text(symbol: str) -> str:
    """i64 NAME(ptr points, ptr wanted, i64 count, i64 width): which of `count` points of `width`
    doubles is nearest to the one that is wanted, the first of several."""
    f = Routine(f"define i64 @{symbol}(ptr %points, ptr %wanted, i64 %count, i64 %width) nounwind")
    nearest, least = f.local(0), f.local(_INFINITE, "double")
    with f.times("%count") as number:
        point = f.place("%points", f.value(f"mul i64 {number}, %width"))
        far = f.local("0.0", "double")
        with f.times("%width") as axis:
            one, other = (f.load(at, axis, "double") for at in (point, "%wanted"))
            apart = f.value(f"fsub double {one}, {other}")
            square = f.value(f"fmul double {apart}, {apart}")
            f.store(
                f.value(f"fadd double {f.load(far, kind='double')}, {square}"), far, kind="double"
            )
        found = f.load(far, kind="double")
        with f.when(f.value(f"fcmp olt double {found}, {f.load(least, kind='double')}")):
            f.store(found, least, kind="double")
            f.store(number, nearest)
    f.give(f"i64 {f.load(nearest)}")
    return "\n".join([*f.lines(), ""])


class _Arrangement:
    """The function in the making."""

    def __init__(self, f: Routine) -> None:
        self._f = f
        self._given = {name: f.load("%given", n) for n, name in enumerate(GIVEN)}
        self._at = {n: f.value(f"inttoptr i64 {word} to ptr") for n, word in self._given.items()}
        room = f.value(f"add i64 {self._given['blocks']}, {self._given['calls']}")
        (
            self._size, self._first, self._last, self._start, self._stop, self._order,
            self._sorted, self._best, self._key,
        ) = (
            f.place("%scratch", f.value(f"mul i64 {room}, {number}"))
            for number in range(SCRATCH_ARRAYS)
        )  # fmt: skip
        self._blocks = f.local(self._given["blocks"])
        self._total = f.local(0)
        """Bytes of the order that was placed last."""
        self._least = f.local(_MOST)
        """Bytes of the best one."""

    def write(self) -> None:
        f, given = self._f, self._given
        f.do(f"call void {self._at['amounts']}(ptr %counts, ptr %values)")
        works = self._choose()
        self._blocks_here()
        end = f.load("%values", given["rows"])
        apart = f.value(f"add i64 {end}, {f.load(works)}")
        alive = self._alive_at_once()
        goal = f.value(f"add i64 {alive}, {f.value(f'udiv i64 {alive}, {CLOSE}')}")
        for by_life in (False, True):
            self._sort(by_life)
            with f.times(1 + PROMOTIONS):
                self._try(goal)
        inside = f.value(f"icmp ult i64 {f.load(self._least)}, {apart}")
        self._move(inside)
        total = f.value(f"select i1 {inside}, i64 {f.load(self._least)}, i64 {apart}")
        f.store(total, "%values", given["rows"])
        self._fill(inside, end)
        f.give("void")

    def _try(self, goal: str) -> None:
        """Place blocks once more, where they take more than the goal."""
        f = self._f
        with f.when(f.value(f"icmp ugt i64 {f.load(self._least)}, {goal}")):
            self._place()
            self._keep()
            self._promote()

    # --------------------------------------------------------------------------------- the calls

    def _choose(self) -> str:
        """Numbers of the chosen lines, into the table's first words; what works in memory becomes
        a block. Gives the variable of the most bytes that one works in."""
        f, given, at = self._f, self._given, self._at
        works = f.local(0)
        with f.times(given["calls"]) as call:
            several = f.place(at["lines"], f.value(f"mul i64 {call}, {given['choices']}"))
            chosen = f.local(f.load(several))
            least = f.local(_INFINITE, "double")
            with f.times(given["choices"]) as number:
                line = f.load(several, number)
                strips = f.load("%values", f.load(at["strips"], line))
                each = f.load(at["seconds"], line, "double")
                many = f.value(f"sitofp i64 {strips} to double")
                alone = f.value(f"fmul double {many}, {each}")
                cost = f.value(f"fmul double {alone}, {self._crowding(line)}")
                with f.when(f.value(f"fcmp olt double {cost}, {f.load(least, kind='double')}")):
                    fits = self._fits(line)
                    with f.when(f.value(f"icmp ne i64 {f.load(fits)}, 0")):
                        f.store(cost, least, kind="double")
                        f.store(line, chosen)
            line = f.load(chosen)
            f.store(line, "%table", f.value(f"mul i64 {call}, {given['width']}"))
            nbytes = _aligned(f, f.load("%values", f.load(at["works"], line)))
            with f.when(f.value(f"icmp sgt i64 {nbytes}, {f.load(works)}")):
                f.store(nbytes, works)
            life = f.load(at["numbers"], call)
            wanted = f.value(f"icmp sgt i64 {nbytes}, 0")
            counted = f.value(f"icmp sge i64 {life}, 0")
            with f.when(f.value(f"and i1 {wanted}, {counted}")):
                block = f.load(self._blocks)
                f.store(nbytes, self._size, block)
                f.store(life, self._first, block)
                f.store(life, self._last, block)
                f.store(f.value(f"add i64 {block}, 1"), self._blocks)
        return works

    def _crowding(self, line: str) -> str:
        """How much longer a line counts for what it works in."""
        f = self._f
        nbytes = f.load("%values", f.load(self._at["works"], line))
        values = f.load("%values", self._given["rows"])
        less = f.value(f"icmp slt i64 {nbytes}, {values}")
        counted = f.value(f"select i1 {less}, i64 {nbytes}, i64 {values}")
        some = f.value(f"icmp sgt i64 {values}, 1")
        whole = f.value(f"select i1 {some}, i64 {values}, i64 1")
        share = f.value(
            f"fdiv double {f.value(f'sitofp i64 {counted} to double')}, "
            f"{f.value(f'sitofp i64 {whole} to double')}"
        )
        more = f.value(f"fmul double {share}, {CROWDING}")
        return f.value(f"fadd double {more}, 1.0")

    def _fits(self, line: str) -> str:
        """The variable that is 0 where an extent is shorter than the line's strip."""
        f, limits = self._f, self._given["limits"]
        fits = f.local(1)
        begin = f.value(f"mul i64 {line}, {limits}")
        with f.times(limits) as number:
            place = f.value(f"add i64 {begin}, {number}")
            extent = f.load("%values", f.load(self._at["extents"], place))
            length = f.load(self._at["lengths"], place)
            with f.when(f.value(f"icmp slt i64 {extent}, {length}")):
                f.store(0, fits)
        return fits

    def _fill(self, inside: str, end: str) -> None:
        """The chosen lines with their distances. `inside`: whether workspaces are among the
        blocks, in order behind the others; else they begin at `end`."""
        f, given, at = self._f, self._given, self._at
        block = f.local(given["blocks"])
        width = given["width"]
        many = f.value(f"lshr i64 {f.value(f'sub i64 {width}, 2')}, 1")
        with f.times(given["calls"]) as call:
            row = f.place("%table", f.value(f"mul i64 {call}, {width}"))
            line = f.load(row)
            words = f.place(at["words"], f.value(f"mul i64 {line}, {width}"))
            filled = f.place(at["filled"], f.value(f"mul i64 {line}, {many}"))
            with f.times(width) as number:  # the table runs on words behind the arguments, too
                f.store(f.load(words, number), row, number)
            works = f.local(end)
            nbytes = f.load("%values", f.load(at["works"], line))
            wanted = f.value(f"icmp sgt i64 {nbytes}, 0")
            counted = f.value(f"icmp sge i64 {f.load(at['numbers'], call)}, 0")
            with f.when(f.value(f"and i1 {wanted}, {counted}")):
                own = f.load(block)
                with f.when(inside):
                    f.store(f.load(self._best, own), works)
                f.store(f.value(f"add i64 {own}, 1"), block)
            with f.times(f.load(words, 1)) as argument:
                pair = f.value(f"add i64 {f.value(f'shl i64 {argument}, 1')}, 2")
                behind = f.value(f"add i64 {pair}, 1")
                base = f.load(words, pair)
                distance = f.load("%values", f.load(filled, argument))
                own_block = f.value(f"icmp eq i64 {base}, {given['workspace']}")
                f.store(
                    f.value(f"select i1 {own_block}, i64 {f.load(works)}, i64 {distance}"),
                    row, behind,
                )  # fmt: skip

    # -------------------------------------------------------------------------------- the memory

    def _blocks_here(self) -> None:
        """Bytes and lives of the blocks at these sizes."""
        f, given, at = self._f, self._given, self._at
        with f.times(given["blocks"]) as block:
            f.store(0, self._size, block)
            f.store(f.load(at["first"], block), self._first, block)
            f.store(f.load(at["last"], block), self._last, block)
        with f.times(given["sizes"]) as number:
            block, nbytes = self._pair("sized", number)
            size = f.load("%values", nbytes)
            with f.when(f.value(f"icmp sgt i64 {size}, {f.load(self._size, block)}")):
                f.store(size, self._size, block)

    def _pair(self, name: str, number: str) -> tuple[str, str]:
        f = self._f
        pair = f.place(self._at[name], f.value(f"shl i64 {number}, 1"))
        return f.load(pair), f.load(pair, 1)

    def _meet(self, block: str, first: str, last: str) -> str:
        """Whether a block lives between these."""
        f = self._f
        begun = f.value(f"icmp sle i64 {f.load(self._first, block)}, {last}")
        there = f.value(f"icmp sge i64 {f.load(self._last, block)}, {first}")
        return f.value(f"and i1 {begun}, {there}")

    def _alive_at_once(self) -> str:
        """Bytes that are alive in the fullest call: no plan takes less."""
        f = self._f
        most, blocks = f.local(0), f.load(self._blocks)
        with f.times(blocks) as block:
            begin, alive = f.load(self._first, block), f.local(0)
            with f.times(blocks) as other:
                meets = self._meet(other, begin, begin)
                size = f.value(f"select i1 {meets}, i64 {f.load(self._size, other)}, i64 0")
                f.store(f.value(f"add i64 {f.load(alive)}, {size}"), alive)
            with f.when(f.value(f"icmp ugt i64 {f.load(alive)}, {f.load(most)}")):
                f.store(f.load(alive), most)
        return f.load(most)

    def _sort(self, by_life: bool) -> None:
        """The blocks in order, the largest first, or those that live longest."""
        f = self._f
        with f.times(f.load(self._blocks)) as block:
            key = f.load(self._size, block)
            if by_life:
                last, first = f.load(self._last, block), f.load(self._first, block)
                life = f.value(f"shl i64 {f.value(f'sub i64 {last}, {first}')}, {_LIFE_BITS}")
                key = f.value(f"or i64 {life}, {key}")
            f.store(key, self._key, block)
            self._put(block, self._order, block, self._key, "uge")

    def _put(self, block: str, array: str, length: str, keys: str, before: str) -> None:
        """Put a block into an ordered array, behind those whose key compares so with its own."""
        f = self._f
        key, place = f.load(keys, block), f.local(0)
        with f.times(length) as number:
            other = f.load(keys, f.load(array, number))
            ahead = f.value(f"zext i1 {f.value(f'icmp {before} i64 {other}, {key}')} to i64")
            f.store(f.value(f"add i64 {f.load(place)}, {ahead}"), place)
        self._insert(array, length, f.load(place), block)

    def _insert(self, array: str, length: str, place: str, value: str) -> None:
        """Put a value at its place in an array of a length, those behind it one further."""
        f = self._f
        with f.times(f.value(f"sub i64 {length}, {place}")) as number:
            to = f.value(f"sub i64 {length}, {number}")
            f.store(f.load(array, f.value(f"sub i64 {to}, 1")), array, to)
        f.store(value, array, place)

    def _place(self) -> None:
        """The blocks in order, each in the smallest gap that holds it, or behind all that it
        meets."""
        f = self._f
        f.store(0, self._total)
        with f.times(f.load(self._blocks)) as number:
            block = f.load(self._order, number)
            size = f.load(self._size, block)
            first, last = f.load(self._first, block), f.load(self._last, block)
            end, best, smallest = f.local(0), f.local(-1), f.local(_MOST)
            with f.times(number) as before:
                other = f.load(self._sorted, before)
                with f.when(self._meet(other, first, last)):
                    gap = f.value(f"sub i64 {f.load(self._start, other)}, {f.load(end)}")
                    holds = f.value(f"icmp sge i64 {gap}, {size}")
                    smaller = f.value(f"icmp slt i64 {gap}, {f.load(smallest)}")
                    with f.when(f.value(f"and i1 {holds}, {smaller}")):
                        f.store(gap, smallest)
                        f.store(f.load(end), best)
                    stop = f.load(self._stop, other)
                    with f.when(f.value(f"icmp sgt i64 {stop}, {f.load(end)}")):
                        f.store(stop, end)
            found = f.load(best)
            none = f.value(f"icmp slt i64 {found}, 0")
            start = f.value(f"select i1 {none}, i64 {f.load(end)}, i64 {found}")
            stop = f.value(f"add i64 {start}, {size}")
            f.store(start, self._start, block)
            f.store(stop, self._stop, block)
            with f.when(f.value(f"icmp ugt i64 {stop}, {f.load(self._total)}")):
                f.store(stop, self._total)
            self._put(block, self._sorted, number, self._start, "sle")

    def _keep(self) -> None:
        """Remember where blocks begin, where they take less than before."""
        f = self._f
        total = f.load(self._total)
        with f.when(f.value(f"icmp ult i64 {total}, {f.load(self._least)}")):
            f.store(total, self._least)
            with f.times(f.load(self._blocks)) as block:
                f.store(f.load(self._start, block), self._best, block)

    def _promote(self) -> None:
        """The block that ends last is placed first the next time."""
        f = self._f
        at = f.local(0)
        with f.times(f.load(self._blocks)) as number:
            stop = f.load(self._stop, f.load(self._order, number))
            with f.when(f.value(f"icmp eq i64 {stop}, {f.load(self._total)}")):
                f.store(number, at)
        place = f.load(at)
        block = f.load(self._order, place)
        self._insert(self._order, place, "0", block)

    def _move(self, inside: str) -> None:
        """Rows of what lies in blocks, to where these are placed."""
        f, given = self._f, self._given
        with f.when(inside):
            with f.times(given["blocks"]) as block:
                stacked = f.load("%values", f.load(self._at["starts"], block))
                far = f.value(f"sub i64 {f.load(self._best, block)}, {stacked}")
                f.store(far, self._start, block)
            with f.times(given["moves"]) as number:
                row, block = self._pair("moved", number)
                value = f.value(f"add i64 {f.load('%values', row)}, {f.load(self._start, block)}")
                f.store(value, "%values", row)


def _aligned(f: Routine, nbytes: str) -> str:
    more = f.value(f"add i64 {nbytes}, {ALIGNED - 1}")
    return f.value(f"and i64 {more}, {-ALIGNED}")
