"""The functions of an exported model as LLVM text, so that no C compiler is needed for any target.

In: an Interface, the target, where the weights are. Out: text that defines what `model.h` declares
(see `header`). It calls libc only: mmap and its like, memcpy, and on several threads pthreads.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.codegen.elf.symbols import TEAM_END
from autotune.codegen.llvm.team import OPEN, PUBLISH, STATE
from autotune.export.errors import Code, message
from autotune.export.exported import Exported, weights_symbol
from autotune.export.instance_text import OFFSET_ZERO, instance_lines
from autotune.export.interface import port_bytes
from autotune.export.run_text import run_lines
from autotune.runtime.image import ENTRY_SYMBOL, Port

_LOCK_BYTES = 64
"""Room for a pthread_mutex_t of any C library; all zeros are its initial value on Linux."""


def api_text(model: Exported) -> str:
    """All functions."""
    return "\n".join(
        [
            *_declarations(model),
            *_texts_and_tables(model),
            *_questions(model),
            *instance_lines(model),
            *run_lines(model),
            "",
        ]
    )


def _declarations(model: Exported) -> list[str]:
    size = model.size
    out = [
        f"declare i32 @posix_memalign(ptr, {size}, {size})",
        "declare void @free(ptr)",
        f"declare i32 @madvise(ptr, {size}, i32)",
        f"declare ptr @memset(ptr, i32, {size})",
        f"declare ptr @memcpy(ptr, ptr, {size})",
        f"declare void @{ENTRY_SYMBOL}(ptr)",
    ]
    if model.seal is None:
        out.append(f"@{weights_symbol(model.face.prefix)} = external global i8")
    else:
        offset = ", ".join(word.split()[0] for word in OFFSET_ZERO[size].split(", "))
        out += [
            f"declare ptr @mmap(ptr, {size}, i32, i32, i32, {offset})",
            f"declare i32 @munmap(ptr, {size})",
            "declare ptr @fopen(ptr, ptr)",
            f"declare i32 @fseek(ptr, {size}, i32)",
            f"declare {size} @ftell(ptr)",
            "declare i32 @fileno(ptr)",
            "declare i32 @fclose(ptr)",
            f"declare i32 @memcmp(ptr, ptr, {size})",
        ]
    if model.on_team:
        out += [
            "declare i32 @pthread_mutex_lock(ptr)",
            "declare i32 @pthread_mutex_unlock(ptr)",
            f"declare void @{TEAM_END}()",
            f"declare void @{OPEN}()",
            f"declare i64 @{PUBLISH}(ptr)",
            f"{STATE} = external global i8",
            f"@lock = internal global [{_LOCK_BYTES} x i8] zeroinitializer, align 16",
            "@alive = internal global i64 0",
        ]
    return out


def _texts_and_tables(model: Exported) -> list[str]:
    face = model.face
    out = [_text("about", model.about)]
    out += [_text(f"error{code.value}", message(code)) for code in Code]
    errors = ", ".join(f"ptr @text.error{code.value}" for code in Code)
    out.append(f"@errors = internal constant [{len(Code)} x ptr] [{errors}]")
    for side, ports in (("in", face.inputs), ("out", face.outputs)):
        for number, port in enumerate(ports):
            out += _port_parts(f"{side}{number}", port)
        rows = [_port_row(f"{side}{n}", port, model.size) for n, port in enumerate(ports)]
        kind = f"[{len(rows)} x {_row_type(model)}]"
        out.append(f"@{side}s = internal constant {kind} [{', '.join(rows)}]")
    for each in face.copied:
        for name, values in (("extents", each.extents), ("strides", each.strides_bytes)):
            out.append(f"@{name}{each.number} = internal constant {_integers(values)}")
    return out


def _text(name: str, text: str) -> str:
    data = text.encode() + b"\0"
    shown = "".join(chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:02X}" for b in data)
    return f'@text.{name} = internal constant [{len(data)} x i8] c"{shown}"'


def _row_type(model: Exported) -> str:
    return f"{{ptr, ptr, ptr, {model.size}, i32}}"


def _port_parts(name: str, port: Port) -> list[str]:
    return [
        _text(f"{name}.name", port.name),
        _text(f"{name}.type", port.type.dtype),
        f"@{name}.shape = internal constant {_integers(port.type.shape)}",
    ]


def _port_row(name: str, port: Port, size: str) -> str:
    return (
        f"{{ptr, ptr, ptr, {size}, i32}} {{ptr @text.{name}.name, ptr @text.{name}.type, "
        f"ptr @{name}.shape, {size} {port_bytes(port)}, i32 {len(port.type.shape)}}}"
    )


def _integers(values: Sequence[int]) -> str:
    """An array's type and value; one zero where there are none."""
    numbers = list(values) or [0]
    return f"[{len(numbers)} x i64] [{', '.join(f'i64 {n}' for n in numbers)}]"


def _questions(model: Exported) -> list[str]:
    """Functions that only answer."""
    face, prefix = model.face, model.face.prefix
    out = [_answer(f"{prefix}_about", "ptr", "@text.about")]
    out.append(_answer(f"{prefix}_memory_bytes", model.size, str(face.memory_bytes)))
    out.append(_answer(f"{prefix}_threads", "i32", str(model.target.threads)))
    for side, ports in (("in", face.inputs), ("out", face.outputs)):
        out.append(_answer(f"{prefix}_{side}puts", "i32", str(len(ports))))
        out += [
            f"define ptr @{prefix}_{side}put(i32 %number) nounwind {{",
            f"  %known = icmp ult i32 %number, {len(ports)}",
            "  %place = zext i32 %number to i64",
            f"  %row = getelementptr {_row_type(model)}, ptr @{side}s, i64 %place",
            "  %found = select i1 %known, ptr %row, ptr null",
            "  ret ptr %found",
            "}",
        ]
    return [
        *out,
        f"define ptr @{prefix}_error(i32 %code) nounwind {{",
        f"  %known = icmp ult i32 %code, {len(Code)}",
        f"  %number = select i1 %known, i32 %code, i32 {Code.BAD_ARGUMENT.value}",
        "  %place = zext i32 %number to i64",
        "  %row = getelementptr ptr, ptr @errors, i64 %place",
        "  %text = load ptr, ptr %row",
        "  ret ptr %text",
        "}",
    ]


def _answer(name: str, kind: str, value: str) -> str:
    return f"define {kind} @{name}() nounwind {{\n  ret {kind} {value}\n}}"
