"""Instances of an exported model as LLVM text: made in memory that is mapped or given, and ended.

In: an exported model. Out: lines. Pages are touched when an instance is
made, so that its first run is as fast as any.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.codegen.elf.symbols import TEAM_END
from autotune.codegen.llvm.team import (
    FEWER_OFFSET,
    OPEN,
    PUBLISH,
    QUIT_OFFSET,
    STATE,
)
from autotune.export.cpu_check_text import cpu_check_lines
from autotune.export.errors import Code
from autotune.export.exported import Exported, weights_symbol
from autotune.export.interface import WEIGHTS_POINTER, WORD_BYTES, Frame, Interface
from autotune.export.weights_text import find_weights, found_weights, map_weights, unmapped
from autotune.memory import ALIGNMENT, HUGE_PAGE_BYTES

HUGEPAGE = 14
"""Linux's argument of madvise, which Apple's systems refuse."""


def instance_lines(model: Exported[Interface]) -> list[str]:
    """limit_threads, create, create_in and destroy, with what they call."""
    return [
        *cpu_check_lines(model.target),
        *thread_lines(model),
        *_begin(model),
        *create_lines(model),
        *destroy_lines(model),
    ]


def counted(model: Exported[Frame], change: int) -> list[str]:
    """Count an instance more or less; the last one ends the threads, which may start again."""
    if not model.on_team:
        return []
    lines = [
        "  %locked = call i32 @pthread_mutex_lock(ptr @lock)",
        "  %were = load i64, ptr @alive",
        f"  %are = add i64 %were, {change}",
        "  store i64 %are, ptr @alive",
    ]
    if change > 0:
        lines += [f"  call void @{OPEN}()", f"  %j = call i64 @{PUBLISH}(ptr @nothing)"]
    if change < 0:
        lines += [
            "  %none = icmp eq i64 %are, 0",
            "  br i1 %none, label %end, label %ended",
            "end:",
            f"  call void @{TEAM_END}()",
            f"  %quit = getelementptr i8, ptr {STATE}, i64 {QUIT_OFFSET}",
            "  store atomic i64 0, ptr %quit seq_cst, align 8",
            "  br label %ended",
            "ended:",
        ]
    return [*lines, "  %unlocked = call i32 @pthread_mutex_unlock(ptr @lock)"]


def thread_lines(model: Exported[Frame]) -> list[str]:
    prefix, most = model.face.prefix, model.target.threads
    lines = [
        f"define i32 @{prefix}_limit_threads(i32 %threads) nounwind {{",
        "  %less = sub i32 %threads, 1",
        f"  %fits = icmp ult i32 %less, {most}",
        "  br i1 %fits, label %set, label %refuse",
        "refuse:",
        f"  ret i32 {Code.BAD_ARGUMENT.value}",
        "set:",
    ]
    if model.on_team:
        lines += [
            f"  %fewer = sub i32 {most}, %threads",
            "  %wide = zext i32 %fewer to i64",
            f"  %place = getelementptr i8, ptr {STATE}, i64 {FEWER_OFFSET}",
            "  store i64 %wide, ptr %place",
        ]
    return [*lines, f"  ret i32 {Code.OK.value}", "}"]


def create_lines(model: Exported[Frame], kept: Sequence[str] = ()) -> list[str]:
    """create and create_in, which call `void begin(ptr memory, ptr weights)`. `kept`: what
    create_in does behind that with the `%bytes` of `%memory`."""
    return [
        *_create_in(model, kept),
        *_create_mapped(model),
        *(map_weights(model) if model.seal is not None else []),
    ]


def begin_team(model: Exported[Frame]) -> list[str]:
    """The job of nothing that starts threads."""
    if not model.on_team:
        return []
    return [
        "define internal void @nothing(i64 %thread, i64 %number) nounwind {",
        "  ret void",
        "}",
    ]


def _begin(model: Exported[Interface]) -> list[str]:
    """begin(memory, weights): an instance in zeroed memory, its threads started by a job of
    nothing."""
    lines = begin_team(model)
    lines.append("define internal void @begin(ptr %memory, ptr %weights) nounwind {")
    for base, offset in model.face.blocks.items():
        lines += [
            f"  %block{base} = getelementptr i8, ptr %memory, i64 {offset}",
            f"  %place{base} = getelementptr ptr, ptr %memory, i64 {base}",
            f"  store ptr %block{base}, ptr %place{base}",
        ]
    lines += [
        f"  %place = getelementptr ptr, ptr %memory, i64 {WEIGHTS_POINTER}",
        "  store ptr %weights, ptr %place",
        *counted(model, 1),
    ]
    return [*lines, "  ret void", "}"]


def _create_in(model: Exported[Frame], kept: Sequence[str]) -> list[str]:
    face, size = model.face, model.size
    inside = model.seal is None
    used = f"@{weights_symbol(face.prefix)}" if inside else "%weights"
    lacking = "false" if inside or not face.weight_bytes else "%absent"
    return [
        f"define i32 @{face.prefix}_create_in"
        f"(ptr %memory, {size} %bytes, ptr %weights, ptr %made) nounwind {{",
        "  %nowhere = icmp eq ptr %made, null",
        "  br i1 %nowhere, label %argument, label %look",
        "argument:",
        f"  ret i32 {Code.BAD_ARGUMENT.value}",
        "look:",
        "  store ptr null, ptr %made",
        "  %fits = call i1 @fits_cpu()",
        "  br i1 %fits, label %fitting, label %foreign",
        "foreign:",
        f"  ret i32 {Code.WRONG_CPU.value}",
        "fitting:",
        "  %absent = icmp eq ptr %weights, null",
        f"  br i1 {lacking}, label %nothing, label %measure",
        "nothing:",
        f"  ret i32 {Code.NO_WEIGHTS.value}",
        "measure:",
        f"  %address = ptrtoint ptr %memory to {size}",
        f"  %low = and {size} %address, {ALIGNMENT - 1}",
        f"  %odd = icmp ne {size} %low, 0",
        f"  %small = icmp ult {size} %bytes, {face.memory_bytes}",
        "  %null = icmp eq ptr %memory, null",
        "  %bad = or i1 %odd, %small",
        "  %worse = or i1 %bad, %null",
        "  br i1 %worse, label %refuse, label %begin",
        "refuse:",
        f"  ret i32 {Code.BAD_MEMORY.value}",
        "begin:",
        f"  %cleared = call ptr @memset(ptr %memory, i32 0, {size} {face.memory_bytes})",
        f"  call void @begin(ptr %memory, ptr {used})",
        *kept,
        "  store ptr %memory, ptr %made",
        f"  ret i32 {Code.OK.value}",
        "}",
    ]


def _create_mapped(model: Exported[Frame]) -> list[str]:
    """An instance in memory of its own, which is touched now so that the first run is as fast as
    any. Large ones lie on huge pages."""
    face, size = model.face, model.size
    huge = face.memory_bytes >= HUGE_PAGE_BYTES
    step = HUGE_PAGE_BYTES if huge else ALIGNMENT
    lines = [
        f"define i32 @{face.prefix}_create(ptr %file, ptr %made) nounwind {{",
        "  %place = alloca ptr",
        "  %nowhere = icmp eq ptr %made, null",
        "  br i1 %nowhere, label %argument, label %look",
        "argument:",
        f"  ret i32 {Code.BAD_ARGUMENT.value}",
        "look:",
        "  store ptr null, ptr %made",
        "  %fits = call i1 @fits_cpu()",
        "  br i1 %fits, label %fitting, label %foreign",
        "foreign:",
        f"  ret i32 {Code.WRONG_CPU.value}",
        "fitting:",
        *find_weights(model),
        "allocate:",
        f"  %status = call i32 @posix_memalign(ptr %place, {size} {step}, "
        f"{size} {face.memory_bytes})",
        "  %got = icmp eq i32 %status, 0",
        "  br i1 %got, label %begin, label %full",
        "full:",
        *unmapped(model, "map"),
        f"  ret i32 {Code.NO_MEMORY.value}",
        "begin:",
        "  %memory = load ptr, ptr %place",
    ]
    if huge:
        given = f"ptr %memory, {size} {face.memory_bytes}, i32 {HUGEPAGE}"
        lines.append(f"  %h = call i32 @madvise({given})")
    lines += [
        f"  %cleared = call ptr @memset(ptr %memory, i32 0, {size} {face.memory_bytes})",
        f"  call void @begin(ptr %memory, ptr {found_weights(model)})",
        f"  %own = getelementptr i8, ptr %memory, i64 {field_offset(model, 0)}",
        f"  store {size} 1, ptr %own",
    ]
    if model.seal is not None:
        lines += [
            f"  %held = getelementptr i8, ptr %memory, i64 {field_offset(model, 1)}",
            "  store ptr %map, ptr %held",
        ]
    return [*lines, "  store ptr %memory, ptr %made", f"  ret i32 {Code.OK.value}", "}"]


def field_offset(model: Exported[Frame], number: int) -> int:
    return model.face.fields_offset + number * WORD_BYTES


def destroy_lines(model: Exported[Frame], freed: Sequence[str] = ()) -> list[str]:
    """destroy. `freed`: what it does besides where the memory is the instance's own."""
    size = model.size
    lines = [
        f"define void @{model.face.prefix}_destroy(ptr %memory) nounwind {{",
        "  %nothing = icmp eq ptr %memory, null",
        "  br i1 %nothing, label %out, label %count",
        "count:",
        *counted(model, -1),
    ]
    if model.seal is not None:
        lines += [
            f"  %held = getelementptr i8, ptr %memory, i64 {field_offset(model, 1)}",
            "  %map = load ptr, ptr %held",
            "  %mapped = icmp ne ptr %map, null",
            "  br i1 %mapped, label %unmap, label %own",
            "unmap:",
            *unmapped(model, "map"),
            "  br label %own",
            "own:",
        ]
    return [
        *lines,
        f"  %place = getelementptr i8, ptr %memory, i64 {field_offset(model, 0)}",
        f"  %ours = load {size}, ptr %place",
        f"  %taken = icmp ne {size} %ours, 0",
        "  br i1 %taken, label %free, label %out",
        "free:",
        *freed,
        "  call void @free(ptr %memory)",
        "  br label %out",
        "out:",
        "  ret void",
        "}",
    ]
