"""The functions of an exported model of open sizes as LLVM text. In: its image and interface. Out:
text that defines what `model.h` declares, as `api_text` does for fixed sizes.

An instance has no sizes until `resize` gives it some: that plans the run, and takes memory where
there is too little. Nothing else takes any.
"""

from __future__ import annotations

from autotune.codegen.llvm.routine import Routine
from autotune.export.api_text import (
    ToldTensor,
    answers,
    declarations,
    element,
    said_lines,
    tensor_lines,
    text_line,
)
from autotune.export.cpu_check_text import cpu_check_lines
from autotune.export.errors import Code
from autotune.export.exported import Exported
from autotune.export.instance_text import (
    HUGEPAGE,
    begin_team,
    counted,
    create_lines,
    destroy_lines,
    field_offset,
    thread_lines,
)
from autotune.export.interface import WEIGHTS_POINTER
from autotune.export.open_interface import OUTPUT_WORDS, TENSOR_WORDS, OpenInterface
from autotune.export.open_plan_text import plan_lines
from autotune.export.run_text import copy_lines
from autotune.memory import ALIGNMENT, HUGE_PAGE_BYTES
from autotune.runtime.image import ARENA, FIRST_INPUT, WORKSPACE
from autotune.runtime.open_image import TABLE, OpenImage

_RANGE = "{ptr, i64, i64, i64}"
"""`model_range`."""
OPEN = -1
"""What `model_input` says of a dimension that is open."""


def open_api_text(image: OpenImage, model: Exported[OpenInterface]) -> str:
    """All functions."""
    return "\n".join(
        [
            *declarations(model),
            f"declare void @{TABLE}(ptr, i64, i64, ptr)",
            *said_lines(model.about, tuple(Code)),
            *_told(model),
            *_questions(model),
            *plan_lines(image, model),
            *cpu_check_lines(model.target),
            *thread_lines(model),
            *_begin(model),
            *create_lines(model, _capacity(model)),
            *destroy_lines(
                model,
                [
                    f"  %inner = getelementptr i8, ptr %memory, i64 {model.face.places.block}",
                    "  %behind = load ptr, ptr %inner",
                    "  call void @free(ptr %behind)",
                ],
            ),
            *_memory_bytes(model),
            *_resize(image, model),
            *_told_at(model),
            *copy_lines(model.size),
            *_run(image, model),
            "",
        ]
    )


def _told(model: Exported[OpenInterface]) -> list[str]:
    """Tables of inputs, outputs and symbols."""
    out, rows = [], []
    for side, tensors in (("in", model.face.inputs), ("out", model.face.outputs)):
        told = [
            ToldTensor(
                name=t.port.name,
                dtype=t.port.dtype,
                shape=tuple(OPEN if isinstance(dim, str) else dim for dim in t.kind.shape),
                nbytes=0,
            )
            for t in tensors
        ]
        out += tensor_lines(model, side, told)
    for number, (name, sizes) in enumerate(model.face.symbols):
        out.append(text_line(f"size{number}", name))
        numbers = ", ".join(f"i64 {n}" for n in (sizes.least, sizes.most, sizes.step))
        rows.append(f"{_RANGE} {{ptr @text.size{number}, {numbers}}}")
    return [*out, f"@ranges = internal constant [{len(rows)} x {_RANGE}] [{', '.join(rows)}]"]


def _questions(model: Exported[OpenInterface]) -> list[str]:
    face, sizes = model.face, len(model.face.symbols)
    return [
        *answers(model, {"in": len(face.inputs), "out": len(face.outputs)}, tuple(Code)),
        f"define i32 @{face.prefix}_sizes() nounwind {{\n  ret i32 {sizes}\n}}",
        *element(f"{face.prefix}_size", "@ranges", sizes, _RANGE),
    ]


def _begin(model: Exported[OpenInterface]) -> list[str]:
    """begin(memory, weights): an instance without sizes in zeroed memory."""
    face = model.face
    return [
        *begin_team(model),
        "define internal void @begin(ptr %memory, ptr %weights) nounwind {",
        f"  %place = getelementptr ptr, ptr %memory, i64 {WEIGHTS_POINTER}",
        "  store ptr %weights, ptr %place",
        f"  %counts = getelementptr i8, ptr %memory, i64 {face.places.counts}",
        f"  %last = getelementptr ptr, ptr %memory, i64 {face.counts}",
        "  store ptr %counts, ptr %last",
        *counted(model, 1),
        "  ret void",
        "}",
    ]


def _capacity(model: Exported[OpenInterface]) -> list[str]:
    """What is left of a caller's memory is the block."""
    face = model.face
    wide = "%bytes" if model.size == "i64" else "%wide"
    return [
        *([] if model.size == "i64" else ["  %wide = zext i32 %bytes to i64"]),
        f"  %rest = sub i64 {wide}, {face.memory_bytes}",
        f"  %had = getelementptr i8, ptr %memory, i64 {face.places.capacity}",
        "  store i64 %rest, ptr %had",
        f"  %behind = getelementptr i8, ptr %memory, i64 {face.memory_bytes}",
        f"  %inner = getelementptr i8, ptr %memory, i64 {face.places.block}",
        "  store ptr %behind, ptr %inner",
    ]


def _memory_bytes(model: Exported[OpenInterface]) -> list[str]:
    """memory_bytes(sizes): of an instance with its block; 0 where that cannot be."""
    face, size = model.face, model.size
    f = Routine(f"define {size} @{face.prefix}_memory_bytes(ptr %sizes) nounwind")
    with f.when(f.value("icmp eq ptr %sizes, null")):
        f.give(f"{size} {face.memory_bytes}")
    made = f.local("null", "ptr")
    status = f.value(
        f"call i32 @posix_memalign(ptr {made}, {size} {ALIGNMENT}, {size} {face.memory_bytes})"
    )
    with f.when(f.value(f"icmp ne i32 {status}, 0")):
        f.give(f"{size} 0")
    memory = f.load(made, kind="ptr")
    code = f.value(f"call i32 @plan(ptr {memory}, ptr %sizes)")
    needed = f.load(f.place(memory, face.places.needed, "i8"))
    total = f.value(f"add i64 {needed}, {face.memory_bytes}")
    f.do(f"call void @free(ptr {memory})")
    with f.when(f.value(f"icmp ne i32 {code}, 0")):
        f.give(f"{size} 0")
    f.give(f"{size} {total if size == 'i64' else f.value(f'trunc i64 {total} to i32')}")
    return f.lines()


def _resize(image: OpenImage, model: Exported[OpenInterface]) -> list[str]:
    """resize(instance, sizes): a plan, memory for it, and pointers there."""
    face, places = model.face, model.face.places
    f = Routine(f"define i32 @{face.prefix}_resize(ptr %memory, ptr %sizes) nounwind")
    nothing = f.value("icmp eq ptr %memory, null")
    nowhere = f.value("icmp eq ptr %sizes, null")
    with f.when(f.value(f"or i1 {nothing}, {nowhere}")):
        f.give(f"i32 {Code.BAD_ARGUMENT.value}")
    code = f.value("call i32 @plan(ptr %memory, ptr %sizes)")
    with f.when(f.value(f"icmp ne i32 {code}, 0")):
        f.give(f"i32 {code}")
    needed = f.load(f.place("%memory", places.needed, "i8"))
    had = f.load(f.place("%memory", places.capacity, "i8"))
    with f.when(f.value(f"icmp sgt i64 {needed}, {had}")):
        _take(f, model, needed)
    block = f.load(f.place("%memory", places.block, "i8"), kind="ptr")
    offsets = f.place("%memory", places.offsets, "i8")
    first = FIRST_INPUT + len(image.inputs)
    for pointer in (ARENA, WORKSPACE, *range(first, first + len(image.output_bytes))):
        at = f.place(block, f.load(offsets, pointer), "i8")
        f.store(at, "%memory", pointer, "ptr")
    f.store(1, f.place("%memory", places.sized, "i8"))
    f.give(f"i32 {Code.OK.value}")
    return f.lines()


def _take(f: Routine, model: Exported[OpenInterface], needed: str) -> None:
    """A larger block, which is touched now so that the first run is as fast as any; one of the
    caller's cannot grow."""
    places, size = model.face.places, model.size
    own = f.load(f.place("%memory", field_offset(model, 0), "i8"), kind=size)
    with f.when(f.value(f"icmp eq {size} {own}, 0")):
        f.give(f"i32 {Code.BAD_MEMORY.value}")
    inner = f.place("%memory", places.block, "i8")
    f.do(f"call void @free(ptr {f.load(inner, kind='ptr')})")
    f.store("null", inner, kind="ptr")
    f.store(0, f.place("%memory", places.capacity, "i8"))
    nbytes = needed if size == "i64" else f.value(f"trunc i64 {needed} to i32")
    huge = f.value(f"icmp uge i64 {needed}, {HUGE_PAGE_BYTES}")
    step = f.value(f"select i1 {huge}, {size} {HUGE_PAGE_BYTES}, {size} {ALIGNMENT}")
    status = f.value(f"call i32 @posix_memalign(ptr {inner}, {size} {step}, {size} {nbytes})")
    with f.when(f.value(f"icmp ne i32 {status}, 0")):
        f.store("null", inner, kind="ptr")
        f.give(f"i32 {Code.NO_MEMORY.value}")
    block = f.load(inner, kind="ptr")
    with f.when(huge):
        f.value(f"call i32 @madvise(ptr {block}, {size} {nbytes}, i32 {HUGEPAGE})")
    f.value(f"call ptr @memset(ptr {block}, i32 0, {size} {nbytes})")
    f.store(needed, f.place("%memory", places.capacity, "i8"))


def _told_at(model: Exported[OpenInterface]) -> list[str]:
    """input_of and output_of: tensors of an instance; NULL where it has no sizes."""
    face, out = model.face, []
    starts = {"input": (0, len(face.inputs)), "output": (len(face.inputs), len(face.outputs))}
    for side, (first, count) in starts.items():
        f = Routine(f"define ptr @{face.prefix}_{side}_of(ptr %memory, i32 %number) nounwind")
        nothing = f.value("icmp eq ptr %memory, null")
        beyond = f.value(f"icmp uge i32 %number, {count}")
        with f.when(f.value(f"or i1 {nothing}, {beyond}")):
            f.give("ptr null")
        sized = f.load(f.place("%memory", face.places.sized, "i8"))
        with f.when(f.value(f"icmp eq i64 {sized}, 0")):
            f.give("ptr null")
        tensor_bytes = 8 * TENSOR_WORDS
        rows = f.place("%memory", face.places.tensors + tensor_bytes * first, "i8")
        wide = f.value("zext i32 %number to i64")
        f.give(f"ptr {f.place(rows, f.value(f'mul i64 {wide}, {tensor_bytes}'), 'i8')}")
        out += f.lines()
    return out


def _run(image: OpenImage, model: Exported[OpenInterface]) -> list[str]:
    """run(instance, inputs, outputs): pointers, the calls of the plan, copies."""
    face, places = model.face, model.face.places
    f = Routine(f"define i32 @{face.prefix}_run(ptr %memory, ptr %inputs, ptr %outputs) nounwind")
    for pointer in ("%memory", *(["%inputs"] if face.inputs else []), "%outputs"):
        with f.when(f.value(f"icmp eq ptr {pointer}, null")):
            f.give(f"i32 {Code.BAD_ARGUMENT.value}")
    with f.when(f.value(f"icmp eq i64 {f.load(f.place('%memory', places.sized, 'i8'))}, 0")):
        f.give(f"i32 {Code.BAD_SIZES.value}")
    given = [f.load("%inputs", n, "ptr") for n in range(len(face.inputs))]
    wanted = [f.load("%outputs", n, "ptr") for n in range(len(face.outputs))]
    for pointer in (*given, *wanted):
        with f.when(f.value(f"icmp eq ptr {pointer}, null")):
            f.give(f"i32 {Code.BAD_ARGUMENT.value}")
    if model.on_team:
        f.value("call i32 @pthread_mutex_lock(ptr @lock)")
    for number, pointer in enumerate(given):
        f.store(pointer, "%memory", FIRST_INPUT + number, "ptr")
    parts = [
        f.place("%memory", places.outputs + 8 * OUTPUT_WORDS * n, "i8")
        for n in range(len(face.outputs))
    ]
    direct = [f.value(f"icmp ne i64 {f.load(part, 3)}, 0") for part in parts]
    for port, pointer, whole in zip(image.outputs, wanted, direct, strict=True):
        with f.when(whole):
            f.store(pointer, "%memory", port.base, "ptr")
    rows, width = len(image.table.choices), image.table.words.shape[1]
    calls = f.place("%memory", places.calls, "i8")
    f.do(f"call void @{TABLE}(ptr {calls}, i64 {rows}, i64 {width}, ptr %memory)")
    for number, (port, pointer, part) in enumerate(zip(image.outputs, wanted, parts, strict=True)):
        words = 8 * face.shape_place(len(face.inputs) + number)
        with f.when(f.value(f"xor i1 {direct[number]}, true")):
            source = f.place(f.load("%memory", port.base, "ptr"), f.load(part, 2), "i8")
            extents = f.place("%memory", places.shapes + words, "i8")
            strides = f.place("%memory", places.strides + words, "i8")
            f.value(
                f"call ptr @copy(ptr {pointer}, ptr {source}, ptr {extents}, ptr {strides}, "
                f"i64 {f.load(part, 0)}, i64 {f.load(part, 1)})"
            )
    if model.on_team:
        f.value("call i32 @pthread_mutex_unlock(ptr @lock)")
    f.give(f"i32 {Code.OK.value}")
    return f.lines()
