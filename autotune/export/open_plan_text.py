"""A plan of an exported model at given sizes as LLVM text: the kernels to call, where everything
lies, what shapes it has.

In: an OpenImage and its interface. Out: lines that define `i32 plan(ptr memory, ptr sizes)`, which
fills an instance's head, and takes no memory. It does what `OpenCode.at` does for Python.
"""

from __future__ import annotations

import struct

from autotune.codegen.base import CONTROL
from autotune.codegen.llvm.routine import Routine
from autotune.export.api_text import integers
from autotune.export.errors import Code
from autotune.export.exported import Exported
from autotune.export.open_interface import OUTPUT_WORDS, TENSOR_WORDS, OpenInterface
from autotune.memory import ALIGNMENT
from autotune.runtime.image import ARENA, FIRST_INPUT, WORKSPACE
from autotune.runtime.open_image import AMOUNTS, OpenImage
from autotune.types import ITEM_BYTES

UNIT_WORDS = 5
"""A symbol's words: least, most and step of its sizes, least and step of what is counted."""
_HEAD_WORDS = 3
"""A line's words: rows of strips and workspace, how many arguments."""
_INFINITE = "0x7FF0000000000000"
MOST_BYTES = {"i64": 1 << 62, "i32": (1 << 31) - 1}
"""Blocks of more are refused, by C's size_t."""


PLAN = "plan"
"""The function's name."""


def plan_lines(image: OpenImage, model: Exported[OpenInterface]) -> list[str]:
    """The function, and the tables that it reads."""
    return [*_tables(image), *_plan(image, model)]


def numbered_plan_lines(image: OpenImage, model: Exported[OpenInterface]) -> list[str]:
    """The same where drivers are called by numbers. What callers are told, they work out of the
    values of rows by themselves, and all outputs are in the block."""
    numbers = ", ".join(f"i64 {image.table.numbered[name]}" for name in image.table.drivers)
    drivers = f"@drivers = internal constant [{len(image.table.drivers)} x i64] [{numbers}]"
    f = Routine(f"define i32 @{PLAN}(ptr %memory, ptr %sizes) nounwind")
    values, end = _begun(f, image, model, "i64")
    offsets = f.place("%memory", model.face.places.offsets, "i8")
    first = FIRST_INPUT + len(image.inputs)
    for pointer, row in enumerate(image.output_bytes, first):
        _reserve(f, end, offsets, pointer, f.load(values, row))
    return [*_shared_tables(image), drivers, *_ended(f, model, end)]


def _tables(image: OpenImage) -> list[str]:
    table = image.table
    drivers = ", ".join(
        f"ptr inttoptr (i64 {CONTROL[name]} to ptr)" if name in CONTROL else f"ptr @{name}"
        for name in table.drivers
    )
    return [
        *(f"declare void @{name}(ptr, i64)" for name in table.kernels),
        *_shared_tables(image),
        f"@drivers = internal constant [{len(table.drivers)} x ptr] [{drivers}]",
    ]


def _shared_tables(image: OpenImage) -> list[str]:
    """Sizes that are allowed, and of lines what is chosen by."""
    table = image.table
    allowed = dict(image.types.ranges)
    units = []
    for unit in image.units:
        sizes = allowed[unit.name]
        units += [sizes.least, sizes.most, sizes.step, unit.least, unit.step]
    lines: list[int] = []
    rows = dict(zip(table.filled[0].tolist(), table.filled[1].tolist(), strict=True))
    width = table.words.shape[1]
    for number, words in enumerate(table.words.tolist()):
        lines += [int(table.strips[number]), int(table.workspace[number]), words[1]]
        for extent, length in zip(table.extents[number], table.lengths[number], strict=True):
            lines += [int(extent), int(length)]
        for place in range(2, width, 2):
            lines += [words[place], rows.get(number * width + place + 1, 0)]
    seconds = ", ".join(f"double {_double(s)}" for s in table.seconds.tolist())
    return [
        f"declare void @{AMOUNTS}(ptr, ptr)",
        f"@units = internal constant {integers(units)}",
        f"@lines = internal constant {integers(lines)}",
        f"@choices = internal constant {integers(table.choices.reshape(-1).tolist())}",
        f"@seconds = internal constant [{len(table.drivers)} x double] [{seconds}]",
    ]


def _double(value: float) -> str:
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _plan(image: OpenImage, model: Exported[OpenInterface]) -> list[str]:
    f = Routine(f"define internal i32 @{PLAN}(ptr %memory, ptr %sizes) nounwind")
    values, end = _begun(f, image, model, "ptr")
    _tensors(f, model, values)
    _buffers(f, image, model.face, end)
    return _ended(f, model, end)


def _begun(
    f: Routine, image: OpenImage, model: Exported[OpenInterface], driver: str
) -> tuple[str, str]:
    """Check sizes, work out rows, choose calls, place what kernels work in. Gives where rows are,
    and the variable of the block's end. `driver`: the type by which drivers are known."""
    places = model.face.places
    f.store(0, f.place("%memory", places.sized, "i8"))
    counts = f.place("%memory", places.counts, "i8")
    values = f.place("%memory", places.values, "i8")
    _count(f, len(image.units), counts)
    f.do(f"call void @{AMOUNTS}(ptr {counts}, ptr {values})")
    workspace = _choose(f, image, values, f.place("%memory", places.calls, "i8"), driver)
    end = f.local(0)
    offsets = f.place("%memory", places.offsets, "i8")
    _reserve(f, end, offsets, ARENA, f.load(values, image.rows))
    _reserve(f, end, offsets, WORKSPACE, f.load(workspace))
    return values, end


def _ended(f: Routine, model: Exported[OpenInterface], end: str) -> list[str]:
    """Say how many bytes the block takes."""
    needed = f.load(end)
    f.store(needed, f.place("%memory", model.face.places.needed, "i8"))
    with f.when(f.value(f"icmp ugt i64 {needed}, {MOST_BYTES[model.size]}")):
        f.give(f"i32 {Code.NO_MEMORY.value}")
    f.give(f"i32 {Code.OK.value}")
    return f.lines()


def _count(f: Routine, symbols: int, counts: str) -> None:
    """Sizes, checked, as counts of units."""
    with f.times(symbols) as number:
        size = f.load("%sizes", number)
        unit = f.place("@units", f.value(f"mul i64 {number}, {UNIT_WORDS}"))
        least, most, step, first, each = (f.load(unit, word) for word in range(UNIT_WORDS))
        low = f.value(f"icmp slt i64 {size}, {least}")
        high = f.value(f"icmp sgt i64 {size}, {most}")
        beyond = f.value(f"urem i64 {f.value(f'sub i64 {size}, {least}')}, {step}")
        between = f.value(f"icmp ne i64 {beyond}, 0")
        outside = f.value(f"or i1 {low}, {high}")
        with f.when(f.value(f"or i1 {outside}, {between}")):
            f.give(f"i32 {Code.BAD_SIZES.value}")
        units = f.value(f"udiv i64 {f.value(f'sub i64 {size}, {first}')}, {each}")
        f.store(units, counts, number)


def _choose(f: Routine, image: OpenImage, values: str, calls: str, driver: str) -> str:
    """Take of each call's lines the one that is predicted to take least, with its distances; gives
    the variable of the most bytes that one works in."""
    table = image.table
    choices, extents, width = table.choices.shape[1], table.extents.shape[1], table.words.shape[1]
    head = _HEAD_WORDS + 2 * extents
    line_words = head + width - 2
    workspace = f.local(0)
    with f.times(len(table.choices)) as call:
        first = f.place("@choices", f.value(f"mul i64 {call}, {choices}"))
        chosen, least = f.local(f.load(first)), f.local(_INFINITE, "double")
        with f.times(choices) as number:
            line = f.load(first, number)
            words = f.place("@lines", f.value(f"mul i64 {line}, {line_words}"))
            strips = f.value(f"sitofp i64 {f.load(values, f.load(words))} to double")
            seconds = f.load("@seconds", line, "double")
            cost = f.local(f.value(f"fmul double {strips}, {seconds}"), "double")
            for pair in range(extents):
                extent = f.load(values, f.load(words, _HEAD_WORDS + 2 * pair))
                length = f.load(words, _HEAD_WORDS + 2 * pair + 1)
                with f.when(f.value(f"icmp slt i64 {extent}, {length}")):
                    f.store(_INFINITE, cost, kind="double")
            found = f.load(cost, kind="double")
            with f.when(f.value(f"fcmp olt double {found}, {f.load(least, kind='double')}")):
                f.store(found, least, kind="double")
                f.store(line, chosen)
        line = f.load(chosen)
        words = f.place("@lines", f.value(f"mul i64 {line}, {line_words}"))
        row = f.place(calls, f.value(f"mul i64 {call}, {width}"))
        known = f.load("@drivers", line, driver)
        f.store(f.value(f"ptrtoint ptr {known} to i64") if driver == "ptr" else known, row)
        many = f.load(words, 2)
        f.store(many, row, 1)
        arguments, pairs = f.place(words, head), f.place(row, 2)
        with f.times(many) as number:
            base = f.value(f"shl i64 {number}, 1")
            distance = f.value(f"add i64 {base}, 1")
            f.store(f.load(arguments, base), pairs, base)
            f.store(f.load(values, f.load(arguments, distance)), pairs, distance)
        _grow(f, workspace, f.load(values, f.load(words, 1)))
    return workspace


def _grow(f: Routine, variable: str, value: str) -> None:
    with f.when(f.value(f"icmp sgt i64 {value}, {f.load(variable)}")):
        f.store(value, variable)


def _reserve(f: Routine, end: str, offsets: str, pointer: int, nbytes: str) -> None:
    """Room at the end of the block."""
    at = f.load(end)
    f.store(at, offsets, pointer)
    more = f.value(f"add i64 {nbytes}, {ALIGNMENT - 1}")
    whole = f.value(f"and i64 {more}, {-ALIGNMENT}")
    f.store(f.value(f"add i64 {at}, {whole}"), end)


def _tensors(f: Routine, model: Exported[OpenInterface], values: str) -> None:
    """Shapes and bytes of inputs and outputs, as callers have them; of outputs, how to copy
    them."""
    face = model.face
    for number, tensor in enumerate(face.tensors):
        words = face.shape_place(number)
        shape = f.place("%memory", face.places.shapes + 8 * words, "i8")
        strides = f.place("%memory", face.places.strides + 8 * words, "i8")
        item = ITEM_BYTES[tensor.port.dtype]
        rank = len(tensor.kind.shape)
        nbytes, block, dense, copied = str(item), str(item), "true", str(rank)
        for axis in reversed(range(rank)):
            extent = f.load(values, tensor.port.shape[axis])
            f.store(extent, shape, axis)
            stride = f.value(f"mul i64 {f.load(values, tensor.port.strides[axis])}, {item}")
            f.store(stride, strides, axis)
            same = f.value(f"icmp eq i64 {stride}, {nbytes}")
            one = f.value(f"icmp eq i64 {extent}, 1")
            joined = f.value(f"or i1 {same}, {one}")
            dense = f.value(f"and i1 {dense}, {joined}")
            nbytes = f.value(f"mul i64 {nbytes}, {extent}")
            block = f.value(f"select i1 {dense}, i64 {nbytes}, i64 {block}")
            copied = f.value(f"select i1 {dense}, i64 {axis}, i64 {copied}")
        _tell(f, model, number, shape, nbytes)
        if number >= len(face.inputs):
            outputs = f.place("%memory", face.places.outputs, "i8")
            output = f.place(outputs, OUTPUT_WORDS * (number - len(face.inputs)))
            f.store(copied, output, 0)
            f.store(block, output, 1)
            f.store(f.load(values, tensor.port.offset), output, 2)
            f.store(0, output, 3)


def _tell(
    f: Routine, model: Exported[OpenInterface], number: int, shape: str, nbytes: str
) -> None:
    """A `model_tensor` at these sizes."""
    face = model.face
    inputs = len(face.inputs)
    name = f"in{number}" if number < inputs else f"out{number - inputs}"
    kind = f"{{ptr, ptr, ptr, {model.size}, i32}}"
    tensor = f.place("%memory", face.places.tensors + 8 * TENSOR_WORDS * number, "i8")
    total = nbytes if model.size == "i64" else f.value(f"trunc i64 {nbytes} to i32")
    fields = {
        0: f"ptr @text.{name}.name", 1: f"ptr @text.{name}.type", 2: f"ptr {shape}",
        3: f"{model.size} {total}", 4: f"i32 {len(face.tensors[number].kind.shape)}",
    }  # fmt: skip
    for place, value in fields.items():
        where = f.value(f"getelementptr {kind}, ptr {tensor}, i32 0, i32 {place}")
        f.do(f"store {value}, ptr {where}")


def _buffers(f: Routine, image: OpenImage, face: OpenInterface, end: str) -> None:
    """Where kernels write output buffers: the caller's memory where an output is all of one, else
    room in the block. A further output in the same buffer is copied."""
    values = f.place("%memory", face.places.values, "i8")
    offsets = f.place("%memory", face.places.offsets, "i8")
    outputs = f.place("%memory", face.places.outputs, "i8")
    first = FIRST_INPUT + len(image.inputs)
    for pointer, row in enumerate(image.output_bytes, first):
        nbytes, taken = f.load(values, row), f.local(0)
        for number in [n for n, port in enumerate(image.outputs) if port.base == pointer][:1]:
            port = f.place(outputs, OUTPUT_WORDS * number)
            flat = f.value(f"icmp eq i64 {f.load(port, 0)}, 0")
            begins = f.value(f"icmp eq i64 {f.load(port, 2)}, 0")
            whole = f.value(f"icmp eq i64 {f.load(port, 1)}, {nbytes}")
            both = f.value(f"and i1 {flat}, {begins}")
            with f.when(f.value(f"and i1 {both}, {whole}")):
                f.store(1, port, 3)
                f.store(1, taken)
        with f.when(f.value(f"icmp eq i64 {f.load(taken)}, 0")):
            _reserve(f, end, offsets, pointer, nbytes)
