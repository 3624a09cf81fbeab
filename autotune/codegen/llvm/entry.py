"""LLVM text around kernels: the timing driver of one kernel, and the entry of a whole model.

Both are jobs: a function that every thread of the team runs, making all the calls, and data that
it reads first. On one thread the function is simply called. Each thread is under the kernels'
floating-point control word as long as it works on the job. Calls of a kernel are numbered through
the life of the process (its `epoch`, counted by NAME_calls), so that a thread that comes late
knows what is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.codegen.base import EntryCall
from autotune.codegen.llvm import float_control
from autotune.codegen.llvm.futex import declarations
from autotune.codegen.llvm.phase import phases_text
from autotune.codegen.llvm.team import CURRENT, OPEN, PUBLISH, team_text
from autotune.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A value that a job's threads read: its type, its name, how the caller gets it."""

    kind: str
    name: str
    lines: tuple[str, ...]


def support_text(target: Target) -> str:
    """What jobs need; on several threads also what kernels call."""
    lines = float_control.declarations(target)
    if target.threads > 1:
        lines += [*declarations(target), phases_text(target), team_text(target)]
    return "\n".join(lines)


def run_text(symbol: str, params: int, target: Target, sizes: int = 0) -> str:
    """NAME_run(args, repeats): the kernel `repeats` times. `params`: of tensors; where there are
    `sizes`, a pointer to so many comes after these, and the workspace last."""
    pointers = [f"ptr %b{i}" for i in range(params + bool(sizes) + 1)]
    own: list[str] = []
    if sizes and target.threads > 1:
        words, own = _tensors_and_sizes(params, sizes)
        pointers[params] = "ptr %sizes"
    else:
        words = [argument(i) for i in range(len(pointers))]
    words += [Word(kind="i64", name="%repeats", lines=()), *counts({symbol: "%repeats"}, target)]
    body = [
        *own,
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %work ], [ %next, %loop ]",
        "  %epoch = add i64 %came0, %i",
        _call(symbol, pointers, "%epoch"),
        "  %next = add i64 %i, 1",
        "  %more = icmp ult i64 %next, %repeats",
        "  br i1 %more, label %loop, label %out",
    ]
    counter = f"@{symbol}_calls = global i64 0\n" if target.threads > 1 else ""
    return counter + job_text(f"{symbol}_run", "ptr %args, i64 %repeats", words, body, target)


def _tensors_and_sizes(params: int, sizes: int) -> tuple[list[Word], list[str]]:
    """A kernel's arguments with sizes by value, and how a thread puts these where the kernel looks
    for them. Where they came from may hold those of another run when a late thread gets there: it
    would find iterations that nobody has claimed."""
    place = argument(params)
    words = [argument(i) for i in (*range(params), params + 1)]
    own = [f"  %sizes = alloca [{sizes} x i64]"]
    for n in range(sizes):
        load = (
            f"  %from{n} = getelementptr i64, ptr {place.name}, i64 {n}",
            f"  %size{n} = load i64, ptr %from{n}",
        )
        lines = load if n else (*place.lines, *load)
        words.append(Word(kind="i64", name=f"%size{n}", lines=lines))
        own += [
            f"  %to{n} = getelementptr i64, ptr %sizes, i64 {n}",
            f"  store i64 %size{n}, ptr %to{n}",
        ]
    return words, own


def entry_text(calls: Sequence[EntryCall], target: Target, symbol: str) -> str:
    """NAME(bases): every call once, in order."""
    times = Counter(call.symbol for call in calls)
    numbers = {name: number for number, name in enumerate(times)}
    made: Counter[str] = Counter()
    declared: dict[str, str] = {}
    words = [argument(i) for i in sorted({base for call in calls for base, _ in call.args})]
    words += counts({name: str(count) for name, count in times.items()}, target)
    body = []
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
    body.append("  br label %out")
    if target.threads > 1:
        declared |= {f"{name}_calls": f"@{name}_calls = external global i64" for name in times}
    head = [support_text(target), *declared.values()]
    return "\n".join([*head, job_text(symbol, "ptr %args", words, body, target)])


def _declaration(symbol: str, params: int) -> str:
    """A kernel with `params` params and the workspace."""
    return f"declare void @{symbol}({', '.join(['ptr'] * (params + 1))}, i64, i64, i64)"


def _call(symbol: str, pointers: Sequence[str], epoch: str) -> str:
    given = ", ".join(pointers)
    return f"  call void @{symbol}({given}, i64 %thread, i64 %threads, i64 {epoch})"


def argument(number: int) -> Word:
    """%bN: a pointer of the caller's array."""
    place = f"  %s{number} = getelementptr ptr, ptr %args, i64 {number}"
    lines = (place, f"  %b{number} = load ptr, ptr %s{number}")
    return Word(kind="ptr", name=f"%b{number}", lines=lines)


def counts(calls: dict[str, str], target: Target) -> list[Word]:
    """%cameN: calls of kernel N before this job, which makes `calls` of it."""
    out = []
    for number, (kernel, count) in enumerate(calls.items()):
        name = f"%came{number}"
        lines: tuple[str, ...] = (f"  {name} = add i64 0, 0",)
        if target.threads > 1:
            lines = (
                f"  {name} = load i64, ptr @{kernel}_calls",
                f"  %m{number} = add i64 {name}, {count}",
                f"  store i64 %m{number}, ptr @{kernel}_calls",
            )
        out.append(Word(kind="i64", name=name, lines=lines))
    return out


def job_text(
    symbol: str, arguments: str, words: Sequence[Word], body: Sequence[str], target: Target
) -> str:
    """NAME(arguments): runs the body, which knows the words, %thread and %threads."""
    gather = [line for word in words for line in word.lines]
    enter, leave = float_control.enter_lines(target), float_control.leave_lines(target)
    work = ["work:", f"  %threads = add i64 0, {target.threads}", *body]
    work += ["out:", *leave, "  ret void", "}"]
    aligned, head = _stack_aligned(target), f"define void @{symbol}({arguments})"
    if target.threads == 1:
        thread = ["  %thread = add i64 0, 0", "  br label %work"]
        head = f"{head} {aligned}nounwind {{\nentry:"
        return "\n".join([head, *gather, *enter, *thread, *work])
    places = [
        f"  %w{i} = getelementptr i64, ptr @{symbol}_data, i64 {i}" for i in range(len(words))
    ]
    given = [f"  store {word.kind} {word.name}, ptr %w{i}" for i, word in enumerate(words)]
    taken = [f"  {word.name} = load {word.kind}, ptr %w{i}" for i, word in enumerate(words)]
    return "\n".join(
        [
            f"@{symbol}_data = internal global [{len(words)} x i64] zeroinitializer, align 64",
            f"define internal void @{symbol}_job(i64 %thread, i64 %number) {aligned}nounwind {{",
            "entry:",
            *(line for pair in zip(places, taken, strict=True) for line in pair),
            *enter,
            f"  %current = call i1 @{CURRENT}(i64 %number)",
            "  br i1 %current, label %work, label %out",
            *work,
            f"{head} nounwind {{",
            "entry:",
            *gather,
            f"  call void @{OPEN}()",
            *(line for pair in zip(places, given, strict=True) for line in pair),
            f"  %number = call i64 @{PUBLISH}(ptr @{symbol}_job)",
            f"  call void @{symbol}_job(i64 0, i64 %number)",
            "  ret void",
            "}",
        ]
    )


def _stack_aligned(target: Target) -> str:
    """Kernels keep the vectors that registers lack on the stack, which callers align to 16 bytes:
    where it is no more, wider ones lie in two cache lines, and kernels took up to 1.4 times as
    long (Zen 4) in the processes whose stack begins so. A kernel that aligned it would lose a
    register; whoever calls it can."""
    wide = target.vector_bytes > 16 and target.triple.startswith("x86_64")
    return f"alignstack({target.vector_bytes}) " if wide else ""
