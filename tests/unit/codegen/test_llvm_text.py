"""Register cells of functions being written, and pointers that loop passes leave alone."""

from __future__ import annotations

from autotune.codegen.llvm.text import FunctionText


def test_what_is_written_and_read_in_a_block_takes_no_memory() -> None:
    text = FunctionText("define void @f()")
    cell = text.cell("float")
    text.write(cell, "float", "%x")
    assert text.read(cell, "float") == "%x"
    text.drop([cell])
    text.branch("label %next")
    assert "alloca" not in text.text()
    assert "store" not in text.text()


def test_a_cell_outlives_its_block_in_memory() -> None:
    text = FunctionText("define void @f()")
    cell = text.cell("float")
    text.write(cell, "float", "%x")
    text.write(cell, "float", "%y")
    with text.loop("0", "4"):
        inside = text.read(cell, "float")
        text.write(cell, "float", "%z")
    lines = [line.strip() for line in text.text().splitlines()]
    assert lines.count(f"{cell} = alloca float, align 64") == 1
    first, last = (lines.index(f"store float {v}, ptr {cell}") for v in ("%y", "%z"))
    assert first < lines.index(f"{inside} = load float, ptr {cell}") < last
    assert not any("store float %x" in line for line in lines)


def test_places_that_are_no_cells_are_stored_to_at_once() -> None:
    text = FunctionText("define void @f(ptr %p)")
    text.write("%p", "float", "%x")
    assert text.read("%p", "float") != text.read("%p", "float")
    assert "store float %x, ptr %p" in text.text()


def test_a_concealed_pointer_keeps_its_name() -> None:
    text = FunctionText("define void @f(ptr %p)")
    with text.loop("0", "4") as i:
        pointer = text.hoist(1, "place", f"getelementptr float, ptr %p, i64 {i}")
        text.conceal(pointer)
        text.conceal("%p")
    written = text.text()
    assert f"{pointer}.sum = getelementptr float, ptr %p, i64 {i}" in written
    assert f"{pointer} = call ptr @llvm.strip.invariant.group.p0(ptr {pointer}.sum)" in written
    assert written.count("call") == 1
