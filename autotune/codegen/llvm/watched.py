"""A model's entry that runs only where words of memory are what they were, as LLVM text.

i64 NAME(ptr words, ptr entry, ptr bases): `words` is an i64, how many there are, and for each an
i64 that is its address and one that is its value, of 32 bits; it is null where there are none.
Where one has another value, the result is 0; otherwise `entry` is called with `bases` (not where
it is null), and the result is 1. Words may begin at any byte.
"""

from __future__ import annotations


def watched_text(symbol: str) -> str:
    return f"""define i64 @{symbol}(ptr %words, ptr %entry, ptr %bases) nounwind {{
begin:
  %nothing = icmp eq ptr %words, null
  br i1 %nothing, label %same, label %some
some:
  %count = load i64, ptr %words
  %bytes = shl i64 %count, 4
  %first = getelementptr i8, ptr %words, i64 8
  %end = getelementptr i8, ptr %first, i64 %bytes
  br label %head
head:
  %at = phi ptr [ %first, %some ], [ %next, %body ]
  %more = icmp ult ptr %at, %end
  br i1 %more, label %body, label %same
body:
  %address = load ptr, ptr %at
  %kept.at = getelementptr i8, ptr %at, i64 8
  %kept = load i32, ptr %kept.at
  %now = load i32, ptr %address, align 1
  %next = getelementptr i8, ptr %at, i64 16
  %equal = icmp eq i32 %now, %kept
  br i1 %equal, label %head, label %changed
same:
  %none = icmp eq ptr %entry, null
  br i1 %none, label %done, label %run
run:
  call void %entry(ptr %bases)
  br label %done
done:
  ret i64 1
changed:
  ret i64 0
}}
"""
