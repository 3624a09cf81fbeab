"""A model's entry that reads which kernels to call from a table, as LLVM text.

In: the entry's name, and drivers where they are numbers. Out: a function.

NAME(ptr table, i64 rows, i64 width, ptr bases): a row has `width` words: the address of a kernel's
driver NAME_run, how many arguments it has, then for each the number of a pointer in `bases` and a
distance in bytes from there. Rows are called in order, each with its own parallel region. Where
code has no addresses (WebAssembly), the first word is a number among drivers that are named.

Three words stand for no driver. Of arguments in pairs, PLACED makes pointers: the one that the
second names points to where the first does, all of them at once. SKIPPED goes on behind as many
rows as its second distance says where its first is 0. REPEATED goes back by as many rows as its
second distance says, until those between have been called as often as its first says; its third
one counts the repeats that it lies in.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.codegen.base import CONTROL, PLACED, REPEATED, SKIPPED

MOST_ARGUMENTS = 256
"""Params of a kernel that is called from a table."""
MOST_NESTED = 8
"""Repeats inside of one another."""


def table_text(symbol: str, drivers: Sequence[str] = ()) -> str:
    """The function. `drivers`: those that rows number; none: rows have addresses."""
    words = CONTROL if not drivers else {n: k for k, n in enumerate(drivers) if n in CONTROL}
    cases = " ".join(
        f"i64 {words[name]}, label %{label}"
        for name, label in ((PLACED, "places"), (REPEATED, "again"), (SKIPPED, "unless"))
        if name in words
    )
    called = _numbered(drivers) if drivers else _ADDRESSED
    return f"""define void @{symbol}(ptr %table, i64 %rows, i64 %width, ptr %bases) nounwind {{
entry:
  %args = alloca [{MOST_ARGUMENTS} x ptr]
  %trips = alloca [{MOST_NESTED} x i64]
  store [{MOST_NESTED} x i64] zeroinitializer, ptr %trips
  br label %row
row:
  %i = phi i64 [ 0, %entry ], [ %next, %done ]
  %begin = mul i64 %i, %width
  %at = getelementptr i64, ptr %table, i64 %begin
  %kernel = load i64, ptr %at
  %second = getelementptr i64, ptr %at, i64 1
  %many = load i64, ptr %second
  %first = getelementptr i64, ptr %at, i64 2
  br label %argument
argument:
  %k = phi i64 [ 0, %row ], [ %following, %argument ]
  %pair = shl i64 %k, 1
  %where = getelementptr i64, ptr %first, i64 %pair
  %number = load i64, ptr %where
  %beside = getelementptr i64, ptr %where, i64 1
  %distance = load i64, ptr %beside
  %slot = getelementptr ptr, ptr %bases, i64 %number
  %base = load ptr, ptr %slot
  %pointer = getelementptr i8, ptr %base, i64 %distance
  %place = getelementptr ptr, ptr %args, i64 %k
  store ptr %pointer, ptr %place
  %following = add i64 %k, 1
  %more = icmp ult i64 %following, %many
  br i1 %more, label %argument, label %call
call:
  switch i64 %kernel, label %driver [ {cases} ]
driver:
{called}
{_CONTROLLED}  br label %done
done:
  %next = phi i64 [ %behind, %called ], [ %past, %places ], [ %to, %again ], [ %on, %unless ]
  %others = icmp ult i64 %next, %rows
  br i1 %others, label %row, label %out
out:
  ret void
}}
"""


_ADDRESSED = """\
  %known = inttoptr i64 %kernel to ptr
  call void %known(ptr %args, i64 1)
  br label %called
called:"""
"""A call of the driver that has the address."""
_CONTROLLED = """\
  %behind = add i64 %i, 1
  br label %done
places:
  %p = phi i64 [ 0, %call ], [ %beyond, %places ]
  %from = getelementptr ptr, ptr %args, i64 %p
  %target = load ptr, ptr %from
  %twice = shl i64 %p, 1
  %third = getelementptr i64, ptr %first, i64 %twice
  %fourth = getelementptr i64, ptr %third, i64 2
  %named = load i64, ptr %fourth
  %moved = getelementptr ptr, ptr %bases, i64 %named
  store ptr %target, ptr %moved
  %beyond = add i64 %p, 2
  %past = add i64 %i, 1
  %left = icmp ult i64 %beyond, %many
  br i1 %left, label %places, label %done
again:
  %often = getelementptr i64, ptr %first, i64 1
  %wanted = load i64, ptr %often
  %far = getelementptr i64, ptr %first, i64 3
  %back = load i64, ptr %far
  %inside = getelementptr i64, ptr %first, i64 5
  %depth = load i64, ptr %inside
  %counter = getelementptr i64, ptr %trips, i64 %depth
  %trip = load i64, ptr %counter
  %made = add i64 %trip, 1
  %further = icmp ult i64 %made, %wanted
  %counted = select i1 %further, i64 %made, i64 0
  store i64 %counted, ptr %counter
  %return = sub i64 %i, %back
  %onward = add i64 %i, 1
  %to = select i1 %further, i64 %return, i64 %onward
  br label %done
unless:
  %times = getelementptr i64, ptr %first, i64 1
  %some = load i64, ptr %times
  %ahead = getelementptr i64, ptr %first, i64 3
  %over = load i64, ptr %ahead
  %none = icmp eq i64 %some, 0
  %jump = select i1 %none, i64 %over, i64 0
  %begun = add i64 %i, 1
  %on = add i64 %begun, %jump
"""
"""The row behind a call; pointers that are made; going back; going on behind others."""


def _numbered(drivers: Sequence[str]) -> str:
    """A call of the driver that has the number."""
    known = [(n, name) for n, name in enumerate(drivers) if name not in CONTROL]
    cases = "\n".join(f"    i64 {n}, label %case{n}" for n, _ in known)
    calls = "\n".join(
        f"case{n}:\n  call void @{name}(ptr %args, i64 1)\n  br label %called" for n, name in known
    )
    return f"  switch i64 %kernel, label %called [\n{cases}\n  ]\n{calls}\ncalled:"
