"""LLVM text around kernels: the timing driver of one kernel, and the entry of a whole model.

Both open one parallel region (libgomp's C ABI) when the target has several threads; the kernels
inside only meet at barriers.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.codegen.base import EntryCall
from autotune.codegen.llvm_barrier import NAME as BARRIER
from autotune.codegen.llvm_barrier import barrier_text
from autotune.target import Target

_OPENMP = """declare void @GOMP_parallel(ptr, ptr, i32, i32)
declare i32 @omp_get_thread_num()
declare i32 @omp_get_num_threads()"""


def kernel_declaration(symbol: str, params: int) -> str:
    """Declaration of a kernel with `params` params and the workspace."""
    return f"declare void @{symbol}({', '.join(['ptr'] * (params + 1))}, i64, i64)"


def run_text(symbol: str, params: int, target: Target) -> str:
    """NAME_run(args, repeats): the kernel `repeats` times."""
    body = ["loop:", "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]"]
    pointers = []
    for i in range(params + 1):
        body.append(f"  %s{i} = getelementptr ptr, ptr %args, i64 {i}")
        body.append(f"  %a{i} = load ptr, ptr %s{i}")
        pointers.append(f"ptr %a{i}")
    given = ", ".join(pointers)
    body.append(f"  call void @{symbol}({given}, i64 %thread, i64 %threads)")
    if target.threads > 1:
        body.append(f"  call void @{BARRIER}(i64 %threads)")
    body += [
        "  %next = add i64 %i, 1",
        "  %more = icmp ult i64 %next, %repeats",
        "  br i1 %more, label %loop, label %done",
        "done:",
        "  ret void",
        "}",
    ]
    arguments = "ptr %args, i64 %repeats"
    return _region(f"{symbol}_run", arguments, body, target)


def entry_text(calls: Sequence[EntryCall], target: Target, symbol: str) -> str:
    """NAME(bases): every call once, in order, with a barrier after each."""
    declared: dict[str, str] = {}
    used = sorted({base for call in calls for base, _ in call.args})
    body = []
    for base in used:
        body.append(f"  %s{base} = getelementptr ptr, ptr %args, i64 {base}")
        body.append(f"  %b{base} = load ptr, ptr %s{base}")
    for number, call in enumerate(calls):
        declared[call.symbol] = kernel_declaration(call.symbol, len(call.args) - 1)
        pointers = []
        for position, (base, offset) in enumerate(call.args):
            name = f"%k{number}.{position}"
            body.append(f"  {name} = getelementptr i8, ptr %b{base}, i64 {offset}")
            pointers.append(f"ptr {name}")
        given = ", ".join(pointers)
        body.append(f"  call void @{call.symbol}({given}, i64 %thread, i64 %threads)")
        if target.threads > 1:
            body.append(f"  call void @{BARRIER}(i64 %threads)")
    body += ["  ret void", "}"]
    text = _region(symbol, "ptr %args", body, target)
    return "\n".join(declared.values()) + "\n" + text


def _region(symbol: str, arguments: str, body: list[str], target: Target) -> str:
    """A function whose body knows %thread and %threads, run by the target's threads.

    The team may be smaller than asked (a nested region, a thread limit): kernels take its size."""
    branch = ["  br label %loop"] if body[0].startswith("loop:") else []
    if target.threads == 1:
        first = "  %thread = add i64 0, 0\n  %threads = add i64 0, 1"
        lines = [f"define void @{symbol}({arguments}) nounwind {{", "entry:", first]
        return "\n".join([*lines, *branch, *body])
    names = [a.split()[1] for a in arguments.split(", ")]
    types = [a.split()[0] for a in arguments.split(", ")]
    team = f"ptr @{symbol}_thread, ptr %frame, i32 {target.threads}, i32 0"
    out = [
        _OPENMP,
        barrier_text(target),
        f"define internal void @{symbol}_thread(ptr %frame) nounwind {{",
        "entry:",
    ]
    out += _frame_access(names, types, store=False)
    out += [
        "  %t32 = call i32 @omp_get_thread_num()",
        "  %thread = zext i32 %t32 to i64",
        "  %n32 = call i32 @omp_get_num_threads()",
        "  %threads = zext i32 %n32 to i64",
        *branch,
        *body,
        f"define void @{symbol}({arguments}) nounwind {{",
        "entry:",
        "  %frame = alloca [4 x i64], align 16",
        *_frame_access(names, types, store=True),
        f"  call void @GOMP_parallel({team})",
        "  ret void",
        "}",
    ]
    return "\n".join(out)


def _frame_access(names: list[str], types: list[str], store: bool) -> list[str]:
    out = []
    for i, (name, kind) in enumerate(zip(names, types, strict=True)):
        out.append(f"  %f{i} = getelementptr i64, ptr %frame, i64 {i}")
        out.append(
            f"  store {kind} {name}, ptr %f{i}" if store else f"  {name} = load {kind}, ptr %f{i}"
        )
    return out
