"""Kernels that differ by sizes only, as one function."""

from __future__ import annotations

from autotune.codegen.base import EntryCall
from autotune.codegen.c.shared_kernels import MOST_PARAMETERS, shared_kernels
from autotune.codegen.c.source import CSource


def kernel(symbol: str, *body: str, head: tuple[str, ...] = ()) -> CSource:
    return CSource(symbol=symbol, params=1, head=head, body=body)


def call(symbol: str) -> EntryCall:
    return EntryCall(symbol=symbol, args=((0, 64),))


def loops(symbol: str, rows: int, step: int) -> CSource:
    return kernel(
        symbol,
        f"    for (ix n = 0; n < {rows}; n++) {{",
        f"        o0_[n * {step} + 1] = i0_[n * {step}] * 0x1.8p-3f + 2.5e3f + {rows + 7};",
        "    }",
        head=(symbol,),
    )


def test_numbers_that_differ_become_parameters_and_what_follows_from_them_is_worked_out() -> None:
    kernels, calls = shared_kernels(
        [loops("a", 8, 48), loops("b", 12, 16), loops("d", 9, 64), kernel("c", "    o0_[0] = 1;")],
        [call("b"), call("c"), call("a")],
    )
    first, other = kernels
    assert (first.source.symbol, first.sizes, other.sizes) == ("a", 2, 0)
    assert first.behind == ", int32_t n0, int32_t n1"
    assert first.source.head == ("a", "b", "d")
    text = "\n".join(first.source.body)
    assert (
        text
        == """\
    for (ix n = 0; n < n0; n++) {
        o0_[n * n1 + 1] = i0_[n * n1] * 0x1.8p-3f + 2.5e3f + (n0 + 7);
    }"""
    )
    assert [(now.call.symbol, now.behind) for now in calls] == [
        ("a", ", 12, 16"), ("c", ""), ("a", ", 8, 48"),
    ]  # fmt: skip
    assert all(now.call.args == ((0, 64),) for now in calls)


def test_what_a_compiler_has_to_know_stays_apart() -> None:
    """Assembler, lengths of arrays, conditions of the preprocessor, how many vectors a sum is of,
    numbers that are not whole, those of all lanes of a vector."""
    pairs = [
        ('    __asm__("ldr r0, [r1, #4]");', '    __asm__("ldr r0, [r1, #8]");'),
        ("    i32 t[4];", "    i32 t[8];"),
        ("#if X > 3", "#if X > 4"),
        ("    x = 1.5f;", "    x = 2.5f;"),
        ("    x = 128u;", "    x = 64u;"),
        ("    x4 = 0;", "    x8 = 0;"),
        ("    x = ((128) - (u8x4){0});", "    x = ((0) - (u8x4){0});"),
        ("    for (left = 4; left > 0; left -= 4) {", "    for (left = 8; left > 0; left -= 4) {"),
        ("    x = 4294967295;", "    x = 4294967294;"),
    ]
    for one, other in pairs:
        kernels, calls = shared_kernels(
            [kernel("a", one), kernel("b", other)], [call("a"), call("b")]
        )
        assert len(kernels) == 2
        assert [now.call.symbol for now in calls] == ["a", "b"]


def test_other_pointers_or_too_much_to_tell_keep_kernels_apart() -> None:
    one = kernel("a", "    x = 1;")
    two = CSource(symbol="b", params=2, head=(), body=("    x = 2;",))
    assert len(shared_kernels([one, two], [])[0]) == 2
    primes = [p for p in range(2, 100) if all(p % n for n in range(2, p))][: MOST_PARAMETERS + 1]
    many = [kernel(f"k{k}", *(f"    x = {p**k};" for p in primes)) for k in (1, 2, 4)]
    assert len(shared_kernels(many, [])[0]) == 3


def test_kernels_alike_to_the_last_number_are_one_that_is_told_nothing() -> None:
    kernels, calls = shared_kernels(
        [kernel("a", "    x = 1;"), kernel("b", "    x = 1;")], [call("b")]
    )
    assert [k.sizes for k in kernels] == [0]
    assert (calls[0].call.symbol, calls[0].behind) == ("a", "")


def test_a_size_that_one_compiler_sees_is_no_unused_one_for_others() -> None:
    lines = [("#if X", f"    x = {n};", "#else", "    x = y;", "#endif") for n in (1, 2)]
    ((first,), _) = shared_kernels([kernel(s, *b) for s, b in zip("ab", lines, strict=True)], [])
    assert first.source.body == ("    (void)n0;", "#if X", "    x = n0;", *lines[0][2:])
