"""Programs as text. In: a Program. Out: text that loses nothing; `tests/interpreter` parses it.

The grammar is that of `autotune.program.ir`, one statement a line, bodies indented by two spaces:

    program conv2d
    param i0: float32[1, 5, 5, 3] strides [147, 21, 3, 1] halo [0:0, 1:1, 1:1, 0:0]
    param c0: float32[3, 4] constant
    param o0: float32[1, 5, 5, 4] written
    pack c0: [3, 4] splits [1:2] order [1, 0, 2]
    alloc t0: float32[1, 5] scratch:
      for t0_n in 5 parallel:
        if 0 <= t0_n - 1 < 3 and 0 <= t0_n < 4:
          t0[0, t0_n] sum= mul(i0[0, 0, t0_n, 2], select(0 <= t0_n < 2, float32(1.5), c0[0, 0]))
"""

from __future__ import annotations

from autotune.program import ir
from autotune.types import dense_strides


def print_program(program: ir.Program) -> str:
    """The program as text, ending in a newline."""
    lines = [f"program {program.name}"]
    lines += [f"param {_buffer(b)}" for b in program.params]
    for pack in program.packs:
        splits = ", ".join(f"{d}:{factor}" for d, factor in pack.splits)
        text = (
            f"pack {pack.buffer}: {_list(pack.shape)} splits [{splits}] order {_list(pack.order)}"
        )
        for transform in pack.transforms:
            text += f" transform {_list(transform)}"
        if pack.strassen:
            text += f" strassen {_list(pack.strassen)}"
        if pack.dtype:
            text += f" as {pack.dtype}"
        lines.append(text)
    for stmt in program.body:
        lines.append(print_stmt(stmt))
    return "\n".join(lines) + "\n"


def print_stmt(stmt: ir.Stmt, indent: str = "") -> str:
    """A statement and its body as text."""
    if isinstance(stmt, ir.Store):
        combine = f"{stmt.combine}=" if stmt.combine else "="
        target = _element(stmt.buffer, stmt.indices)
        return f"{indent}{target} {combine} {print_value(stmt.value)}"
    if isinstance(stmt, ir.Prefetch):
        return f"{indent}prefetch {_element(stmt.buffer, stmt.indices)}"
    if isinstance(stmt, ir.Group):
        return indent + _collective(stmt)
    if isinstance(stmt, ir.For):
        head = f"for {stmt.var} in {stmt.extent} {stmt.kind}:"
    elif isinstance(stmt, ir.Alloc):
        head = f"alloc {_buffer(stmt.buffer)}:"
    else:
        head = f"if {_bounds(stmt.bounds)}:"
    return "\n".join([indent + head, *(print_stmt(s, indent + "  ") for s in stmt.body)])


def _collective(stmt: ir.Group) -> str:
    if isinstance(stmt, ir.Mma | ir.WarpgroupMma):
        word = f"wgmma {stmt.count}" if isinstance(stmt, ir.WarpgroupMma) else "mma"
        word += " across" * (isinstance(stmt, ir.Mma) and stmt.across)
        return f"{word} {', '.join(map(print_value, (stmt.total, stmt.a, stmt.b)))}"
    if isinstance(stmt, ir.Fetch):
        places = f"{print_value(stmt.to)} from {print_value(stmt.source)}"
        return f"fetch {_list(stmt.box)} {places}"
    if isinstance(stmt, ir.AsyncCopy):
        return f"copy {stmt.count} {print_value(stmt.to)} from {print_value(stmt.source)}"
    if isinstance(stmt, ir.Shuffle):
        return f"shuffle {stmt.combine} {stmt.width} {print_value(stmt.place)}"
    if isinstance(stmt, ir.AsyncWait):
        return f"wait {stmt.pending}"
    return "barrier" if isinstance(stmt, ir.Barrier) else "commit"


def print_value(value: ir.Value) -> str:
    """A value as text."""
    if isinstance(value, ir.Const):
        return f"{value.dtype}({_literal(value)})"
    if isinstance(value, ir.Load):
        return _element(value.buffer, value.indices)
    if isinstance(value, ir.Apply):
        return f"{value.fn}({', '.join(map(print_value, value.args))})"
    if isinstance(value, ir.IndexValue):
        return f"value({print_index(value.index)}, {value.dtype})"
    if isinstance(value, ir.Select):
        then, other = print_value(value.then), print_value(value.other)
        return f"select({_bounds(value.bounds)}, {then}, {other})"
    rows = ", ".join("[" + ", ".join(repr(float(v)) for v in row) + "]" for row in value.values)
    return f"table [{rows}][{print_index(value.row)}, {print_index(value.column)}]"


def print_index(value: ir.Index) -> str:
    """An index as text."""
    parts: list[str] = []
    for atom, c in value.terms:
        factor = "" if abs(c) == 1 else f"{abs(c)}*"
        parts += ["-" if c < 0 else "+", factor + _atom(atom)]
    if value.const or not parts:
        parts += ["-" if value.const < 0 else "+", str(abs(value.const))]
    sign = "-" if parts[0] == "-" else ""
    return sign + " ".join(parts[1:])


def _atom(atom: ir.Atom) -> str:
    if isinstance(atom, str):
        return atom
    if isinstance(atom, ir.LoadIndex):
        return f"int({_element(atom.buffer, atom.indices)}, {atom.extent})"
    if isinstance(atom, ir.Clamp):
        return f"clamp({print_index(atom.index)}, {atom.lo}, {atom.hi})"
    inner = print_index(atom.index)
    if len(atom.index.terms) + bool(atom.index.const) > 1:
        inner = f"({inner})"
    return f"({inner} {'//' if isinstance(atom, ir.FloorDiv) else '%'} {atom.divisor})"


def _literal(value: ir.Const) -> str:
    if value.dtype == "bool":
        return "true" if value.value else "false"
    return repr(float(value.value)) if value.dtype.startswith("float") else str(int(value.value))


def _element(buffer: str, indices: tuple[ir.Index, ...]) -> str:
    return f"{buffer}[{', '.join(map(print_index, indices))}]"


def _bounds(bounds: tuple[ir.Bound, ...]) -> str:
    return " and ".join(f"{b.lo} <= {print_index(b.index)} < {b.hi}" for b in bounds) or "true"


def _list(items: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, items))}]"


def _buffer(buffer: ir.Buffer) -> str:
    words = [f"{buffer.name}: {buffer.dtype}{_list(buffer.shape)}"]
    words += [buffer.scope] if buffer.scope != "param" else []
    words += ["constant"] if buffer.constant else []
    words += ["written"] if buffer.written else []
    words += ["odd"] if buffer.unaligned else []
    if buffer.strides != dense_strides(buffer.shape):
        words.append(f"strides {_list(buffer.strides)}")
    if buffer.swizzle:
        words.append(f"swizzle {_list(buffer.swizzle)}")
    if any(h != (0, 0) for h in buffer.halo):
        words.append(f"halo [{', '.join(f'{b}:{a}' for b, a in buffer.halo)}]")
    return " ".join(words)
