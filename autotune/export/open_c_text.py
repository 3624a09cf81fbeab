"""`model.c` of a model of open sizes, in C99. In: an image whose kernels are texts, its interface.
Out: one file, as `c_text` writes it for fixed sizes.

An instance's head holds what its sizes make: values of rows, the line that each call takes,
shapes. Behind it lies a block of the caller's for what kernels work in: nothing is allocated, and
`resize` refuses sizes that need more than is there.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.codegen.base import CONTROL, PLACED, REPEATED
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
from autotune.export.open_c_plan import instance_text, plan_text, table_lines
from autotune.export.open_interface import OpenInterface, OpenTensor
from autotune.memory import ALIGNMENT
from autotune.runtime.image import ARENA, CONSTANTS, FIRST_INPUT, WORKSPACE
from autotune.runtime.open_image import OpenImage
from autotune.types import ITEM_BYTES

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
        *table_lines(image),
        instance_text(image, model.face),
        _call(image, kernels, model.face.prefix),
        *_questions(model),
        copier_text(),
        plan_text(image, model.face),
        _create(model),
        _run(image, model),
    ]
    return flash("\n".join(parts), model.face.prefix)


def _call(image: OpenImage, kernels: Sequence[CSource], prefix: str) -> str:
    """A line's kernel, called."""
    params = {f"{kernel.symbol}_run": kernel.params for kernel in kernels}
    cases = []
    table = image.table
    placing = PLACED in table.drivers
    for name, number in table.numbered.items():
        if name in CONTROL:
            continue
        given = ", ".join(f"a[{n}]" for n in range(params[name] + 1))
        cases.append(f"    case {number}: {name.removesuffix('_run')}({given}); break;")
    most = max(*params.values(), int(table.words[:, 1].max())) + 1
    if placing:
        cases.append(f"""\
    case {table.numbered[PLACED]}:
        for (n = 0; n < line[3]; n += 2) m->bases[arguments[2 * n + 2]] = a[n];
        break;""")
    return f"""\
static void call({"" if placing else "const "}{prefix} *m, int32_t chosen)
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


def _create(model: Exported[OpenInterface]) -> str:
    p, first = model.face.prefix, FIRST_INPUT + len(model.face.inputs)
    placed = (ARENA, WORKSPACE, *range(first, model.face.counts))
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
    m->bases[{model.face.counts}] = (char *)m->counts;
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


def _calls(image: OpenImage) -> str:
    """All calls, those that are repeated again and again."""
    if REPEATED not in image.table.drivers:
        return "    for (n = 0; n < CALLS; n++) call(m, m->chosen[n]);"
    return f"""\
    for (n = 0; n < CALLS; n++) {{
        const int32_t *line = lines + (ptrdiff_t)m->chosen[n] * LINE;
        const int32_t *arguments = line + 4 + 2 * EXTENTS;
        if (line[2] != {image.table.numbered[REPEATED]}) {{
            call(m, m->chosen[n]);
        }} else if (++trip < m->values[arguments[1]]) {{
            n -= (int32_t)m->values[arguments[3]] + 1;
        }} else {{
            trip = 0;
        }}
    }}"""


def _run(image: OpenImage, model: Exported[OpenInterface]) -> str:
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
{"    int64_t trip = 0;" + chr(10) if REPEATED in image.table.drivers else ""}    (void)inputs;
    if ({none}) return {Code.BAD_ARGUMENT.value};
    if (!m->sized) return {Code.BAD_SIZES.value};
    if ({" || ".join(checks)}) return {Code.BAD_ARGUMENT.value};
{chr(10).join(given)}
{_calls(image)}
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
