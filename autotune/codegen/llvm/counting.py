"""Kernels that say how much they found, as LLVM text: what they write to has room for all.

i64 positions_T(ptr x, i64 n, ptr out): the places of the elements of type T that are not 0, in
order; gives their number.

i64 suppress(ptr corners, ptr group, ptr box, i64 n, float limit, i64 most, ptr kept, i64 room,
ptr out): greedy suppression (Neubeck and Van Gool 2006) of n candidates that are sorted by group,
and by score within one: a candidate stays unless one that stayed before it in its group, `most` at
most, overlaps it by more than `limit` of what both cover. `corners` [., 4] are the boxes' least
and greatest coordinates, of which a candidate has row `box`; `kept` is room to work in, five rows
of `room` floats, a multiple of LANES. Writes the numbers of those that stay, and gives how many.
"""

from __future__ import annotations

LANES = 16
"""Boxes that a candidate is compared with at a time."""
_BLOCK = 32
"""Elements that are looked at together, as the bits of a word."""
ELEMENTS = {"i8": "0", "i16": "0", "i32": "0", "i64": "0", "float": "0.0", "double": "0.0"}
"""Types that there are positions of -> their zero."""
_SIDES = ("y1", "x1", "y2", "x2")


def counting_text() -> str:
    """The module of all these functions."""
    return "\n".join([*map(_positions, ELEMENTS), _suppress(), _DECLARED])


def _positions(kind: str) -> str:
    zero, compare = ELEMENTS[kind], "icmp ne" if kind.startswith("i") else "fcmp une"
    return f"""define i64 @positions_{kind}(ptr %x, i64 %n, ptr %out) nounwind {{
begin:
  br label %block
block:
  %i = phi i64 [ 0, %begin ], [ %end, %skip ], [ %end, %bit ]
  %count = phi i64 [ 0, %begin ], [ %count, %skip ], [ %counted, %bit ]
  %end = add i64 %i, {_BLOCK}
  %fits = icmp sle i64 %end, %n
  br i1 %fits, label %whole, label %rest
whole:
  %at = getelementptr {kind}, ptr %x, i64 %i
  %values = load <{_BLOCK} x {kind}>, ptr %at, align 1
  %set = {compare} <{_BLOCK} x {kind}> %values, zeroinitializer
  %word = bitcast <{_BLOCK} x i1> %set to i{_BLOCK}
  %none = icmp eq i{_BLOCK} %word, 0
  br i1 %none, label %skip, label %bit
skip:
  br label %block
bit:
  %left = phi i{_BLOCK} [ %word, %whole ], [ %less, %bit ]
  %k = phi i64 [ %count, %whole ], [ %counted, %bit ]
  %first = call i{_BLOCK} @llvm.cttz.i{_BLOCK}(i{_BLOCK} %left, i1 true)
  %wide = zext i{_BLOCK} %first to i64
  %place = add i64 %i, %wide
  %to = getelementptr i64, ptr %out, i64 %k
  store i64 %place, ptr %to
  %counted = add i64 %k, 1
  %under = sub i{_BLOCK} %left, 1
  %less = and i{_BLOCK} %left, %under
  %more = icmp ne i{_BLOCK} %less, 0
  br i1 %more, label %bit, label %block
rest:
  %r = phi i64 [ %i, %block ], [ %r.next, %one ]
  %r.count = phi i64 [ %count, %block ], [ %r.counted, %one ]
  %r.more = icmp slt i64 %r, %n
  br i1 %r.more, label %one, label %done
one:
  %r.at = getelementptr {kind}, ptr %x, i64 %r
  %r.value = load {kind}, ptr %r.at, align 1
  %r.set = {compare} {kind} %r.value, {zero}
  %r.to = getelementptr i64, ptr %out, i64 %r.count
  store i64 %r, ptr %r.to
  %r.step = zext i1 %r.set to i64
  %r.counted = add i64 %r.count, %r.step
  %r.next = add i64 %r, 1
  br label %rest
done:
  ret i64 %r.count
}}"""


def _suppress() -> str:
    wide = f"<{LANES} x float>"
    every = (*_SIDES, "area")
    lines = [
        "define i64 @suppress(ptr %corners, ptr %group, ptr %box, i64 %n, float %limit,",
        "    i64 %most, ptr %kept, i64 %room, ptr %out) nounwind {",
        "begin:",
        *_splat("limit", "%limit"),
        *(
            f"  %{side}.row = getelementptr float, ptr %kept, i64 %{side}.begin"
            if part
            else f"  %{side}.begin = mul i64 %room, {number}"
            for number, side in enumerate(every)
            for part in (0, 1)
        ),
        "  br label %candidate",
        "candidate:",
        "  %c = phi i64 [ 0, %begin ], [ %c.next, %after ]",
        "  %stayed = phi i64 [ 0, %begin ], [ %stayed.next, %after ]",
        "  %count.old = phi i64 [ 0, %begin ], [ %count.next, %after ]",
        "  %group.old = phi i64 [ -1, %begin ], [ %group.now, %after ]",
        "  %more = icmp slt i64 %c, %n",
        "  br i1 %more, label %look, label %done",
        "look:",
        "  %group.at = getelementptr i64, ptr %group, i64 %c",
        "  %group.now = load i64, ptr %group.at",
        "  %same = icmp eq i64 %group.now, %group.old",
        "  %count = select i1 %same, i64 %count.old, i64 0",
        "  %full = icmp sge i64 %count, %most",
        "  br i1 %full, label %after, label %read",
        "read:",
        "  %box.at = getelementptr i64, ptr %box, i64 %c",
        "  %row = load i64, ptr %box.at",
        *(line for number, side in enumerate(_SIDES) for line in _side(number, side)),
        "  %height = fsub float %y2, %y1",
        "  %width = fsub float %x2, %x1",
        "  %area = fmul float %height, %width",
        *_splat("area", "%area"),
        "  br label %others",
        "others:",
        "  %j = phi i64 [ 0, %read ], [ %j.next, %compare ]",
        "  %j.more = icmp slt i64 %j, %count",
        "  br i1 %j.more, label %compare, label %stays",
        *_compare(wide),
        "stays:",
        *(line for side in (*_SIDES, "area") for line in _append(side)),
        "  %to = getelementptr i64, ptr %out, i64 %stayed",
        "  store i64 %c, ptr %to",
        "  %count.more = add i64 %count, 1",
        "  %stayed.more = add i64 %stayed, 1",
        "  br label %after",
        *_AFTER,
    ]
    return "\n".join(lines)


def _compare(wide: str) -> list[str]:
    """A candidate beside LANES boxes that stayed; it is gone where one of them is over it."""
    return [
        "compare:",
        "  %j.next = add i64 %j, " + str(LANES),
        *(line for side in (*_SIDES, "area") for line in _kept(side)),
        *_overlap(wide),
        "  %left = sub i64 %count, %j",
        f"  %left.one = insertelement <{LANES} x i64> poison, i64 %left, i32 0",
        f"  %left.all = shufflevector <{LANES} x i64> %left.one, <{LANES} x i64> poison, "
        f"<{LANES} x i32> zeroinitializer",
        f"  %there = icmp slt <{LANES} x i64> <{', '.join(f'i64 {k}' for k in range(LANES))}>, "
        "%left.all",
        f"  %hit = and <{LANES} x i1> %over, %there",
        f"  %word = bitcast <{LANES} x i1> %hit to i{LANES}",
        f"  %gone = icmp ne i{LANES} %word, 0",
        "  br i1 %gone, label %after, label %others",
    ]


def _side(number: int, side: str) -> list[str]:
    """A coordinate of the candidate, and a vector of it."""
    return [
        f"  %{side}.first = mul i64 %row, 4",
        f"  %{side}.place = add i64 %{side}.first, {number}",
        f"  %{side}.at = getelementptr float, ptr %corners, i64 %{side}.place",
        f"  %{side} = load float, ptr %{side}.at",
        *_splat(side, f"%{side}"),
    ]


def _splat(name: str, value: str) -> list[str]:
    wide = f"<{LANES} x float>"
    return [
        f"  %{name}.one = insertelement {wide} poison, float {value}, i32 0",
        f"  %{name}.all = shufflevector {wide} %{name}.one, {wide} poison, "
        f"<{LANES} x i32> zeroinitializer",
    ]


def _kept(side: str) -> list[str]:
    return [
        f"  %{side}.there = getelementptr float, ptr %{side}.row, i64 %j",
        f"  %{side}.kept = load <{LANES} x float>, ptr %{side}.there, align 4",
    ]


def _append(side: str) -> list[str]:
    return [
        f"  %{side}.new = getelementptr float, ptr %{side}.row, i64 %count",
        f"  store float %{side}, ptr %{side}.new",
    ]


def _overlap(wide: str) -> list[str]:
    """Whether what both have is more than the limit of what either has."""
    lines = []
    for side, which in zip(_SIDES, ("maxnum", "maxnum", "minnum", "minnum"), strict=True):
        lines.append(
            f"  %{side}.both = call {wide} @llvm.{which}.v{LANES}f32({wide} %{side}.all, "
            f"{wide} %{side}.kept)"
        )
    return [
        *lines,
        f"  %tall = fsub {wide} %y2.both, %y1.both",
        f"  %broad = fsub {wide} %x2.both, %x1.both",
        f"  %tall.some = fcmp ogt {wide} %tall, zeroinitializer",
        f"  %broad.some = fcmp ogt {wide} %broad, zeroinitializer",
        f"  %meet = and <{LANES} x i1> %tall.some, %broad.some",
        f"  %shared = fmul {wide} %tall, %broad",
        f"  %sum = fadd {wide} %area.all, %area.kept",
        f"  %union = fsub {wide} %sum, %shared",
        f"  %ratio = fdiv {wide} %shared, %union",
        f"  %much = fcmp ogt {wide} %ratio, %limit.all",
        f"  %over = and <{LANES} x i1> %meet, %much",
    ]


_AFTER = (
    "after:",
    "  %count.next = phi i64 [ %count, %look ], [ %count, %compare ], [ %count.more, %stays ]",
    "  %stayed.next = phi i64 [ %stayed, %look ], [ %stayed, %compare ], [ %stayed.more, %stays ]",
    "  %c.next = add i64 %c, 1",
    "  br label %candidate",
    "done:",
    "  ret i64 %stayed",
    "}",
)
"""What is carried to the next candidate."""
_DECLARED = f"""declare i{_BLOCK} @llvm.cttz.i{_BLOCK}(i{_BLOCK}, i1)
declare <{LANES} x float> @llvm.maxnum.v{LANES}f32(<{LANES} x float>, <{LANES} x float>)
declare <{LANES} x float> @llvm.minnum.v{LANES}f32(<{LANES} x float>, <{LANES} x float>)
"""
