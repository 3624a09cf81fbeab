"""LLVM text around kernels: the timing driver of one kernel, and the entry of a whole model.

Both open one parallel region (libgomp's C ABI) when the target has several threads, in which every
thread makes all the calls. Calls of a kernel are numbered through the life of the process (its
`epoch`, counted by NAME_calls), so that a thread that comes late knows what is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from autotune.codegen.base import EntryCall
from autotune.target import Target

_OPENMP = """declare void @GOMP_parallel(ptr, ptr, i32, i32)
declare i32 @omp_get_thread_num()
declare i32 @omp_get_num_threads()"""


def run_text(symbol: str, params: int, target: Target) -> str:
    """NAME_run(args, repeats): the kernel `repeats` times."""
    body = [*_count_load(0), "  br label %loop", "loop:"]
    body.append("  %i = phi i64 [ 0, %entry ], [ %next, %loop ]")
    pointers = []
    for i in range(params + 1):
        body.append(f"  %s{i} = getelementptr ptr, ptr %args, i64 {i}")
        body.append(f"  %a{i} = load ptr, ptr %s{i}")
        pointers.append(f"ptr %a{i}")
    body += [
        "  %epoch = add i64 %came0, %i",
        _call(symbol, pointers, "%epoch"),
        "  %next = add i64 %i, 1",
        "  %more = icmp ult i64 %next, %repeats",
        "  br i1 %more, label %loop, label %done",
        "done:",
        "  ret void",
        "}",
    ]
    counter = f"@{symbol}_calls = global i64 0\n" if target.threads > 1 else ""
    arguments = ("ptr %args", "i64 %repeats")
    return counter + _region(f"{symbol}_run", arguments, body, target, {symbol: "%repeats"})


def entry_text(calls: Sequence[EntryCall], target: Target, symbol: str) -> str:
    """NAME(bases): every call once, in order."""
    times = Counter(call.symbol for call in calls)
    numbers = {name: number for number, name in enumerate(times)}
    made: Counter[str] = Counter()
    declared: dict[str, str] = {}
    used = sorted({base for call in calls for base, _ in call.args})
    body = [line for number in numbers.values() for line in _count_load(number)]
    for base in used:
        body.append(f"  %s{base} = getelementptr ptr, ptr %args, i64 {base}")
        body.append(f"  %b{base} = load ptr, ptr %s{base}")
    for number, call in enumerate(calls):
        declared[call.symbol] = _declaration(call.symbol, len(call.args) - 1)
        pointers = []
        for position, (base, offset) in enumerate(call.args):
            name = f"%k{number}.{position}"
            body.append(f"  {name} = getelementptr i8, ptr %b{base}, i64 {offset}")
            pointers.append(f"ptr {name}")
        body.append(f"  %e{number} = add i64 %came{numbers[call.symbol]}, {made[call.symbol]}")
        body.append(_call(call.symbol, pointers, f"%e{number}"))
        made[call.symbol] += 1
    body += ["  ret void", "}"]
    if target.threads > 1:
        declared |= {f"{name}_calls": f"@{name}_calls = external global i64" for name in times}
    counts = {name: str(count) for name, count in times.items()}
    return (
        "\n".join(declared.values()) + "\n" + _region(symbol, ("ptr %args",), body, target, counts)
    )


def _declaration(symbol: str, params: int) -> str:
    """A kernel with `params` params and the workspace."""
    return f"declare void @{symbol}({', '.join(['ptr'] * (params + 1))}, i64, i64, i64)"


def _call(symbol: str, pointers: Sequence[str], epoch: str) -> str:
    given = ", ".join(pointers)
    return f"  call void @{symbol}({given}, i64 %thread, i64 %threads, i64 {epoch})"


def _count_load(number: int) -> list[str]:
    """%cameN: how many calls of the kernel came before this region."""
    place = f"  %c{number} = getelementptr i64, ptr %counts, i64 {number}"
    return [place, f"  %came{number} = load i64, ptr %c{number}"]


def _region(
    symbol: str,
    arguments: Sequence[str],
    body: list[str],
    target: Target,
    counts: dict[str, str],
) -> str:
    """A function whose body knows %thread, %threads and %counts, run by the target's threads.

    `counts`: kernel -> calls the body makes. The team may be smaller than asked (a nested region,
    a thread limit): kernels take its size."""
    signature = f"{symbol}({', '.join(arguments)}) nounwind"
    snapshot = f"  %counts = alloca [{len(counts)} x i64], align 16"
    if target.threads == 1:
        given = "  %thread = add i64 0, 0\n  %threads = add i64 0, 1"
        zero = f"  store [{len(counts)} x i64] zeroinitializer, ptr %counts"
        return "\n".join([f"define void @{signature} {{", "entry:", given, snapshot, zero, *body])
    frame = [*arguments, "ptr %counts"]
    team = f"ptr @{symbol}_thread, ptr %frame, i32 {target.threads}, i32 0"
    return "\n".join(
        [
            _OPENMP,
            f"define internal void @{symbol}_thread(ptr %frame) nounwind {{",
            "entry:",
            *_frame_access(frame, store=False),
            "  %t32 = call i32 @omp_get_thread_num()",
            "  %thread = zext i32 %t32 to i64",
            "  %n32 = call i32 @omp_get_num_threads()",
            "  %threads = zext i32 %n32 to i64",
            *body,
            f"define void @{signature} {{",
            "entry:",
            snapshot,
            *_count_calls(counts),
            "  %frame = alloca [4 x i64], align 16",
            *_frame_access(frame, store=True),
            f"  call void @GOMP_parallel({team})",
            "  ret void",
            "}",
        ]
    )


def _count_calls(counts: dict[str, str]) -> list[str]:
    """Note how many calls came before, and count those of this region."""
    out = []
    for number, (kernel, calls) in enumerate(counts.items()):
        out += [
            f"  %came{number} = load i64, ptr @{kernel}_calls",
            f"  %c{number} = getelementptr i64, ptr %counts, i64 {number}",
            f"  store i64 %came{number}, ptr %c{number}",
            f"  %m{number} = add i64 %came{number}, {calls}",
            f"  store i64 %m{number}, ptr @{kernel}_calls",
        ]
    return out


def _frame_access(arguments: Sequence[str], store: bool) -> list[str]:
    out = []
    for i, argument in enumerate(arguments):
        kind, name = argument.split()
        out.append(f"  %f{i} = getelementptr i64, ptr %frame, i64 {i}")
        out.append(
            f"  store {argument}, ptr %f{i}" if store else f"  {name} = load {kind}, ptr %f{i}"
        )
    return out
