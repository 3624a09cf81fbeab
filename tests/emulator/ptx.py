"""Inline PTX for this machine. In: LLVM IR with it. Out: the same with calls of `hopper.c`.

Operands go where the instruction's text says; an instruction that is not known is an error.
"""

from __future__ import annotations

import re

_CALL = re.compile(r'call (?P<result>void|\{[^}]*\}) asm sideeffect "(?P<words>[^"]*)", '
                   r'"[^"]*"\((?P<operands>.*)\) convergent$', re.MULTILINE)  # fmt: skip
_MAP = re.compile(r'ptr byval\([^)]*\) align 64 "nvvm\.grid_constant"')
_PLAIN = {
    "mbarrier.init.shared::cta.b64 [$0], $1;": "barrier_init",
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;": "expect",
    "mbarrier.arrive.shared::cta.b64 _, [$0];": "arrive",
    "fence.mbarrier_init.release.cluster;": "fence_init",
    "prefetch.tensormap [$0];": "prepare",
    "wgmma.fence.sync.aligned;": "wgmma_fence",
    "wgmma.commit_group.sync.aligned;": "wgmma_commit",
    r"{\0A.reg .pred done;\0Aagain:\0Ambarrier.try_wait.parity.shared::cta.b64 done, [$0], $1;"
    r"\0A@!done bra again;\0A}": "wait",
}
"""Instruction -> function, which takes the operands as they are."""
_FETCH = re.compile(
    r"cp\.async\.bulk\.tensor\.(?P<rank>\d)d\.shared::cluster\.global\.tile\.mbarrier"
    r"::complete_tx::bytes \[\$(?P<to>\d)\], \[\$(?P<map>\d), \{(?P<first>[^}]*)\}\], "
    r"\[\$(?P<barrier>\d)\];$"
)
_PRODUCT = re.compile(
    r"\{\\0A\.reg \.pred add;\\0Asetp\.ne\.b32 add, 1, 0;\\0Awgmma\.mma_async\.sync\.aligned\."
    r"m64n(?P<columns>\d+)(?P<kind>k16\.f32\.bf16\.bf16|k16\.f32\.f16\.f16|k32\.s32\.[su]8\.s8) "
    r"\{(?P<sums>[^}]*)\}, \$(?P<a>\d+), \$(?P<b>\d+), add(?P<turns>, 1, 1, 0, 0)?;\\0A\}$"
)
_KINDS = ("k16.f32.bf16.bf16", "k16.f32.f16.f16", "k32.s32.s8.s8", "k32.s32.u8.s8")
"""As `enum operands` of hopper.c numbers them."""
_BYTE_COLUMNS = {8, 16, 24, *range(32, 257, 16)}
_WAIT = re.compile(r"wgmma\.wait_group\.sync\.aligned (\d);$")
_DECLARED = """declare void @emulate_barrier_init(i32, i32)
declare void @emulate_expect(i32, i32)
declare void @emulate_arrive(i32)
declare void @emulate_wait(i32, i32)
declare void @emulate_fence_init()
declare void @emulate_prepare(ptr)
declare void @emulate_fetch(i32, ptr, i32, i32, i32, i32, i32, i32, i32)
declare void @emulate_wgmma(ptr, i64, i64, i32, i32)
declare void @emulate_wgmma_fence()
declare void @emulate_wgmma_commit()
declare void @emulate_wgmma_wait(i32)
declare void @emulate_settle(ptr, i32)
declare void @emulate_keep(ptr)
"""
_DIMS = 5


def host_asm(text: str) -> str:
    """The text without inline PTX."""
    text = _MAP.sub("ptr", text)
    if "asm sideeffect" not in text:
        return text
    made: dict[str, str] = {}
    text = _CALL.sub(lambda found: _call(found, made), text)
    return "\n".join([text, _DECLARED, *made.values()])


def _call(found: re.Match[str], made: dict[str, str]) -> str:
    words = found["words"]
    operands = found["operands"].split(", ") if found["operands"] else []
    if words in _PLAIN:
        return f"call void @emulate_{_PLAIN[words]}({found['operands']})"
    fetch = _FETCH.match(words)
    if fetch:
        first = [operands[int(name.strip(" $"))] for name in fetch["first"].split(",")]
        assert len(first) == int(fetch["rank"]), words
        given = [operands[int(fetch[name])] for name in ("to", "map", "barrier")]
        given += [f"i32 {len(first)}", *first, *["i32 0"] * (_DIMS - len(first))]
        return f"call void @emulate_fetch({', '.join(given)})"
    product, waited = _PRODUCT.match(words), _WAIT.match(words)
    if waited and found["result"] == "void":
        return f"call void @emulate_wgmma_wait(i32 {waited[1]})"
    assert not words or product or (waited and waited[1] == "0"), f"no meaning of {words}"
    item = "i32" if "i32" in found["result"] else "float"
    count = found["result"].count(item)
    name = f"emulated_{'product' if product else 'settle' if words else 'keep'}_{count}_{item}"
    if product:
        _check(product, count)
        kind = _KINDS.index(product["kind"])
        assert (item == "i32") == (kind > 1) == (not product["turns"]), "registers of another kind"
        name += f"_{kind}"
        made[name] = _changing(name, count, item, "wgmma(ptr %s, i64 %x, i64 %y, i32 "
                               f"{product['columns']}, i32 {kind})",
                               ["i64 %x", "i64 %y"])  # fmt: skip
    else:
        call = f"settle(ptr %s, i32 {count})" if words else "keep(ptr %s)"
        made[name] = _changing(name, count, item, call, [])
    return f"call {found['result']} @{name}({', '.join(operands)})"


def _check(product: re.Match[str], count: int) -> None:
    """The operands of LLVM: results, the same tied as inputs, descriptors."""
    assert product["sums"] == ", ".join(f"${i}" for i in range(count)), "registers out of order"
    assert (int(product["a"]), int(product["b"])) == (2 * count, 2 * count + 1), "descriptors"
    columns = int(product["columns"])
    assert count == columns // 2, "registers of another shape"
    assert "s32" not in product["kind"] or columns in _BYTE_COLUMNS, "no such shape of bytes"


def _changing(name: str, count: int, item: str, call: str, more: list[str]) -> str:
    """A function that changes `count` values through memory."""
    kind = f"{{{', '.join([item] * count)}}}"
    given = ", ".join([*(f"{item} %s{i}" for i in range(count)), *more])
    lines = [f"define {kind} @{name}({given}) {{", f"  %s = alloca [{count} x {item}]"]
    for i in range(count):
        lines.append(f"  %p{i} = getelementptr {item}, ptr %s, i64 {i}")
        lines.append(f"  store {item} %s{i}, ptr %p{i}")
    lines.append(f"  call void @emulate_{call}")
    last = "poison"
    for i in range(count):
        lines.append(f"  %v{i} = load {item}, ptr %p{i}")
        lines.append(f"  %r{i} = insertvalue {kind} {last}, {item} %v{i}, {i}")
        last = f"%r{i}"
    return "\n".join([*lines, f"  ret {kind} {last}", "}", ""])
