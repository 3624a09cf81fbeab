"""`model.c` of a model of open sizes, in C99. In: an image whose kernels are texts, its interface.
Out: one file, as `c_text` writes it for fixed sizes.

An instance's head holds what its sizes make: values of rows, the line that each call takes,
shapes. Behind it lies a block of the caller's for what kernels work in: nothing is allocated, and
`resize` refuses sizes that need more than is there.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.codegen.c.amount import AMOUNTS
from autotune.codegen.c.source import CSource
from autotune.export.c_text import (
    HEAD,
    answer_lines,
    copier_text,
    definitions,
    flash,
    kernel_text,
    literal,
    weights_text,
)
from autotune.export.errors import Code
from autotune.export.exported import Exported
from autotune.export.open_interface import OpenInterface, OpenTensor
from autotune.memory import ALIGNMENT
from autotune.runtime.image import ARENA, CONSTANTS, FIRST_INPUT, WORKSPACE
from autotune.runtime.open_image import OpenImage
from autotune.types import ITEM_BYTES

_WORDS_A_LINE = 16
"""Numbers on a line of generated C."""
_CODES = (Code.OK, Code.BAD_MEMORY, Code.BAD_SIZES)
"""What the functions return beside BAD_ARGUMENT."""


def open_c_text(image: OpenImage, model: Exported[OpenInterface]) -> str:
    """The whole file."""
    kernels = [CSource.decode(code) for code in image.objects[:-1]]
    amounts = image.objects[-1].decode()
    parts = [
        f"/* {len(kernels)} kernels; see model.h. */",
        HEAD,
        *definitions(kernels),
        "",
        *(kernel_text(kernel) for kernel in kernels),
        weights_text(image.constants),
        amounts,
        *_tables(image),
        _instance(image, model.face),
        _call(image, kernels, model.face.prefix),
        *_questions(model),
        copier_text(),
        _plan(image, model.face),
        _create(model),
        _run(model),
    ]
    return flash("\n".join(parts), model.face.prefix)


def _array(kind: str, name: str, values: Sequence[object]) -> str:
    words = [str(value) for value in values] or ["0"]
    rows = [
        ", ".join(words[at : at + _WORDS_A_LINE]) for at in range(0, len(words), _WORDS_A_LINE)
    ]
    return f"static const {kind} {name}[{len(words)}] = {{\n{(',' + chr(10)).join(rows)}}};"


def _tables(image: OpenImage) -> list[str]:
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


def _instance(image: OpenImage, face: OpenInterface) -> str:
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


def _call(image: OpenImage, kernels: Sequence[CSource], prefix: str) -> str:
    """A line's kernel, called."""
    params = {f"{kernel.symbol}_run": kernel.params for kernel in kernels}
    cases = []
    for name, number in image.table.numbered.items():
        given = ", ".join(f"a[{n}]" for n in range(params[name] + 1))
        cases.append(f"    case {number}: {name.removesuffix('_run')}({given}); break;")
    most = max(params.values()) + 1
    return f"""\
static void call(const {prefix} *m, int32_t chosen)
{{
    const int32_t *line = lines + (ptrdiff_t)chosen * LINE;
    const int32_t *arguments = line + 4 + 2 * EXTENTS;
    char *a[{most}];
    int32_t n;
    for (n = 0; n < line[3]; n++)
        a[n] = m->bases[arguments[2 * n]] + m->values[arguments[2 * n + 1]];
    switch (line[2]) {{
{chr(10).join(cases)}
    default: break;
    }}
}}
"""


def _questions(model: Exported[OpenInterface]) -> list[str]:
    face, p = model.face, model.face.prefix
    ranges = ",\n".join(
        f"        {{{literal(name)}, {s.least}, {s.most}, {s.step}}}" for name, s in face.symbols
    )
    out = [*answer_lines(model, _CODES)]
    for side, tensors in (("input", face.inputs), ("output", face.outputs)):
        out.append(_told(p, side, tensors))
    out.append(f"""\
int32_t {p}_sizes(void) {{ return UNITS; }}

const {p}_range *{p}_size(int32_t number)
{{
    static const {p}_range ranges[] = {{
{ranges}
    }};
    return number >= 0 && number < UNITS ? &ranges[number] : 0;
}}
""")
    first = 0
    for side, tensors in (("input", face.inputs), ("output", face.outputs)):
        out.append(f"""\
const {p}_tensor *{p}_{side}_of(const {p} *instance, int32_t number)
{{
    if (!instance || !instance->sized || number < 0 || number >= {len(tensors)}) return 0;
    return &instance->tensors[{first} + number];
}}
""")
        first += len(tensors)
    return out


def _told(p: str, side: str, tensors: Sequence[OpenTensor]) -> str:
    """What is known of inputs or outputs without sizes."""
    shapes, rows = [], []
    for n, tensor in enumerate(tensors):
        dims = ["-1" if isinstance(d, str) else str(d) for d in tensor.kind.shape]
        shapes.append(f"    static const int64_t shape{n}[] = {{{', '.join(dims) or '0'}}};")
        name, kind = literal(tensor.port.name), literal(tensor.port.dtype)
        rows.append(f"        {{{name}, {kind}, shape{n}, 0, {len(dims)}}}")
    return "\n".join([
        f"int32_t {p}_{side}s(void) {{ return {len(tensors)}; }}",
        "",
        f"const {p}_tensor *{p}_{side}(int32_t number)",
        "{",
        *shapes,
        f"    static const {p}_tensor tensors[] = {{",
        ",\n".join(rows),
        "    };",
        f"    return number >= 0 && number < {len(tensors)} ? &tensors[number] : 0;",
        "}",
        "",
    ])  # fmt: skip


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


def _plan(image: OpenImage, face: OpenInterface) -> str:
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


def _create(model: Exported[OpenInterface]) -> str:
    p, first = model.face.prefix, FIRST_INPUT + len(model.face.inputs)
    placed = (ARENA, WORKSPACE, *range(first, model.face.pointers - 1))
    lines = [f"    m->bases[{n}] = m->block + m->offsets[{n}];" for n in placed]
    return f"""\
size_t {p}_memory_bytes(const int64_t sizes[])
{{
    {p} planned;
    if (!sizes) return HEAD;
    return plan(&planned, sizes) == {Code.OK.value} ? HEAD + (size_t)planned.needed : 0;
}}

int32_t {p}_create_in(void *memory, size_t bytes, const void *given, {p} **made)
{{
    {p} *m = ({p} *)memory;
    (void)given;
    if (!made) return {Code.BAD_ARGUMENT.value};
    *made = 0;
    if (!memory || (uintptr_t)memory % {ALIGNMENT} || bytes < HEAD) return {Code.BAD_MEMORY.value};
    memset(memory, 0, HEAD);
    m->block = (char *)memory + HEAD;
    m->capacity = bytes - HEAD;
    m->bases[{CONSTANTS}] = (char *)weights; /* which no kernel writes */
    m->bases[POINTERS - 1] = (char *)m->counts;
    *made = m;
    return {Code.OK.value};
}}

int32_t {p}_resize({p} *m, const int64_t sizes[])
{{
    int32_t code;
    if (!m || !sizes) return {Code.BAD_ARGUMENT.value};
    code = plan(m, sizes);
    if (code != {Code.OK.value}) return code;
    if ((uint64_t)m->needed > m->capacity) return {Code.BAD_MEMORY.value};
{chr(10).join(lines)}
    m->sized = 1;
    return {Code.OK.value};
}}

void {p}_destroy({p} *instance) {{ (void)instance; }}
"""


def _run(model: Exported[OpenInterface]) -> str:
    face, p = model.face, model.face.prefix
    checks = [f"!inputs[{n}]" for n in range(len(face.inputs))]
    checks += [f"!outputs[{n}]" for n in range(len(face.outputs))]
    none = " || ".join(["!m", "!outputs", *(["!inputs"] if face.inputs else [])])
    given = [
        f"    m->bases[{FIRST_INPUT + n}] = (char *)inputs[{n}]; /* only read */"
        for n in range(len(face.inputs))
    ]
    given += [
        f"    if (m->direct[{n}]) m->bases[{t.port.base}] = (char *)outputs[{n}];"
        for n, t in enumerate(face.outputs)
    ]
    copies = [line for n, t in enumerate(face.outputs) for line in _copied(face, n, t)]
    return f"""\
int32_t {p}_run({p} *m, const void *const inputs[], void *const outputs[])
{{
    int32_t n;
    (void)inputs;
    if ({none}) return {Code.BAD_ARGUMENT.value};
    if (!m->sized) return {Code.BAD_SIZES.value};
    if ({" || ".join(checks)}) return {Code.BAD_ARGUMENT.value};
{chr(10).join(given)}
    for (n = 0; n < CALLS; n++) call(m, m->chosen[n]);
{chr(10).join(copies)}
    return {Code.OK.value};
}}
"""


def _copied(face: OpenInterface, number: int, tensor: OpenTensor) -> list[str]:
    """An output that the kernels did not write as callers want it, in blocks that lie dense."""
    item, rank = ITEM_BYTES[tensor.port.dtype], len(tensor.kind.shape)
    shape = f"m->shapes + {face.shape_place(len(face.inputs) + number)}"
    strides = [f"m->values[{row}] * {item}" for row in tensor.port.strides] or ["0"]
    return [
        f"    if (!m->direct[{number}]) {{",
        f"        const int64_t *extents = {shape};",
        f"        int64_t strides[{max(1, rank)}], block = {item};",
        f"        int dims = {rank};",
        *(f"        strides[{axis}] = {text};" for axis, text in enumerate(strides)),
        "        while (dims && strides[dims - 1] == block) block *= extents[--dims];",
        f"        copied((char *)outputs[{number}],",
        f"               m->bases[{tensor.port.base}] + m->values[{tensor.port.offset}],",
        "               extents, strides, dims, (size_t)block);",
        "    }",
    ]
