"""The C99 backend: programs to C with GCC's vectors, and the system's compiler to object code.

For boards without LLVM, and a second opinion on the LLVM backend. Symbols are those of
`autotune.codegen.base`; threads meet in OpenMP's parallel regions and barriers.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.codegen.base import BACKENDS, EntryCall, ObjectCode
from autotune.codegen.c.amount import amount_text, size_lines
from autotune.codegen.c.compact import CompactWriter
from autotune.codegen.c.compiler import compile_c
from autotune.codegen.c.dialect import C99
from autotune.codegen.c.float_control import ENTER, LEAVE, control_functions
from autotune.codegen.c.source import CSource, encoded_calls
from autotune.codegen.c.statement import Workspace
from autotune.errors import BuildError
from autotune.program.analysis import is_shared
from autotune.program.ir import Alloc, Buffer, For, Program, Stmt
from autotune.target import Target

_HEAD = """#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
typedef ptrdiff_t ix;"""
_INDEX_FUNCTIONS = (
    """static inline ix clamp_index(ix i, ix lo, ix hi) {
    return i < lo ? lo : i > hi ? hi : i;
}""",
    """static inline ix wrap_index(int64_t i, ix extent) {
    i = i < 0 ? i + extent : i;
    return i < 0 ? 0 : i >= extent ? extent - 1 : (ix)i;
}""",
)
_INDEX = "\n".join(_INDEX_FUNCTIONS)

_BARRIER = "#pragma omp barrier"


class _FunctionWriter(CompactWriter):
    """One program as one C function."""

    def __init__(self, program: Program, target: Target, symbol: str) -> None:
        super().__init__(C99, program, target)
        self.symbol = symbol
        self.workspace = Workspace()

    def write(self) -> None:
        for number, param in enumerate(self.program.params):
            name, kind = self.declare(param), self.helpers.type(param.dtype)
            const = "" if param.written else "const "
            self.line(f"{const}{kind} *{name} = ({const}{kind} *)p{number};")
        if symbols := self.program.symbols:
            kind = self.helpers.type("int64")
            sizes = f"((const {kind} *)p{len(self.program.params)})"
            for text in size_lines(symbols, "ix", sizes):
                self.line(text)
        body = self.program.body
        while len(body) == 1 and isinstance(body[0], Alloc) and body[0].buffer.scope == "scratch":
            self._scratch(body[0], private=False)
            body = body[0].body
        self._phases(body)

    def _phases(self, body: tuple[Stmt, ...]) -> None:
        """Statements that threads begin together, those in memory around parallel loops too."""
        for number, stmt in enumerate(body):
            if number and self.target.threads > 1:
                self.line(_BARRIER)
            self._top(stmt)

    def _top(self, stmt: Stmt) -> None:
        if self.target.threads == 1 or (isinstance(stmt, For) and stmt.kind == "parallel"):
            self.stmt(stmt)
            return
        if isinstance(stmt, Alloc) and is_shared(stmt):
            self._scratch(stmt, private=False)
            self._phases(stmt.body)
            return
        with self.block("if (thread == 0)"):
            self.stmt(stmt)

    def loop(self, loop: For) -> None:
        if loop.kind != "parallel" or loop.extent == 1 or self.target.threads == 1:
            super().loop(loop)
            return
        name, extent = self.identifier(loop.var), loop.extent
        first, limit = f"thread * {extent} / threads", f"(thread + 1) * {extent} / threads"
        with self.block(f"for (ix {name} = {first}; {name} < {limit}; {name}++)"):
            self.env[loop.var] = name
            self.body(loop.body)

    def alloc(self, stmt: Alloc) -> None:
        if stmt.buffer.scope == "register":
            self.registers(stmt)
            return
        if stmt.buffer.scope != "scratch":
            raise BuildError(f"no {stmt.buffer.scope} memory in C; use a schedule for CPUs")
        with self.block(""):
            self._scratch(stmt, private=True)
            self.body(stmt.body)

    def memory(self, nbytes: int) -> str | None:
        if self.target.threads > 1:
            return None
        words = Buffer.dense(f"memory{self.workspace.size}", "uint32", (nbytes // 4,), "scratch")
        start, _ = self.workspace.add(words)
        return f"(char *)workspace + {amount_text(start)}"

    def _scratch(self, stmt: Alloc, private: bool) -> None:
        """A place in the workspace; a private one per thread."""
        buffer = stmt.buffer
        name, kind = self.declare(buffer), self.helpers.type(buffer.dtype)
        start, size = self.workspace.add(buffer, self.target.threads if private else 1)
        own = f" + thread * {size}" if private and self.target.threads > 1 else ""
        place = f"(char *)workspace + {amount_text(start)}{own}"
        self.line(f"{kind} *{name} = ({kind} *)({place});")


def write_function(program: Program, target: Target, symbol: str) -> _FunctionWriter:
    """The program's function, written again while register buffers turn out to be arrays."""
    arrays: set[str] = set()
    while True:
        writer = _FunctionWriter(program, target, symbol)
        writer.arrays = arrays
        writer.write()
        if not writer.conflicts - arrays:
            return writer
        arrays = arrays | writer.conflicts


class CBackend:
    """CPU code through the system's C compiler."""

    name = "c"

    def source(self, program: Program, target: Target, symbol: str) -> str:
        return _source(write_function(program, target, symbol), len(program.params))

    def build(self, program: Program, target: Target, symbol: str) -> ObjectCode:
        writer = write_function(program, target, symbol)
        if target.is_source:
            return ObjectCode(
                symbol=symbol,
                code=_parts(writer, len(program.params) + bool(program.symbols)).encode(),
                workspace_bytes=writer.workspace.size,
            )
        code = compile_c(_source(writer, len(program.params)), target)
        return ObjectCode(symbol=symbol, code=code, workspace_bytes=writer.workspace.size)

    def build_entry(self, calls: Sequence[EntryCall], target: Target, symbol: str) -> bytes:
        if target.is_source:
            return encoded_calls(calls)
        return compile_c(entry_source(calls, target, symbol), target)


def _source(writer: _FunctionWriter, params: int) -> str:
    """A whole file: types, helpers, the kernel, and the function that times it."""
    writer.helpers.type("int64")
    symbol, target = writer.symbol, writer.target
    arguments = ", ".join(f"void *p{i}" for i in range(params))
    head = f"void {symbol}({arguments}, void *workspace, int64_t thread, int64_t threads)"
    given = ", ".join(f"args[{i}]" for i in range(params + 1))
    run = [
        "for (int64_t i = 0; i < repeats; i++) {",
        f"    {symbol}({given}, thread, threads);",
        *([f"    {_BARRIER}"] if target.threads > 1 else []),
        "}",
    ]
    top = [_HEAD, *writer.helpers.text(), _INDEX, ""]
    kernel = [head, "{", *writer.lines, "}", ""]
    driver = [f"void {symbol}_run(void **args, int64_t repeats)", *region(target, run), ""]
    openmp = ["#include <omp.h>"] * (target.threads > 1)
    return "\n".join([*top, *kernel, *openmp, *control_functions(target), *driver])


def _parts(writer: _FunctionWriter, params: int) -> CSource:
    """A kernel for a file of many."""
    writer.helpers.type("int64")
    return CSource(
        symbol=writer.symbol,
        params=params,
        head=(*writer.helpers.text(), *_INDEX_FUNCTIONS),
        body=tuple(writer.lines),
    )


def region(target: Target, body: Sequence[str]) -> list[str]:
    """A block of lines that every thread of the target runs, knowing `thread` and `threads`, under
    the kernels' floating-point control word."""
    body = [*ENTER, *body, LEAVE]
    if target.threads == 1:
        inside = ["const int64_t thread = 0, threads = 1;", *body]
        return ["{", *(f"    {line}" for line in inside), "}"]
    number = "const int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();"
    pragma = f"#pragma omp parallel num_threads({target.threads})"
    return ["{", pragma, "    {", *(f"        {line}" for line in (number, *body)), "    }", "}"]


def entry_source(calls: Sequence[EntryCall], target: Target, symbol: str) -> str:
    """NAME(bases): every call once, in order, with a barrier after each."""
    declared: dict[str, None] = {}
    body: list[str] = []
    for call in calls:
        kinds = ", ".join(["void *"] * len(call.args) + ["int64_t", "int64_t"])
        declared[f"void {call.symbol}({kinds});"] = None
        given = ", ".join(f"bases[{base}] + {offset}" for base, offset in call.args)
        body.append(f"{call.symbol}({given}, thread, threads);")
        body += [_BARRIER] if target.threads > 1 else []
    heads = ["#include <stdint.h>", *(["#include <omp.h>"] * (target.threads > 1))]
    heads += [*declared, *control_functions(target)]
    return "\n".join([*heads, f"void {symbol}(char **bases)", *region(target, body), ""])


BACKENDS.add("c", CBackend())
