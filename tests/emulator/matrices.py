"""Intrinsics that give several values, as LLVM IR for this machine: C returns those elsewhere.

In: nothing. Out: definitions by name, which call `emulate_ldmatrix` and `emulate_mma`.
"""

from __future__ import annotations

KINDS = (
    "m16n8k32_row_col_s8", "m16n8k32_row_col_u8_s8", "m16n8k16_row_col_bf16",
    "m16n8k16_row_col_f32_f32", "m16n8k8_row_col_tf32",
)  # fmt: skip
"""As `enum kind` of emulator.c numbers them."""
DECLARED = """declare void @emulate_ldmatrix(ptr, ptr, i32)
declare void @emulate_ldmatrix_turned(ptr, ptr, i32)
declare void @emulate_mma(ptr, ptr, ptr, i32)
"""


def definitions() -> dict[str, str]:
    out = {}
    for count in (2, 4):
        name = f"emu_ldmatrix_sync_aligned_m8n8_x{count}_b16_p3"
        body = [f"  call void @emulate_ldmatrix(ptr %p, ptr %o, i32 {count})"]
        out[name] = _function(name, "ptr %p", "i32", count, body)
    name = "emu_ldmatrix_sync_aligned_m8n8_x2_trans_b16_p3"
    body = ["  call void @emulate_ldmatrix_turned(ptr %p, ptr %o, i32 2)"]
    out[name] = _function(name, "ptr %p", "i32", 2, body)
    for number, shape in enumerate(KINDS):
        name = f"emu_mma_{shape}"
        out[name] = _mma(name, number)
    return out


def _mma(name: str, number: int) -> str:
    kind = "i32" if name.endswith("s8") else "float"
    word = "<2 x half>" if name.endswith("f32_f32") else "i32"
    parts = (("a", word, 4), ("b", word, 2), ("o", kind, 4))
    body = ["  %a = alloca [4 x i32]", "  %b = alloca [2 x i32]"]
    for array, item, count in parts:
        for i in range(count):
            body.append(f"  %{array}p{i} = getelementptr {item}, ptr %{array}, i64 {i}")
            body.append(f"  store {item} %{array}{i}, ptr %{array}p{i}")
    body.append(f"  call void @emulate_mma(ptr %a, ptr %b, ptr %o, i32 {number})")
    given = [f"{item} %{array}{i}" for array, item, count in parts for i in range(count)]
    return _function(name, ", ".join(given), kind, 4, body)


def _function(name: str, arguments: str, kind: str, count: int, body: list[str]) -> str:
    """A function that gives `count` values, which `body` leaves in %o."""
    result = f"{{{', '.join([kind] * count)}}}"
    lines = [f"define {result} @{name}({arguments}) {{", f"  %o = alloca [4 x {kind}]", *body]
    last = "poison"
    for i in range(count):
        lines.append(f"  %q{i} = getelementptr {kind}, ptr %o, i64 {i}")
        lines.append(f"  %v{i} = load {kind}, ptr %q{i}")
        lines.append(f"  %r{i} = insertvalue {result} {last}, {kind} %v{i}, {i}")
        last = f"%r{i}"
    return "\n".join([*lines, f"  ret {result} {last}", "}", ""])
