"""A run of an exported model as LLVM text. In: an exported model. Out: lines."""

from __future__ import annotations

from autotune.export.errors import Code
from autotune.export.exported import Exported
from autotune.export.interface import Interface
from autotune.runtime.image import ENTRY_SYMBOL, FIRST_INPUT


def run_lines(model: Exported[Interface]) -> list[str]:
    """run, with what it calls."""
    return [*(copy_lines(model.size) if model.face.copied else []), *_run_text(model)]


def copy_lines(size: str) -> list[str]:
    """copy(to, from, extents, strides, dimensions, block): a strided block to a dense one; gives
    where the next one goes. `size`: C's size_t."""
    return [
        "define internal ptr @copy(ptr %to, ptr %from, ptr %extents, ptr %strides, i64 %dims, "
        "i64 %block) nounwind {",
        "entry:",
        "  %flat = icmp eq i64 %dims, 0",
        "  br i1 %flat, label %whole, label %begin",
        "whole:",
        f"  %bytes = trunc i64 %block to {size}"
        if size == "i32"
        else "  %bytes = add i64 %block, 0",
        f"  %ignored = call ptr @memcpy(ptr %to, ptr %from, {size} %bytes)",
        "  %next = getelementptr i8, ptr %to, i64 %block",
        "  ret ptr %next",
        "begin:",
        "  %extent = load i64, ptr %extents",
        "  %stride = load i64, ptr %strides",
        "  %inner = getelementptr i64, ptr %extents, i64 1",
        "  %steps = getelementptr i64, ptr %strides, i64 1",
        "  %less = sub i64 %dims, 1",
        "  br label %check",
        "check:",
        "  %i = phi i64 [ 0, %begin ], [ %following, %each ]",
        "  %at = phi ptr [ %to, %begin ], [ %done, %each ]",
        "  %source = phi ptr [ %from, %begin ], [ %beside, %each ]",
        "  %more = icmp ult i64 %i, %extent",
        "  br i1 %more, label %each, label %out",
        "each:",
        "  %done = call ptr @copy(ptr %at, ptr %source, ptr %inner, ptr %steps, i64 %less, "
        "i64 %block)",
        "  %beside = getelementptr i8, ptr %source, i64 %stride",
        "  %following = add i64 %i, 1",
        "  br label %check",
        "out:",
        "  ret ptr %at",
        "}",
    ]


def _run_text(model: Exported[Interface]) -> list[str]:
    """run(instance, inputs, outputs): pointers into the entry's array, the entry, copies."""
    face = model.face
    lines = [
        f"define i32 @{face.prefix}_run(ptr %memory, ptr %inputs, ptr %outputs) nounwind {{",
        "  %n0 = icmp eq ptr %memory, null",
        "  %n1 = icmp eq ptr %outputs, null",
        "  %n2 = or i1 %n0, %n1",
        f"  %n3 = icmp {'eq' if face.inputs else 'ne'} ptr %inputs, "
        f"{'null' if face.inputs else '%inputs'}",
        "  %nothing = or i1 %n2, %n3",
        "  br i1 %nothing, label %refuse, label %look",
        "refuse:",
        f"  ret i32 {Code.BAD_ARGUMENT.value}",
        "look:",
    ]
    absent = "false"
    for side, count in (("in", len(face.inputs)), ("out", len(face.outputs))):
        for n in range(count):
            lines += [
                f"  %{side}.p{n} = getelementptr ptr, ptr %{side}puts, i64 {n}",
                f"  %{side}{n} = load ptr, ptr %{side}.p{n}",
                f"  %{side}.n{n} = icmp eq ptr %{side}{n}, null",
                f"  %{side}.a{n} = or i1 {absent}, %{side}.n{n}",
            ]
            absent = f"%{side}.a{n}"
    lines += [f"  br i1 {absent}, label %refuse, label %place", "place:"]
    if model.on_team:
        lines.append("  %locked = call i32 @pthread_mutex_lock(ptr @lock)")
    stored = [(FIRST_INPUT + n, f"%in{n}") for n in range(len(face.inputs))]
    stored += [(base, f"%out{n}") for n, base in face.direct.items()]
    for base, value in stored:
        lines += [
            f"  %s{base} = getelementptr ptr, ptr %memory, i64 {base}",
            f"  store ptr {value}, ptr %s{base}",
        ]
    lines.append(f"  call void @{ENTRY_SYMBOL}(ptr %memory)")
    for each in face.copied:
        n = each.number
        lines += [
            f"  %c.p{n} = getelementptr ptr, ptr %memory, i64 {each.base}",
            f"  %c.b{n} = load ptr, ptr %c.p{n}",
            f"  %c.a{n} = getelementptr i8, ptr %c.b{n}, i64 {each.offset_bytes}",
            f"  %c.{n} = call ptr @copy(ptr %out{n}, ptr %c.a{n}, ptr @extents{n}, "
            f"ptr @strides{n}, i64 {len(each.extents)}, i64 {each.block_bytes})",
        ]
    if model.on_team:
        lines.append("  %unlocked = call i32 @pthread_mutex_unlock(ptr @lock)")
    return [*lines, f"  ret i32 {Code.OK.value}", "}"]
