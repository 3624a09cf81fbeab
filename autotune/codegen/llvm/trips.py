"""A loop around a model's entry, as LLVM text.

i64 NAME(ptr entry, ptr bases, i64 trips, ptr counter, i64 going, ptr plan): calls `entry` with
`bases` up to `trips` times (at least once), and gives how often; as a negative number if the last
trip said that it is the last. `entry` has four words: the code, and table, rows and width of a
program for any sizes, which it takes before `bases`; width is 0 where there is no table. `counter`
is an i64 that goes up with every trip; `going` the number of the pointer in `bases` to a byte that
is 0 after the last trip, or -1.

`plan` has three lists of i64, each behind its length, for after a trip: (from, to, bytes) is
copied between two of `bases`, then (one, other) of them change places, then (which, bytes) move.
What a trip made becomes what the next one takes, and rows lie side by side, no Python between.
"""

from __future__ import annotations

CHUNK_BYTES = 64
"""Bytes that a copy moves at a time, as long as there are so many."""


def trips_text(symbol: str) -> str:
    return f"""define i64 @{symbol}(ptr %entry, ptr %bases, i64 %trips, ptr %counter, i64 %going,
    ptr %plan) nounwind {{
begin:
  %code = load ptr, ptr %entry
  %table.at = getelementptr ptr, ptr %entry, i64 1
  %table = load ptr, ptr %table.at
  %rows.at = getelementptr i64, ptr %entry, i64 2
  %rows = load i64, ptr %rows.at
  %width.at = getelementptr i64, ptr %entry, i64 3
  %width = load i64, ptr %width.at
  %tabled = icmp ne i64 %width, 0
  %asks = icmp sge i64 %going, 0
  br label %trip
trip:
  %i = phi i64 [ 0, %begin ], [ %next, %again ]
  br i1 %tabled, label %by.table, label %by.itself
by.table:
  call void %code(ptr %table, i64 %rows, i64 %width, ptr %bases)
  br label %made
by.itself:
  call void %code(ptr %bases)
  br label %made
made:
  %next = add i64 %i, 1
  br i1 %asks, label %ask, label %asked
ask:
  %flag.at = getelementptr ptr, ptr %bases, i64 %going
  %flag.pointer = load ptr, ptr %flag.at
  %flag = load i8, ptr %flag.pointer
  %set = icmp ne i8 %flag, 0
  br label %asked
asked:
  %on = phi i1 [ true, %made ], [ %set, %ask ]
  br label %copy
{_list("copy", "%plan", 3, _COPY, "copied")}
{_list("swap", "%copy.at", 2, _SWAP, "swap.body")}
{_list("move", "%swap.at", 2, _MOVE, "move.body")}
  %count = load i64, ptr %counter
  %counted = add i64 %count, 1
  store i64 %counted, ptr %counter
  br i1 %on, label %again, label %last
again:
  %others = icmp slt i64 %next, %trips
  br i1 %others, label %trip, label %out
out:
  ret i64 %next
last:
  %negative = sub i64 0, %next
  ret i64 %negative
}}
"""


def _list(name: str, begin: str, words: int, body: str, end: str) -> str:
    """`body` for every entry of a list of the plan at `begin`, which gets the entry's first two
    words, and the pointer that the first one names; `end` is the block that it ends in."""
    return f"""{name}:
  %{name}.length = load i64, ptr {begin}
  %{name}.first = getelementptr i64, ptr {begin}, i64 1
  br label %{name}.head
{name}.head:
  %{name}.k = phi i64 [ 0, %{name} ], [ %{name}.next, %{end} ]
  %{name}.at = phi ptr [ %{name}.first, %{name} ], [ %{name}.after, %{end} ]
  %{name}.more = icmp slt i64 %{name}.k, %{name}.length
  br i1 %{name}.more, label %{name}.body, label %{name}.end
{name}.body:
  %{name}.next = add i64 %{name}.k, 1
  %{name}.after = getelementptr i64, ptr %{name}.at, i64 {words}
  %{name}.number = load i64, ptr %{name}.at
  %{name}.slot = getelementptr ptr, ptr %bases, i64 %{name}.number
  %{name}.pointer = load ptr, ptr %{name}.slot
  %{name}.beside = getelementptr i64, ptr %{name}.at, i64 1
  %{name}.second = load i64, ptr %{name}.beside
{body}
  br label %{name}.head
{name}.end:
  br label %{_AFTER[name]}""" + (f"\n{_AFTER[name]}:" if name == "move" else "")


_AFTER = {"copy": "swap", "swap": "move", "move": "counting"}
_COPY = f"""  %to.slot = getelementptr ptr, ptr %bases, i64 %copy.second
  %to = load ptr, ptr %to.slot
  %bytes.at = getelementptr i64, ptr %copy.at, i64 2
  %bytes = load i64, ptr %bytes.at
  br label %chunk
chunk:
  %chunk.begin = phi i64 [ 0, %copy.body ], [ %chunk.end, %chunk.body ]
  %chunk.end = add i64 %chunk.begin, {CHUNK_BYTES}
  %chunk.fits = icmp sle i64 %chunk.end, %bytes
  br i1 %chunk.fits, label %chunk.body, label %byte
chunk.body:
  %chunk.from = getelementptr i8, ptr %copy.pointer, i64 %chunk.begin
  %chunk.to = getelementptr i8, ptr %to, i64 %chunk.begin
  %chunk.value = load <{CHUNK_BYTES} x i8>, ptr %chunk.from, align 1
  store <{CHUNK_BYTES} x i8> %chunk.value, ptr %chunk.to, align 1
  br label %chunk
byte:
  %byte.begin = phi i64 [ %chunk.begin, %chunk ], [ %byte.end, %byte.body ]
  %byte.more = icmp slt i64 %byte.begin, %bytes
  br i1 %byte.more, label %byte.body, label %copied
byte.body:
  %byte.from = getelementptr i8, ptr %copy.pointer, i64 %byte.begin
  %byte.to = getelementptr i8, ptr %to, i64 %byte.begin
  %byte.value = load i8, ptr %byte.from
  store i8 %byte.value, ptr %byte.to
  %byte.end = add i64 %byte.begin, 1
  br label %byte
copied:"""
_SWAP = """  %other.slot = getelementptr ptr, ptr %bases, i64 %swap.second
  %other = load ptr, ptr %other.slot
  store ptr %other, ptr %swap.slot
  store ptr %swap.pointer, ptr %other.slot"""
_MOVE = """  %moved = getelementptr i8, ptr %move.pointer, i64 %move.second
  store ptr %moved, ptr %move.slot"""
