"""An instance of open sizes in C99. In: an OpenImage and its interface. Out: tables of allowed
sizes and of lines that calls choose from, an instance's head, and the function that fills it.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.codegen.c.amount import AMOUNTS
from autotune.export.errors import Code
from autotune.export.open_interface import OpenInterface, OpenTensor
from autotune.memory import ALIGNMENT
from autotune.runtime.image import ARENA, FIRST_INPUT, WORKSPACE
from autotune.runtime.open_image import OpenImage
from autotune.types import ITEM_BYTES

_WORDS_A_LINE = 16
"""Numbers on a line of generated C."""


def _array(kind: str, name: str, values: Sequence[object]) -> str:
    words = [str(value) for value in values] or ["0"]
    rows = [
        ", ".join(words[at : at + _WORDS_A_LINE]) for at in range(0, len(words), _WORDS_A_LINE)
    ]
    return f"static const {kind} {name}[{len(words)}] = {{\n{(',' + chr(10)).join(rows)}}};"


def table_lines(image: OpenImage) -> list[str]:
    """Allowed sizes of symbols, and the lines that calls choose from: strips, workspace, driver,
    arguments, pairs of extents and lengths, pairs of pointers and rows."""
    table, allowed = image.table, dict(image.types.ranges)
    units: list[int] = []
    for unit in image.units:
        sizes = allowed[unit.name]
        units += [sizes.least, sizes.most, sizes.step, unit.least, unit.step]
    rows = dict(zip(table.filled[0].tolist(), table.filled[1].tolist(), strict=True))
    lines: list[int] = []
    width = table.words.shape[1]
    for number, words in enumerate(table.words.tolist()):
        lines += [
            int(table.strips[number]), int(table.workspace[number]),
            table.numbered[table.drivers[number]], words[1],
        ]  # fmt: skip
        for extent, length in zip(table.extents[number], table.lengths[number], strict=True):
            lines += [int(extent), int(length)]
        for place in range(2, width, 2):
            lines += [words[place], rows.get(number * width + place + 1, 0)]
    return [
        _array("int64_t", "units", units),
        _array("int32_t", "lines", lines),
        _array("int32_t", "choices", table.choices.reshape(-1).tolist()),
        _array("double", "seconds", [repr(s) for s in table.seconds.tolist()]),
    ]


def _line_words(image: OpenImage) -> int:
    table = image.table
    return 4 + 2 * int(table.extents.shape[1]) + int(table.words.shape[1]) - 2


def instance_text(image: OpenImage, face: OpenInterface) -> str:
    p, ranks = face.prefix, sum(len(t.kind.shape) for t in face.tensors)
    return f"""\
enum {{ UNITS = {len(image.units)}, CALLS = {len(image.table.choices)}, \
CHOICES = {image.table.choices.shape[1]}, EXTENTS = {image.table.extents.shape[1]},
       LINE = {_line_words(image)}, ROWS = {image.rows}, POINTERS = {face.pointers}, \
TENSORS = {len(face.tensors)} }};

struct {p} {{
    char *bases[POINTERS];
    char *block;
    size_t capacity;
    int32_t sized;
    int32_t chosen[CALLS];
    int32_t direct[{len(face.outputs)}];
    int64_t counts[UNITS], values[ROWS + 1], offsets[POINTERS], needed;
    int64_t shapes[{max(1, ranks)}];
    {p}_tensor tensors[TENSORS];
}};
enum {{ HEAD = (sizeof(struct {p}) + {ALIGNMENT - 1}) / {ALIGNMENT} * {ALIGNMENT} }};
"""


def _tensor_lines(face: OpenInterface) -> list[str]:
    """Inputs and outputs at the sizes, as callers have them."""
    out = []
    for number, tensor in enumerate(face.tensors):
        at, count = face.shape_place(number), len(face.inputs)
        sized = [f"m->values[{row}]" for row in tensor.port.shape]
        told = f"input({number})" if number < count else f"output({number - count})"
        nbytes = " * ".join([*sized, str(ITEM_BYTES[tensor.port.dtype])])
        out += [f"    m->shapes[{at + d}] = {text};" for d, text in enumerate(sized)]
        out += [
            f"    m->tensors[{number}] = *{face.prefix}_{told};",
            f"    m->tensors[{number}].shape = m->shapes + {at};",
            f"    m->tensors[{number}].bytes = (size_t)({nbytes});",
        ]
    return out


def _buffer_lines(image: OpenImage, face: OpenInterface) -> list[str]:
    """Where kernels write output buffers: the caller's memory where the first output in one is all
    of it, else room in the block."""
    out = [f"    m->direct[{number}] = 0;" for number in range(len(face.outputs))]
    first = FIRST_INPUT + len(image.inputs)
    for pointer, row in enumerate(image.output_bytes, first):
        number = next((n for n, t in enumerate(face.outputs) if t.port.base == pointer), None)
        room = f"end += aligned(m->values[{row}]);"
        out.append(f"    m->offsets[{pointer}] = end;")
        if number is None:
            out.append(f"    {room}")
            continue
        out.append(f"    m->direct[{number}] = {_fills(face.outputs[number], row)};")
        out.append(f"    if (!m->direct[{number}]) {room}")
    return out


def plan_text(image: OpenImage, face: OpenInterface) -> str:
    """What sizes make of an instance's head: values of rows, lines, shapes, places."""
    lines = [*_tensor_lines(face), *_buffer_lines(image, face)]
    return f"""\
static int64_t aligned(int64_t bytes)
{{
    return (bytes + {ALIGNMENT - 1}) / {ALIGNMENT} * {ALIGNMENT};
}}

static int32_t choose(const int64_t *values, int32_t first)
{{
    const int32_t *tried = choices + (ptrdiff_t)first * CHOICES;
    int32_t best = tried[0], n, k;
    double least = HUGE_VAL;
    for (n = 0; n < CHOICES; n++) {{
        const int32_t *line = lines + (ptrdiff_t)tried[n] * LINE;
        double cost = (double)values[line[0]] * seconds[tried[n]];
        for (k = 0; k < EXTENTS; k++)
            if (values[line[4 + 2 * k]] < line[5 + 2 * k]) cost = HUGE_VAL;
        if (cost < least) {{
            least = cost;
            best = tried[n];
        }}
    }}
    return best;
}}

static int32_t plan({face.prefix} *m, const int64_t *sizes)
{{
    int64_t end = 0, workspace = 0;
    int32_t n;
    m->sized = 0;
    for (n = 0; n < UNITS; n++) {{
        const int64_t *unit = units + (ptrdiff_t)n * 5;
        if (sizes[n] < unit[0] || sizes[n] > unit[1] || (sizes[n] - unit[0]) % unit[2])
            return {Code.BAD_SIZES.value};
        m->counts[n] = (sizes[n] - unit[3]) / unit[4];
    }}
    {AMOUNTS}(m->counts, m->values);
    for (n = 0; n < CALLS; n++) {{
        int64_t bytes;
        m->chosen[n] = choose(m->values, n);
        bytes = m->values[lines[(ptrdiff_t)m->chosen[n] * LINE + 1]];
        if (bytes > workspace) workspace = bytes;
    }}
    m->offsets[{ARENA}] = end;
    end += aligned(m->values[ROWS]);
    m->offsets[{WORKSPACE}] = end;
    end += aligned(workspace);
{chr(10).join(lines)}
    m->needed = end;
    return {Code.OK.value};
}}
"""


def _fills(tensor: OpenTensor, row: int) -> str:
    """A condition: that an output is all of its buffer, element by element. `row`: its bytes."""
    parts = [f"!m->values[{tensor.port.offset}]"]
    inner = ["1"]
    pairs = zip(tensor.port.shape, tensor.port.strides, strict=True)
    for extent, stride in reversed(list(pairs)):
        dense = " * ".join(inner)
        parts.append(f"(m->values[{extent}] == 1 || m->values[{stride}] == {dense})")
        inner.append(f"m->values[{extent}]")
    nbytes = " * ".join([str(ITEM_BYTES[tensor.port.dtype]), *inner[1:]])
    return " && ".join([*parts, f"m->values[{row}] == {nbytes}"])
