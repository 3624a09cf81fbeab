"""Objects loaded by ourselves: what runs, what is refused, and pages that are written or run."""

from __future__ import annotations

import ctypes
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.codegen.elf import loader as elf_loader
from autotune.codegen.elf.image import ElfImage, Memory
from autotune.codegen.elf.loader import ElfLibrary, Runtime, this_machine
from autotune.codegen.elf.objects import read_elf
from autotune.codegen.llvm.backend import compile_text
from autotune.errors import BuildError
from autotune.target import Target, host_target, load_target

TEXT = """
@table = internal constant [4 x i64] [i64 10, i64 20, i64 30, i64 40]
@count = global i64 5
@cells = global [1000 x i64] zeroinitializer, align 64
declare ptr @memset(ptr, i32, i64)
declare i64 @other(i64)
define i64 @kernel(i64 %n) {
  %slot = getelementptr [4 x i64], ptr @table, i64 0, i64 %n
  %value = load i64, ptr %slot
  %count = load i64, ptr @count
  %more = add i64 %count, 1
  store i64 %more, ptr @count
  %ignored = call ptr @memset(ptr @cells, i32 1, i64 8000)
  %last = getelementptr [1000 x i64], ptr @cells, i64 0, i64 999
  %filled = load i64, ptr %last
  %low = and i64 %filled, 255
  %a = add i64 %value, %more
  %b = add i64 %a, %low
  %c = call i64 @other(i64 %b)
  ret i64 %c
}
"""
OTHER = "define i64 @other(i64 %n) {\n  %twice = mul i64 %n, 2\n  ret i64 %twice\n}\n"


@pytest.fixture(scope="module")
def target() -> Target:
    return host_target()


@pytest.fixture(scope="module")
def codes(target: Target) -> tuple[bytes, bytes]:
    return compile_text(TEXT, target), compile_text(OTHER, target)


def test_code_constants_data_and_calls_work(codes: tuple[bytes, bytes]) -> None:
    library = ElfLibrary(codes)
    kernel = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library.address("kernel"))
    assert [kernel(2), kernel(3)] == [2 * (30 + 6 + 1), 2 * (40 + 7 + 1)]


def test_no_page_is_written_and_run(codes: tuple[bytes, bytes]) -> None:
    library = ElfLibrary(codes)
    rights = {}
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, flags = line.split()[:2]
        first, last = (int(x, 16) for x in span.split("-"))
        for symbol in ("kernel", "count"):
            if first <= library.address(symbol) < last:
                rights[symbol] = flags[:3]
    assert rights == {"kernel": "r-x", "count": "rw-"}


def test_a_function_that_is_not_there_is_an_error(codes: tuple[bytes, bytes]) -> None:
    with pytest.raises(BuildError, match="no function nothing"):
        ElfLibrary(codes).address("nothing")


def test_objects_get_nothing_from_outside_but_the_runtime(target: Target) -> None:
    text = OTHER.replace("mul i64 %n, 2", "call i64 @system(i64 %n)")
    text = f"declare i64 @system(i64)\n{text}"
    with pytest.raises(BuildError, match="'system', which boards do not offer"):
        ElfLibrary([compile_text(text, target)])


def test_the_runtime_is_what_kernels_call() -> None:
    runtime = Runtime()
    assert all(map(runtime.address, ("memset", "expf", "pthread_create", "syscall")))
    assert not any(map(runtime.address, ("system", "dlopen", "mprotect", "fork", "open")))


def test_a_missing_runtime_library_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = {"libnothing.so.7": elf_loader.RUNTIME["libc.so.6"]}
    monkeypatch.setattr(elf_loader, "RUNTIME", offered)
    with pytest.raises(BuildError, match=r"needs libnothing\.so\.7; install libnothing"):
        Runtime().address("memset")


def test_one_name_twice_is_refused(codes: tuple[bytes, bytes]) -> None:
    with pytest.raises(BuildError, match="other is defined twice"):
        ElfLibrary([*codes, codes[1]])


def test_code_for_another_machine_is_refused() -> None:
    board = load_target("riscv64-v")
    with pytest.raises(BuildError, match=f"for {this_machine()}, got riscv64"):
        ElfLibrary([compile_text(OTHER, board)])


@pytest.mark.parametrize("name", ["cortex-a72", "cortex-a7", "riscv64-v", "x86-64-v3"])
def test_objects_of_every_board_are_laid_out(name: str) -> None:
    board = load_target(name)
    machine = read_elf(compile_text(OTHER, board)).machine
    codes = [compile_text(TEXT, board), compile_text(OTHER, board)]
    image = laid_out(codes, machine, base=0x40_0000, runtime=lambda _: 0x10_0000)
    assert image.address("kernel") != image.address("other")


def test_what_is_too_far_away_for_a_call_goes_through_a_stub() -> None:
    board, far = load_target("cortex-a72"), 0x7F00_1234_5678
    codes = [compile_text(TEXT, board), compile_text(OTHER, board)]
    image = laid_out(codes, "aarch64", base=0x40_0000, runtime=lambda _: far)
    assert struct.pack("<Q", far) in bytes(image.memory)
    near = laid_out(codes, "aarch64", base=0x40_0000, runtime=lambda _: 0x50_0000)
    assert struct.pack("<Q", 0x50_0000) not in bytes(near.memory)


def laid_out(
    codes: list[bytes], machine: str, *, base: int, runtime: Callable[[str], int | None]
) -> ElfImage:
    def allocate(size: int) -> tuple[Memory, int]:
        return bytearray(size), base

    return ElfImage(codes, machine=machine, runtime=runtime, allocate=allocate)


# ----------------------------------------------------------------------------------------- hostile


@pytest.fixture(scope="module")
def sound() -> bytes:
    """An object for x86-64, whatever this machine is."""
    return compile_text(TEXT, load_target("x86-64-v3"))


def refused(code: bytes, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        laid_out([code], "x86_64", base=1 << 40, runtime=lambda _: (1 << 40) + 64)


def header(code: bytes, at: int, kind: str, value: int) -> bytes:
    """The object with one field of its file header changed."""
    size = struct.calcsize(kind)
    return code[:at] + struct.pack(kind, value) + code[at + size :]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda c: c[:0], "something else"),
        (lambda c: c[:60], "within its header"),
        (lambda c: header(c, 16, "<H", 3), "relocatable object"),
        (lambda c: header(c, 18, "<H", 8), "got ELF machine 8"),
        (lambda c: header(c, 4, "<B", 1), "relocatable object"),
        (lambda c: header(c, 40, "<Q", 1 << 60), "lie outside of it"),
        (lambda c: header(c, 58, "<H", 63), "section table"),
        (lambda c: header(c, 60, "<H", 0), "section table"),
        (lambda c: header(c, 60, "<H", 65535), "section table"),
        (lambda c: header(c, 62, "<H", 9999), "section table"),
    ],
)  # fmt: skip
def test_a_damaged_header_is_refused(
    sound: bytes, damage: Callable[[bytes], bytes], message: str
) -> None:
    refused(damage(sound), message)


def sections(code: bytes) -> list[tuple[int, list[int]]]:
    """(offset of the header, its fields) of every section."""
    start, count = struct.unpack_from("<Q", code, 40)[0], struct.unpack_from("<H", code, 60)[0]
    return [
        (start + 64 * n, list(struct.unpack_from("<IIQQQQIIQQ", code, start + 64 * n)))
        for n in range(count)
    ]


def changed(code: bytes, pick: Callable[[list[int]], bool], field: int, value: int) -> bytes:
    """The object with a field changed in the header of the first section that is picked."""
    at, fields = next((a, f) for a, f in sections(code) if pick(f))
    fields[field] = value
    return code[:at] + struct.pack("<IIQQQQIIQQ", *fields) + code[at + 64 :]


def is_code(fields: list[int]) -> bool:
    return bool(fields[2] & 4)


def of_kind(kind: int) -> Callable[[list[int]], bool]:
    return lambda fields: fields[1] == kind


@pytest.mark.parametrize(
    ("pick", "field", "value", "message"),
    [
        (is_code, 2, 7, "both written and run"),
        (is_code, 2, 0x406, "thread-local"),
        (is_code, 8, 3, "alignment of 3"),
        (is_code, 8, 1 << 40, "alignment"),
        (is_code, 5, 1 << 62, "takes 46116"),
        (is_code, 4, 1 << 62, "lie outside"),
        (of_kind(8), 5, 1 << 62, "takes 46116"),
        (of_kind(2), 5, 25, "malformed"),
        (of_kind(2), 6, 9999, "no string table"),
        (of_kind(2), 1, 1, "one symbol table, got 0"),
        (of_kind(4), 9, 8, "malformed"),
        (of_kind(4), 5, 1 << 62, "malformed"),
        (of_kind(4), 6, 0, "no symbol table"),
    ],
)
def test_a_damaged_section_is_refused(
    sound: bytes,
    pick: Callable[[list[int]], bool],
    field: int,
    value: int,
    message: str,
) -> None:
    refused(changed(sound, pick, field, value), message)


def relocation(code: bytes, offset: int, kind: int, symbol: int) -> bytes:
    """The object with its first relocation replaced."""
    _, fields = next(s for s in sections(code) if s[1][1] == 4)
    entry = struct.pack("<QQq", offset, symbol << 32 | kind, 0)
    return code[: fields[4]] + entry + code[fields[4] + 24 :]


@pytest.mark.parametrize(
    ("offset", "kind", "symbol", "message"),
    [
        (1 << 40, 2, 1, "out of bounds"),
        (0, 2, 1 << 20, "out of bounds"),
        (0, 77, 0, "relocation 77 of x86_64"),
        (0, 2, 1, "absolute address"),
        (0, 2, 0, "too far away"),
    ],
)
def test_a_damaged_relocation_is_refused(
    sound: bytes, offset: int, kind: int, symbol: int, message: str
) -> None:
    refused(relocation(sound, offset, kind, symbol), message)


def test_a_relocation_may_not_reach_beyond_its_section(sound: bytes) -> None:
    elf = read_elf(sound)
    first = elf.relocations[0]
    end = len(elf.sections[first.section].data)
    refused(relocation(sound, end - 2, 24, first.symbol), "beyond its section")


@pytest.mark.parametrize("name", ["cortex-a72", "cortex-a7", "riscv64-v", "x86-64-v3"])
def test_no_damage_gets_further_than_an_error(name: str) -> None:
    """Random bytes changed, and objects cut short: refused, or laid out within their memory."""
    board, generator = load_target(name), random.Random(7)
    whole = compile_text(TEXT.replace("call i64 @other(i64 %b)", "add i64 %b, 1"), board)
    machine, errors = read_elf(whole).machine, 0
    for number in range(600):
        code = bytearray(whole)
        if number % 3:
            for _ in range(generator.randrange(1, 6)):
                code[generator.randrange(len(code))] = generator.randrange(256)
        else:
            del code[generator.randrange(len(code)) :]
        try:
            laid_out([bytes(code)], machine, base=0x40_0000, runtime=lambda _: 0x10_0000)
        except BuildError:
            errors += 1
    assert errors > 200
