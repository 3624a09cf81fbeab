"""The functions of an exported model as LLVM text, so that no C compiler is needed for any target.

In: an Interface, the target, where the weights are. Out: text that defines what `model.h` declares
(see `header`). It calls libc only: mmap and its like, memcpy, and on several threads pthreads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.codegen.elf.symbols import TEAM_END
from autotune.codegen.llvm.team import OPEN, PUBLISH, STATE
from autotune.export.errors import FIXED_CODES, Code, message
from autotune.export.exported import Exported, weights_symbol
from autotune.export.instance_text import instance_lines
from autotune.export.interface import Frame, Interface, port_bytes
from autotune.export.run_text import run_lines
from autotune.export.weights_text import OFFSET_ZERO
from autotune.runtime.image import ENTRY_SYMBOL, Port

_LOCK_BYTES = 64
"""Room for a pthread_mutex_t of any C library; all zeros are its initial value on Linux."""


def api_text(model: Exported[Interface]) -> str:
    """All functions."""
    return "\n".join(
        [
            *declarations(model),
            f"declare void @{ENTRY_SYMBOL}(ptr)",
            *_texts_and_tables(model),
            *_questions(model),
            *instance_lines(model),
            *run_lines(model),
            "",
        ]
    )


def declarations(model: Exported[Frame]) -> list[str]:
    size = model.size
    out = [
        f"declare i32 @posix_memalign(ptr, {size}, {size})",
        "declare void @free(ptr)",
        f"declare i32 @madvise(ptr, {size}, i32)",
        f"declare ptr @memset(ptr, i32, {size})",
        f"declare ptr @memcpy(ptr, ptr, {size})",
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


def _texts_and_tables(model: Exported[Interface]) -> list[str]:
    face = model.face
    out = said_lines(model.about, FIXED_CODES)
    for side, ports in (("in", face.inputs), ("out", face.outputs)):
        out += tensor_lines(model, side, [told_of(port) for port in ports])
    for each in face.copied:
        for name, values in (("extents", each.extents), ("strides", each.strides_bytes)):
            out.append(f"@{name}{each.number} = internal constant {integers(values)}")
    return out


def said_lines(about: str, codes: Sequence[Code]) -> list[str]:
    """Texts: of the model, and of errors."""
    out = [text_line("about", about)]
    out += [text_line(f"error{code.value}", message(code)) for code in codes]
    errors = ", ".join(f"ptr @text.error{code.value}" for code in codes)
    out.append(f"@errors = internal constant [{len(codes)} x ptr] [{errors}]")
    return out


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldTensor:
    """What a library says of an input or output."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int


def told_of(port: Port) -> ToldTensor:
    """A port of fixed sizes as it is told."""
    kind = port.type
    return ToldTensor(name=port.name, dtype=kind.dtype, shape=kind.shape, nbytes=port_bytes(port))


def tensor_lines(model: Exported[Frame], side: str, tensors: Sequence[ToldTensor]) -> list[str]:
    """A table of `model_tensor`."""
    out, rows, kind = [], [], tensor_type(model)
    for number, tensor in enumerate(tensors):
        name = f"{side}{number}"
        out += [
            text_line(f"{name}.name", tensor.name),
            text_line(f"{name}.type", tensor.dtype),
            f"@{name}.shape = internal constant {integers(tensor.shape)}",
        ]
        rows.append(
            f"{kind} {{ptr @text.{name}.name, ptr @text.{name}.type, ptr @{name}.shape, "
            f"{model.size} {tensor.nbytes}, i32 {len(tensor.shape)}}}"
        )
    out.append(f"@{side}s = internal constant [{len(rows)} x {kind}] [{', '.join(rows)}]")
    return out


def text_line(name: str, text: str) -> str:
    data = text.encode() + b"\0"
    shown = "".join(chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:02X}" for b in data)
    return f'@text.{name} = internal constant [{len(data)} x i8] c"{shown}"'


def tensor_type(model: Exported[Frame]) -> str:
    """`model_tensor`."""
    return f"{{ptr, ptr, ptr, {model.size}, i32}}"


def integers(values: Sequence[int]) -> str:
    """An array's type and value; one zero where there are none."""
    numbers = list(values) or [0]
    return f"[{len(numbers)} x i64] [{', '.join(f'i64 {n}' for n in numbers)}]"


def _questions(model: Exported[Interface]) -> list[str]:
    """Functions that only answer."""
    face = model.face
    return [
        *answers(model, {"in": len(face.inputs), "out": len(face.outputs)}, FIXED_CODES),
        answer(f"{face.prefix}_memory_bytes", model.size, str(face.memory_bytes)),
    ]


def answers(model: Exported[Frame], ports: Mapping[str, int], codes: Sequence[Code]) -> list[str]:
    """Those of every model. `ports`: how many there are on each side."""
    prefix = model.face.prefix
    out = [
        answer(f"{prefix}_about", "ptr", "@text.about"),
        answer(f"{prefix}_threads", "i32", str(model.target.threads)),
    ]
    for side, count in ports.items():
        out.append(answer(f"{prefix}_{side}puts", "i32", str(count)))
        out += element(f"{prefix}_{side}put", f"@{side}s", count, tensor_type(model))
    return [
        *out,
        f"define ptr @{prefix}_error(i32 %code) nounwind {{",
        f"  %known = icmp ult i32 %code, {len(codes)}",
        f"  %number = select i1 %known, i32 %code, i32 {Code.BAD_ARGUMENT.value}",
        "  %place = zext i32 %number to i64",
        "  %row = getelementptr ptr, ptr @errors, i64 %place",
        "  %text = load ptr, ptr %row",
        "  ret ptr %text",
        "}",
    ]


def element(name: str, table: str, count: int, kind: str) -> list[str]:
    """A function that gives where element `number` of a table lies, NULL out of range."""
    return [
        f"define ptr @{name}(i32 %number) nounwind {{",
        f"  %known = icmp ult i32 %number, {count}",
        "  %place = zext i32 %number to i64",
        f"  %row = getelementptr {kind}, ptr {table}, i64 %place",
        "  %found = select i1 %known, ptr %row, ptr null",
        "  ret ptr %found",
        "}",
    ]


def answer(name: str, kind: str, value: str) -> str:
    """A function that gives a constant."""
    return f"define {kind} @{name}() nounwind {{\n  ret {kind} {value}\n}}"
