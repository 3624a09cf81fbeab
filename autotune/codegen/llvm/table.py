"""A model's entry that reads which kernels to call from a table, as LLVM text.

NAME(ptr table, i64 rows, i64 width, ptr bases): a row has `width` words: the address of a kernel's
driver NAME_run, how many arguments it has, then for each the number of a pointer in `bases` and a
distance in bytes from there. Rows are called in order, each with its own parallel region.
"""

from __future__ import annotations

MOST_ARGUMENTS = 256
"""Params of a kernel that is called from a table."""


def table_text(symbol: str) -> str:
    return f"""define void @{symbol}(ptr %table, i64 %rows, i64 %width, ptr %bases) nounwind {{
entry:
  %args = alloca [{MOST_ARGUMENTS} x ptr]
  br label %row
row:
  %i = phi i64 [ 0, %entry ], [ %next, %call ]
  %begin = mul i64 %i, %width
  %at = getelementptr i64, ptr %table, i64 %begin
  %kernel = load ptr, ptr %at
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
  call void %kernel(ptr %args, i64 1)
  %next = add i64 %i, 1
  %others = icmp ult i64 %next, %rows
  br i1 %others, label %row, label %out
out:
  ret void
}}
"""
