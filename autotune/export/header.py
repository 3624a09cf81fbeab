"""`model.h`: what an exported model offers, in C99 that C++ takes too. In: a model. Out: text."""

from __future__ import annotations

from collections.abc import Iterable

from autotune.export.errors import Code, message
from autotune.export.exported import Exported
from autotune.export.interface import port_bytes
from autotune.runtime.image import Port

_C_TYPES = {
    "float32": "float", "float64": "double", "int64": "int64_t", "int32": "int32_t",
    "int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t", "uint16": "uint16_t",
    "uint32": "uint32_t", "uint64": "uint64_t", "bool": "uint8_t (0 or 1)",
    "bfloat16": "uint16_t, the upper half of a float", "float16": "uint16_t, IEEE's half",
}  # fmt: skip


def header_text(model: Exported, name: str) -> str:
    """The whole file; `name`: of the model, for people."""
    p, own = model.face.prefix, _own_memory(model)
    upper = p.upper()
    held = "NULL" if model.seal is None else f"the bytes of {p}.weights, aligned to 64"
    return f"""\
{_opening(model, name)}
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

/* Bytes of an instance, which begins at a multiple of {upper}_MEMORY_ALIGNMENT. */
size_t {p}_memory_bytes(void);

/* Threads that a run uses; fewer from the next instance on, if that is the only one. */
int32_t {p}_threads(void);
int32_t {p}_limit_threads(int32_t threads);

{own}/* An instance in memory of yours, which is zeroed. `weights`: {held}. */
int32_t {p}_create_in(void *memory, size_t bytes, const void *weights, {p} **made);

/* One inference: a pointer per input and per output, in the model's order. */
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


def _own_memory(model: Exported) -> str:
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


def _opening(model: Exported, name: str) -> str:
    """The top of the header: the model, and its numbers as macros."""
    p, face = model.face.prefix, model.face
    upper = p.upper()
    ports = [*_ports("input", face.inputs), *_ports("output", face.outputs)]
    return f"""\
/* {comment(name)}, compiled for {comment(model.target.name)}, {model.target.threads} thread(s).

{chr(10).join(ports)}

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

#define {upper}_INPUTS {len(face.inputs)}
#define {upper}_OUTPUTS {len(face.outputs)}
#define {upper}_MEMORY_BYTES {face.memory_bytes}
#define {upper}_MEMORY_ALIGNMENT 64
#define {upper}_THREADS {model.target.threads}

enum {p}_code {{
{chr(10).join(f"    {upper}_{code.name} = {code.value}, /* {message(code)} */" for code in Code)}
    {upper}_CODES
}};
"""


def _turns(model: Exported) -> str:
    return "; their runs take turns on one team of threads" if model.on_team else ""


def _ports(side: str, ports: Iterable[Port]) -> list[str]:
    return [
        f"   {side} {n}: {comment(port.name)}, {_C_TYPES.get(port.type.dtype, port.type.dtype)}"
        f"[{']['.join(map(str, port.type.shape))}], {port_bytes(port)} bytes"
        for n, port in enumerate(ports)
    ]


def comment(text: str) -> str:
    """A name that cannot end a comment or continue a line."""
    shown = "".join(c if c.isprintable() and c != "\\" else "?" for c in text)
    return shown.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")
