"""A model's entry that reads which kernels to call from a table, as LLVM text.

In: the entry's name, and drivers where they are numbers. Out: a function.

NAME(ptr table, i64 rows, i64 width, ptr bases): a row has `width` words: the address of a kernel's
driver NAME_run, how many arguments it has, then for each the number of a pointer in `bases` and a
distance in bytes from there. Rows are called in order, each with its own parallel region. Where
code has no addresses (WebAssembly), the first word is a number among drivers that are named.
"""

from __future__ import annotations

from collections.abc import Sequence

MOST_ARGUMENTS = 256
"""Params of a kernel that is called from a table."""


def table_text(symbol: str, drivers: Sequence[str] = ()) -> str:
    """The function. `drivers`: those that rows number; none: rows have addresses."""
    kernel, called = "load ptr, ptr %at", "  call void %kernel(ptr %args, i64 1)"
    if drivers:
        kernel, called = "load i64, ptr %at", _numbered(drivers)
    return f"""define void @{symbol}(ptr %table, i64 %rows, i64 %width, ptr %bases) nounwind {{
entry:
  %args = alloca [{MOST_ARGUMENTS} x ptr]
  br label %row
row:
  %i = phi i64 [ 0, %entry ], [ %next, %{"called" if drivers else "call"} ]
  %begin = mul i64 %i, %width
  %at = getelementptr i64, ptr %table, i64 %begin
  %kernel = {kernel}
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
{called}
  %next = add i64 %i, 1
  %others = icmp ult i64 %next, %rows
  br i1 %others, label %row, label %out
out:
  ret void
}}
"""


def _numbered(drivers: Sequence[str]) -> str:
    """A call of the driver that has the number."""
    cases = "\n".join(f"    i64 {n}, label %case{n}" for n in range(len(drivers)))
    calls = "\n".join(
        f"case{n}:\n  call void @{name}(ptr %args, i64 1)\n  br label %called"
        for n, name in enumerate(drivers)
    )
    return f"  switch i64 %kernel, label %called [\n{cases}\n  ]\n{calls}\ncalled:"
