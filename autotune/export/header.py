"""`model.h`: what an exported model offers, in C99 that C++ takes too. In: a model. Out: text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autotune.export.errors import FIXED_CODES, Code, message
from autotune.export.exported import Exported
from autotune.export.interface import Frame, Interface, port_bytes
from autotune.export.open_interface import OpenInterface, OpenTensor
from autotune.runtime.image import Port
from autotune.size_ranges import Dim

_C_TYPES = {
    "float32": "float", "float64": "double", "int64": "int64_t", "int32": "int32_t",
    "int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t", "uint16": "uint16_t",
    "uint32": "uint32_t", "uint64": "uint64_t", "bool": "uint8_t (0 or 1)",
    "bfloat16": "uint16_t, the upper half of a float", "float16": "uint16_t, IEEE's half",
}  # fmt: skip


def header_text(model: Exported[Interface], name: str) -> str:
    """The whole file; `name`: of the model, for people."""
    face = model.face
    ports = [
        *_ports("input", map(_fixed, face.inputs)),
        *_ports("output", map(_fixed, face.outputs)),
    ]
    told = _Told(
        ports=ports,
        macros={
            "INPUTS": len(face.inputs),
            "OUTPUTS": len(face.outputs),
            "MEMORY_BYTES": face.memory_bytes,
        },
        codes=FIXED_CODES,
        sizes="",
        memory=_FIXED_MEMORY,
    )
    return _text(model, name, told)


def open_header_text(model: Exported[OpenInterface], name: str) -> str:
    """The same of a model of open sizes."""
    face = model.face
    lines = [
        f"   size {n}: {comment(symbol)}, {sizes}"
        for n, (symbol, sizes) in enumerate(face.symbols)
    ]
    told = _Told(
        ports=[
            *_ports("input", map(_open, face.inputs)),
            *_ports("output", map(_open, face.outputs)),
            *lines,
        ],
        macros={
            "INPUTS": len(face.inputs),
            "OUTPUTS": len(face.outputs),
            "SIZES": len(face.symbols),
        },
        codes=tuple(Code),
        sizes=_SIZES,
        memory=_OPEN_MEMORY,
    )
    return _text(model, name, told)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What headers differ in."""

    ports: Sequence[str]
    macros: Mapping[str, int]
    codes: Sequence[Code]
    sizes: str
    memory: str


_FIXED_MEMORY = """\
/* Bytes of an instance, which begins at a multiple of {upper}_MEMORY_ALIGNMENT. */
size_t {p}_memory_bytes(void);
"""
_OPEN_MEMORY = """\
/* Bytes of an instance at these sizes, 0 where they are out of range; it begins at a multiple of
   {upper}_MEMORY_ALIGNMENT. NULL: what an instance without sizes takes. */
size_t {p}_memory_bytes(const int64_t sizes[]);
"""
_SIZES = """\
/* An open size: least, least + step, ... up to most; NULL for a number out of range. In the shapes
   of {p}_input and {p}_output they are -1, and bytes are 0. */
typedef struct {p}_range {{
    const char *name;
    int64_t least, most, step;
}} {p}_range;

int32_t {p}_sizes(void);
const {p}_range *{p}_size(int32_t number);

/* Give an instance its sizes, {upper}_SIZES of them, before its first run and when they change:
   planned in microseconds, with more memory where an instance of its own has too little. */
int32_t {p}_resize({p} *instance, const int64_t sizes[]);

/* Its tensors at these sizes, until the next ones; NULL before. */
const {p}_tensor *{p}_input_of(const {p} *instance, int32_t number);
const {p}_tensor *{p}_output_of(const {p} *instance, int32_t number);

"""


def _text(model: Exported[Frame], name: str, told: _Told) -> str:
    p, own = model.face.prefix, _own_memory(model)
    upper = p.upper()
    memory, sizes = (part.format(p=p, upper=upper) for part in (told.memory, told.sizes))
    held = "NULL" if model.seal is None else f"the bytes of {p}.weights, aligned to 64"
    return f"""\
{_opening(model, name, told)}
/* An instance: its memory, where it is in a run. */
typedef struct {p} {p};

/* An input or an output. */
typedef struct {p}_tensor {{
    const char *name;
    const char *type; /* "float32", "int64", ... */
    const int64_t *shape;
    size_t bytes;
    int32_t rank;
}} {p}_tensor;

/* Compiler, target, tuning log and digest, as one line of JSON. */
const char *{p}_about(void);

/* How many there are, and what each is; NULL for a number out of range. */
int32_t {p}_inputs(void);
int32_t {p}_outputs(void);
const {p}_tensor *{p}_input(int32_t number);
const {p}_tensor *{p}_output(int32_t number);

{memory}
/* Threads that a run uses; fewer from the next instance on, if that is the only one. */
int32_t {p}_threads(void);
int32_t {p}_limit_threads(int32_t threads);

{own}/* An instance in memory of yours, which is zeroed. `weights`: {held}. */
int32_t {p}_create_in(void *memory, size_t bytes, const void *weights, {p} **made);

{sizes}/* One inference: a pointer per input and per output, in the model's order. */
int32_t {p}_run({p} *instance, const void *const inputs[], void *const outputs[]);

/* End an instance, and give back what it took. NULL is nothing. */
void {p}_destroy({p} *instance);

/* What went wrong, in one line. */
const char *{p}_error(int32_t code);

#ifdef __cplusplus
}}
#endif
#endif
"""


def _own_memory(model: Exported[Frame]) -> str:
    """The function that makes an instance in memory of its own; source code has no such memory."""
    p = model.face.prefix
    if model.target.is_source:
        return f"#define {p.upper()}_NEEDS_MEMORY 1 /* there is no {p}_create */\n\n"
    weights = (
        "NULL: the weights are in the library"
        if model.seal is None
        else f"the path of {p}.weights, which is mapped"
    )
    return f"""\
/* An instance in memory of its own. `weights`: {weights}. */
int32_t {p}_create(const char *weights, {p} **made);

"""


def _opening(model: Exported[Frame], name: str, told: _Told) -> str:
    """The top of the header: the model, and its numbers as macros."""
    p = model.face.prefix
    upper = p.upper()
    macros = "\n".join(f"#define {upper}_{word} {number}" for word, number in told.macros.items())
    codes = (
        f"    {upper}_{code.name} = {code.value}, /* {message(code)} */" for code in told.codes
    )
    return f"""\
/* {comment(name)}, compiled for {comment(model.target.name)}, {model.target.threads} thread(s).

{chr(10).join(told.ports)}

   Arrays are dense, in the order of their dimensions, in the machine's byte order. Instances share
   nothing but code and weights: each may be used by one thread at a time, and several by several
   threads at once{_turns(model)}. */
#ifndef {upper}_H
#define {upper}_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

{macros}
#define {upper}_MEMORY_ALIGNMENT 64
#define {upper}_THREADS {model.target.threads}

enum {p}_code {{
{chr(10).join(codes)}
    {upper}_CODES
}};
"""


def _turns(model: Exported[Frame]) -> str:
    return "; their runs take turns on one team of threads" if model.on_team else ""


def _fixed(port: Port) -> tuple[str, str, Sequence[int], str]:
    return port.name, port.type.dtype, port.type.shape, f", {port_bytes(port)} bytes"


def _open(tensor: OpenTensor) -> tuple[str, str, Sequence[Dim], str]:
    return tensor.port.name, tensor.port.dtype, tensor.kind.shape, ""


def _ports(side: str, ports: Iterable[tuple[str, str, Sequence[Dim], str]]) -> list[str]:
    """A line for each name, type, shape and size."""
    return [
        f"   {side} {n}: {comment(name)}, {_C_TYPES.get(dtype, dtype)}"
        f"[{comment(']['.join(map(str, shape)))}]{nbytes}"
        for n, (name, dtype, shape, nbytes) in enumerate(ports)
    ]


def comment(text: str) -> str:
    """A name that cannot end a comment or continue a line."""
    shown = "".join(c if c.isprintable() and c != "\\" else "?" for c in text)
    return shown.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")
