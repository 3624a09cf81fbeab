"""Patterns in values and statements that compact C is written by. In: values, statements. Out:
their parts, counts, whether they are of a form."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.program import ir


def upper_product(value: ir.Value) -> tuple[ir.Value, ...] | None:
    """a, b, c of (a * b + 2**31) / 2**32 + c of int32."""
    if not isinstance(value, ir.Apply) or value.fn != "add":
        return None
    factors = high_factors(value.args[0], 32)
    return None if factors is None else (*factors, value.args[1])


def high_factors(value: ir.Value, bits: int = 31) -> tuple[ir.Value, ...] | None:
    """The factors of (a * b + 2**(bits - 1)) / 2**bits of int32."""
    if not isinstance(value, ir.Apply) or value.fn != "to_int32":
        return None
    at: ir.Value = value
    steps = (("to_int32", None), ("shift_right", bits), ("add", 1 << (bits - 1)))
    for fn, last in steps:
        if not isinstance(at, ir.Apply) or at.fn != fn:
            return None
        if last is not None and at.args[-1] != ir.Const(last, "int64"):
            return None
        at = at.args[0]
    if not isinstance(at, ir.Apply) or at.fn != "mul":
        return None
    wide = [a.args[0] for a in at.args if isinstance(a, ir.Apply) and a.fn == "to_int64"]
    return tuple(wide) if len(wide) == 2 else None


def byte_load(value: ir.Value) -> ir.Load | None:
    """What is widened to 32 bits, where it is a load."""
    if isinstance(value, ir.Apply) and value.fn == "to_int32":
        (inner,) = value.args
        return inner if isinstance(inner, ir.Load) else None
    return None


def statements_of(body: tuple[ir.Stmt, ...]) -> int:
    """Lines that the body becomes, with all loops that are marked so unrolled; a `dot` is one."""
    total = 0
    for stmt in body:
        if isinstance(stmt, ir.For):
            total += statements_of(stmt.body) * (stmt.extent if stmt.kind == "unroll" else 1)
        elif isinstance(stmt, ir.If | ir.Alloc):
            total += statements_of(stmt.body)
        else:
            total += 1
    return total


def values_of(body: tuple[ir.Stmt, ...]) -> Iterator[ir.Value]:
    """Every value below the statements."""
    for stmt in ir.walk(body):
        if isinstance(stmt, ir.Store):
            yield from below(stmt.value)


def below(value: ir.Value) -> Iterator[ir.Value]:
    yield value
    if isinstance(value, ir.Apply):
        for arg in value.args:
            yield from below(arg)
    elif isinstance(value, ir.Select):
        yield from below(value.then)
        yield from below(value.other)


def is_minus_zero(value: ir.Value) -> bool:
    """Whether it is a constant that is equal to another one, and not the same."""
    return isinstance(value, ir.Const) and value.value == 0 and str(value.value).startswith("-")


def operations_of(value: ir.Value) -> Iterator[ir.Apply]:
    if isinstance(value, ir.Apply):
        yield value
        for arg in value.args:
            yield from operations_of(arg)


def leaves_of(value: ir.Apply) -> list[ir.Value]:
    """What an expression begins with, but for constants: each once."""
    found: dict[ir.Value, None] = {}
    for operation in operations_of(value):
        for arg in operation.args:
            if not isinstance(arg, ir.Apply | ir.Const):
                found[arg] = None
    return list(found)


def repeated_in(value: ir.Apply) -> list[ir.Apply]:
    """Operations that come more than once, inner ones first."""
    counts: dict[ir.Apply, int] = {}

    def visit(now: ir.Value) -> None:
        if isinstance(now, ir.Apply):
            counts[now] = counts.get(now, 0) + 1
            if counts[now] == 1:
                for arg in now.args:
                    visit(arg)

    visit(value)
    again = (v for v, count in counts.items() if count > 1)
    return sorted(again, key=lambda v: sum(1 for _ in operations_of(v)))
