"""`model.c`: a whole model in C99, for processors and compilers of the user's.

In: an image whose kernels are texts (see `Target.is_source`), its interface. Out: one file that
allocates nothing, calls nothing but memcpy, memset and what mathematics its kernels need, and
keeps nothing between runs outside of an instance. Vectors are those of GCC and clang.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from autotune.codegen.c.shared_kernels import SharedCall, SharedKernel, shared_kernels
from autotune.codegen.c.source import CSource, decoded_calls
from autotune.export.c_tidy import tidied
from autotune.export.errors import Code, message
from autotune.export.exported import Exported
from autotune.export.interface import CopiedOutput, Frame, Interface, port_bytes
from autotune.memory import ALIGNMENT, Bytes
from autotune.runtime.image import CONSTANTS, FIRST_INPUT, ModelImage, Port

_WORDS_A_LINE = 8
"""Numbers on a line of generated C."""
_RETURNED = (Code.OK, Code.BAD_MEMORY)
"""What the functions return beside BAD_ARGUMENT."""
HEAD = """\
#include "model.h"
#include <math.h>
#include <stddef.h>
#include <string.h>

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi" /* of vectors that static functions pass */
#endif

#ifndef MODEL_FLASH
#define MODEL_FLASH /* an attribute of the weights: __attribute__((section(".flash"))) */
#endif

typedef ptrdiff_t ix;"""
_WEIGHTS = "(char *)weights"


def c_text(image: ModelImage, model: Exported[Interface]) -> str:
    """The whole file."""
    sources = [CSource.decode(code) for code in image.objects[:-1]]
    calls = decoded_calls(image.objects[-1])
    if image.target.is_compact:
        kernels, shared = shared_kernels(sources, calls)
    else:
        kernels = tuple(SharedKernel(source=source) for source in sources)
        shared = tuple(SharedCall(call=call) for call in calls)
    rest = [
        _instance(model),
        _entry(model.face, shared),
        *_answers(model),
        _create(model),
        *([copier_text()] if model.face.copied else []),
        _run(model),
    ]
    # A name that nothing reads is a warning.
    read = any(_WEIGHTS in part for part in rest)
    parts = [
        f"/* {len(kernels)} kernels; see model.h. */",
        HEAD,
        *definitions([kernel.source for kernel in kernels]),
        "",
        *(kernel_text(kernel.source, kernel.behind) for kernel in kernels),
        *([weights_text(image.constants)] if read else []),
        *rest,
    ]
    return flash("\n".join(parts), model.face.prefix)


def flash(text: str, prefix: str) -> str:
    """The text with the macro of the weights' section named by the model's prefix."""
    return text.replace("MODEL_FLASH", f"{prefix.upper()}_FLASH")


def definitions(kernels: Iterable[CSource]) -> list[str]:
    """Types, then functions that some kernel uses, each once."""
    heads = list(dict.fromkeys(line for kernel in kernels for line in kernel.head))
    functions = [line for line in heads if line.startswith("static inline")]
    rest = [line for line in heads if not line.startswith("static inline")]
    bodies = "\n".join(line for kernel in kernels for line in kernel.body)
    kept: list[str] = []
    for text in reversed(functions):
        found = re.search(r"(\w+)\(", text.removeprefix("static inline"))
        name = found[1] if found else ""
        if re.search(rf"\b{name}\(", bodies) or any(re.search(rf"\b{name}\(", k) for k in kept):
            kept.append(text)
    return [*rest, *reversed(kept)]


def kernel_text(kernel: CSource, behind: str = "") -> str:
    """A function. `behind`: C of what it is told beside pointers."""
    pointers = "".join(f"void *p{n}, " for n in range(kernel.params))
    head = f"static void {kernel.symbol}({pointers}void *workspace{behind})"
    lines = tidied(kernel.body)
    read = set(re.findall(r"\b(?:p\d+|workspace)\b", "\n".join(lines)))
    names = (*(f"p{n}" for n in range(kernel.params)), "workspace")
    unused = [f"    (void){name};" for name in names if name not in read]
    return "\n".join([head, "{", *unused, *lines, "}", ""])


def weights_text(constants: Bytes) -> str:
    """An array of words in C, which little-endian processors read as these bytes."""
    words = np.zeros(-(-max(constants.nbytes, 4) // 4), "<u4")
    words.view(np.uint8)[: constants.nbytes] = constants
    rows = [
        ",".join(map(hex, words[at : at + _WORDS_A_LINE].tolist()))
        for at in range(0, len(words), _WORDS_A_LINE)
    ]
    aligned = f"__attribute__((aligned({ALIGNMENT})))"
    head = f"static const MODEL_FLASH {aligned} uint32_t weights[{len(words)}] = {{"
    return "\n".join([head, ",\n".join(rows), "};", ""])


def _instance(model: Exported[Interface]) -> str:
    face = model.face
    return f"struct {face.prefix} {{\n    char memory[{face.memory_bytes}];\n}};\n"


def _pointer(face: Interface, base: int) -> str:
    """Where the memory of a pointer's number begins, in a run. What is const is only read."""
    if base == CONSTANTS:
        return _WEIGHTS
    if base in face.blocks:
        return f"&instance->memory[{face.blocks[base]}]"
    if base < FIRST_INPUT + len(face.inputs):
        return f"(char *)inputs[{base - FIRST_INPUT}]"
    return f"(char *)outputs[{next(n for n, b in face.direct.items() if b == base)}]"


def _entry(face: Interface, calls: Sequence[SharedCall]) -> str:
    """All calls. Weights are named where they are, so that compilers know where kernels find
    them."""
    read = sorted({base for now in calls for base, _ in now.call.args} - {CONSTANTS})
    lines = [
        f"static void entry({face.prefix} *instance, const void *const inputs[],",
        "                  void *const outputs[])",
        "{",
    ]
    lines += [f"    char *const base{base} = {_pointer(face, base)};" for base in read]
    for now in calls:
        given = ", ".join(
            f"{'(char *)weights' if base == CONSTANTS else f'base{base}'} + {offset}"
            for base, offset in now.call.args
        )
        lines.append(f"    {now.call.symbol}({given}{now.behind});")
    unread = [f"    (void){name};" for name in ("instance", "inputs", "outputs")]
    return "\n".join([*lines, *unread, "}", ""])


def _answers(model: Exported[Interface]) -> list[str]:
    face = model.face
    size = f"size_t {face.prefix}_memory_bytes(void) {{ return {face.memory_bytes}; }}"
    out = [size, *answer_lines(model, _RETURNED)]
    for side, ports in (("input", face.inputs), ("output", face.outputs)):
        out += [_tensors(face.prefix, side, ports)]
    return out


def answer_lines(model: Exported[Frame], returned: Sequence[Code]) -> list[str]:
    """Functions of every model that only answer. `returned`: codes beside BAD_ARGUMENT."""
    p = model.face.prefix
    answers = "\n".join(
        f"    if (code == {code.value}) return {literal(message(code))};" for code in returned
    )
    return [
        f"const char *{p}_about(void) {{ return {literal(model.about)}; }}",
        f"int32_t {p}_threads(void) {{ return 1; }}",
        f"int32_t {p}_limit_threads(int32_t threads) {{ return threads == 1 ? {Code.OK.value} : "
        f"{Code.BAD_ARGUMENT.value}; }}",
        f"""
const char *{p}_error(int32_t code)
{{
{answers}
    return {literal(message(Code.BAD_ARGUMENT))};
}}
""",
    ]


def _tensors(p: str, side: str, ports: tuple[Port, ...]) -> str:
    shapes = [
        f"    static const int64_t shape{n}[] = {{{', '.join(map(str, port.type.shape)) or '0'}}};"
        for n, port in enumerate(ports)
    ]
    rows = [
        f"        {{{literal(port.name)}, {literal(port.type.dtype)}, shape{n}, "
        f"{port_bytes(port)}, {len(port.type.shape)}}}"
        for n, port in enumerate(ports)
    ]
    known = f"number >= 0 && number < {len(ports)} ? &tensors[number] : 0"
    return "\n".join(
        [
            f"int32_t {p}_{side}s(void) {{ return {len(ports)}; }}",
            f"const {p}_tensor *{p}_{side}(int32_t number)",
            "{",
            *shapes,
            f"    static const {p}_tensor tensors[] = {{",
            ",\n".join(rows),
            "    };",
            f"    return {known};",
            "}",
            "",
        ]
    )


def literal(text: str) -> str:
    """A literal of C; what is not ASCII in octal."""
    shown = "".join(
        chr(b) if 32 <= b < 127 and b not in b'"\\?' else f"\\{b:03o}" for b in text.encode()
    )
    return f'"{shown}"'


def _create(model: Exported[Interface]) -> str:
    p, face = model.face.prefix, model.face
    return f"""\
int32_t {p}_create_in(void *memory, size_t bytes, const void *given, {p} **made)
{{
    (void)given;
    if (!made) return {Code.BAD_ARGUMENT.value};
    *made = 0;
    if (!memory || (uintptr_t)memory % {ALIGNMENT} || bytes < {face.memory_bytes})
        return {Code.BAD_MEMORY.value};
    memset(memory, 0, {face.memory_bytes});
    *made = ({p} *)memory;
    return {Code.OK.value};
}}

void {p}_destroy({p} *instance) {{ (void)instance; }}
"""


def copier_text() -> str:
    return """\
static char *copied(char *to, const char *from, const int64_t *extents, const int64_t *strides,
                    int dims, size_t block)
{
    if (!dims) {
        memcpy(to, from, block);
        return to + block;
    }
    for (int64_t i = 0; i < *extents; i++)
        to = copied(to, from + i * *strides, extents + 1, strides + 1, dims - 1, block);
    return to;
}
"""


def _run(model: Exported[Interface]) -> str:
    p, face = model.face.prefix, model.face
    checks = [f"!inputs[{n}]" for n in range(len(face.inputs))]
    checks += [f"!outputs[{n}]" for n in range(len(face.outputs))]
    none = " || ".join(["!instance", "!outputs", *(["!inputs"] if face.inputs else [])])
    lines = ["    entry(instance, inputs, outputs);"]
    for each in face.copied:
        lines += _copy(face, each)
    return f"""\
int32_t {p}_run({p} *instance, const void *const inputs[], void *const outputs[])
{{
    (void)inputs;
    if ({none}) return {Code.BAD_ARGUMENT.value};
    if ({" || ".join(checks)}) return {Code.BAD_ARGUMENT.value};
{chr(10).join(lines)}
    return {Code.OK.value};
}}
"""


def _copy(face: Interface, each: CopiedOutput) -> list[str]:
    extents = ", ".join(map(str, each.extents)) or "0"
    strides = ", ".join(map(str, each.strides_bytes)) or "0"
    source = f"{_pointer(face, each.base)} + {each.offset_bytes}"
    return [
        "    {",
        f"        static const int64_t extents[] = {{{extents}}}, strides[] = {{{strides}}};",
        f"        copied((char *)outputs[{each.number}], {source}, extents, strides,",
        f"               {len(each.extents)}, {each.block_bytes});",
        "    }",
    ]
