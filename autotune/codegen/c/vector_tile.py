"""A tile of sums of products of bytes by Arm's vectors of the M profile (Helium, MVE), as ACLE's
intrinsics. In: a DotTile. Out: lines of C for compilers of processors that have them.

Four words of each row are a vector, and one instruction adds its sixteen products to a sum. There
is none for unsigned by signed bytes: unsigned ones become signed by subtracting 128, and 128 times
the sum of the other side's bytes is added at the end:

    h0 = vector of column 0; t0 += its bytes
    g = vector of row 0 ^ 128; s00 += g . h0
    ...
    s00 += 128 * t0
"""

from __future__ import annotations

from autotune.codegen.c.dot_tile import DotTile, Side

VECTORS = "#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 1)"
INTRINSICS = f"""{VECTORS}
#include <arm_mve.h>
#endif"""
_WORDS = 4
"""Words of a vector."""
_WORD_BYTES = 4


def vector_lines(tile: DotTile) -> list[str] | None:
    """C that adds all products; None where a side's words lie where no vector load takes them:
    apart, and not at multiples of four bytes."""
    held, taken, sums = tile.columns, tile.rows, tile.sums
    if len(held.offsets) > len(taken.offsets):
        held, taken, sums = taken, held, tuple(zip(*sums, strict=True))
    if tile.runs > 1 or not (_loads(held) and _loads(taken)):
        return None
    mixed = held.dtype != taken.dtype
    part = tile.words % _WORDS != 0
    lines = [
        "{",
        f"    const {held.kind} *ph = {held.pointer};",
        f"    const {taken.kind} *pg = {taken.pointer};",
        *_places("h", held),
        *_places("g", taken),
    ]
    totals = _totals(held, taken) if mixed else []
    lines += [f"    i32 {name} = 0;" for name in totals]
    lines += [
        "    i32 left;",
        f"    for (left = {tile.words}; left > 0; left -= {_WORDS}) {{",
        *(["        const mve_pred16_t now = __arm_vctp32q((u32)left);"] if part else []),
    ]
    for n in range(len(held.offsets)):
        lines += _loaded("h", n, held, mixed=mixed, part=part)
    for n in range(len(taken.offsets)):
        lines += _loaded("g", n, taken, mixed=mixed, part=part)
        signed = "u8" if held.dtype == taken.dtype == "uint8" else "s8"
        for m in range(len(held.offsets)):
            name = sums[n][m]
            if signed == "u8":
                lines.append(f"        {name} = (i32)__arm_vmladavaq_u8((u32){name}, g{n}, h{m});")
            else:
                lines.append(f"        {name} = __arm_vmladavaq_s8({name}, g{n}, h{m});")
    lines += [
        f"        ph += {_WORDS * held.step};",
        f"        pg += {_WORDS * taken.step};",
        "    }",
    ]
    if mixed:
        for n, row in enumerate(sums):
            for m, name in enumerate(row):
                total = f"th{m}" if held.dtype == "int8" else f"tg{n}"
                lines.append(f"    {name} = (i32)((u32){name} + 128u * (u32){total});")
    return [*lines, "}"]


def _loads(side: Side) -> bool:
    return side.in_turn == 1 and (side.step == _WORD_BYTES or side.aligned)


def _totals(held: Side, taken: Side) -> list[str]:
    """Sums of the signed side's bytes, by row."""
    name, side = ("h", held) if held.dtype == "int8" else ("g", taken)
    return [f"t{name}{n}" for n in range(len(side.offsets))]


def _places(name: str, side: Side) -> list[str]:
    """Where the words of a vector lie, from its first."""
    if side.step == _WORD_BYTES:
        return []
    return [f"    const uint32x4_t o{name} = "
            f"__arm_vmulq_n_u32(__arm_vidupq_n_u32(0, 1), {side.step});"]  # fmt: skip


def _loaded(name: str, number: int, side: Side, *, mixed: bool, part: bool) -> list[str]:
    """A vector of a row, as bytes that are multiplied."""
    kind = "u8" if side.dtype == "uint8" else "s8"
    vector = "uint8x16_t" if kind == "u8" else "int8x16_t"
    at = f"p{name} + {side.offsets[number]}"
    zero, given = ("_z", ", now") if part else ("", "")
    if side.step == _WORD_BYTES:
        value = f"__arm_vldrbq{zero}_{kind}({at}{given})"
    else:
        value = (
            f"__arm_vreinterpretq_{kind}_s32(__arm_vldrwq_gather_offset{zero}_s32("
            f"(const int32_t *)(const void *)({at}), o{name}{given}))"
        )
    if mixed and kind == "u8":
        flipped = f"__arm_veorq_u8({value}, __arm_vdupq_n_u8(128))"
        value, vector = f"__arm_vreinterpretq_s8_u8({flipped})", "int8x16_t"
    lines = [f"        const {vector} {name}{number} = {value};"]
    if mixed and kind == "s8":
        total = f"t{name}{number}"
        lines.append(f"        {total} = __arm_vaddvaq_s8({total}, {name}{number});")
    return lines
