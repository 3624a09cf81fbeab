"""Small fixed kernels that measure the device itself: multiply-add peak and load bandwidth.

In: a target. Out: LLVM IR text of `void peak(ptr data, i64 rounds)`,
`void sweep(ptr data, i64 blocks, i64 passes)`, `void read_all(ptr data, i64 blocks)`,
`void nothing(ptr data)`, `void flush(ptr data, i64 pages, i64 lines)`.
"""

from __future__ import annotations

from autotune.codegen.llvm.entry import Word, counts, job_text, support_text
from autotune.codegen.llvm.phase import CLAIM, FINISH, phase_text
from autotune.target import Target

PEAK_UNROLL = 8
"""Multiply-adds of each chain in an iteration."""
SWEEP_VECTORS = 16
"""Vectors that one round of the sweep's inner loop loads: a block."""


def peak_chains(target: Target) -> int:
    """Independent accumulators: enough to hide the latency, few enough to stay in registers."""
    return min(16, target.vector_registers - 4)


def peak_flops_per_round(target: Target) -> int:
    return 2 * target.lanes() * peak_chains(target) * PEAK_UNROLL


def peak_text(target: Target) -> str:
    """Chains of fused multiply-adds in registers: acc = acc * m + c."""
    lanes = target.lanes()
    kind = f"<{lanes} x float>"
    name = f"llvm.fma.v{lanes}f32"
    chains = range(peak_chains(target))
    lines = [
        f"declare {kind} @{name}({kind}, {kind}, {kind})",
        "define void @peak(ptr %data, i64 %rounds) {",
        "entry:",
        f"  %m = load {kind}, ptr %data, align 64",
        f"  %next = getelementptr {kind}, ptr %data, i64 1",
        f"  %c = load {kind}, ptr %next, align 64",
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %entry ], [ %j, %loop ]",
    ]
    for n in chains:
        lines.append(f"  %a{n}.0 = phi {kind} [ %m, %entry ], [ %a{n}.{PEAK_UNROLL}, %loop ]")
    for step in range(PEAK_UNROLL):
        for n in chains:
            args = f"{kind} %a{n}.{step}, {kind} %m, {kind} %c"
            lines.append(f"  %a{n}.{step + 1} = call {kind} @{name}({args})")
    lines += [
        "  %j = add i64 %i, 1",
        "  %more = icmp ult i64 %j, %rounds",
        "  br i1 %more, label %loop, label %done",
        "done:",
    ]
    for n in chains:
        lines.append(f"  %p{n} = getelementptr {kind}, ptr %data, i64 {n + 2}")
        lines.append(f"  store {kind} %a{n}.{PEAK_UNROLL}, ptr %p{n}, align 64")
    return "\n".join([*lines, "  ret void", "}", ""])


def peak_data_bytes(target: Target) -> int:
    """Memory that `peak` reads and writes."""
    return (peak_chains(target) + 2) * target.vector_bytes


def sweep_text(target: Target) -> str:
    """Loads of every vector of a memory range, again and again, four sums."""
    kind = f"<{target.lanes()} x float>"
    sums = range(4)
    lines = [
        "define void @sweep(ptr %data, i64 %blocks, i64 %passes) {",
        "entry:",
        "  br label %pass",
        "pass:",
        "  %p = phi i64 [ 0, %entry ], [ %q, %after ]",
    ]
    lines += [f"  %o{n} = phi {kind} [ zeroinitializer, %entry ], [ %e{n}, %after ]" for n in sums]
    lines += [
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %pass ], [ %j, %loop ]",
    ]
    lines += [f"  %s{n} = phi {kind} [ %o{n}, %pass ], [ %e{n}, %loop ]" for n in sums]
    lines.append(f"  %first = mul i64 %i, {SWEEP_VECTORS}")
    for v in range(SWEEP_VECTORS):
        n = v % 4
        before = f"%s{n}" if v < 4 else f"%t{v - 4}"
        after = f"%e{n}" if v >= SWEEP_VECTORS - 4 else f"%t{v}"
        lines += [
            f"  %n{v} = add i64 %first, {v}",
            f"  %g{v} = getelementptr {kind}, ptr %data, i64 %n{v}",
            f"  %v{v} = load {kind}, ptr %g{v}, align 64",
            f"  {after} = fadd {kind} {before}, %v{v}",
        ]
    lines += [
        "  %j = add i64 %i, 1",
        "  %more = icmp ult i64 %j, %blocks",
        "  br i1 %more, label %loop, label %after",
        "after:",
        "  %q = add i64 %p, 1",
        "  %again = icmp ult i64 %q, %passes",
        "  br i1 %again, label %pass, label %done",
        "done:",
    ]
    for n in sums:
        lines.append(f"  %r{n} = getelementptr {kind}, ptr %data, i64 {n}")
        lines.append(f"  store {kind} %e{n}, ptr %r{n}, align 64")
    return "\n".join([*lines, "  ret void", "}", ""])


def read_all_text(target: Target) -> str:
    """Loads of every vector of a memory range by all threads, each its part: it goes nowhere but
    through the caches. A function that does nothing but to start the threads, and a job that only
    counts them."""
    words = target.vector_bytes // 4
    kind = f"<{words} x i32>"
    bytes_per_block = SWEEP_VECTORS * target.vector_bytes
    lines = [
        support_text(target),
        "define void @read_part(ptr %data, i64 %blocks) {",
        "entry:",
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %entry ], [ %j, %loop ]",
        f"  %first = mul i64 %i, {SWEEP_VECTORS}",
    ]
    for v in range(SWEEP_VECTORS):
        lines += [
            f"  %n{v} = add i64 %first, {v}",
            f"  %g{v} = getelementptr {kind}, ptr %data, i64 %n{v}",
            f"  %v{v} = load volatile {kind}, ptr %g{v}, align 64",
        ]
    lines += [
        "  %j = add i64 %i, 1",
        "  %more = icmp ult i64 %j, %blocks",
        "  br i1 %more, label %loop, label %done",
        "done:",
        "  ret void",
        "}",
    ]
    parts = {
        "nothing": ("ptr %data", []),
        "read_all": (
            "ptr %data, i64 %blocks",
            [
                f"  %share = udiv i64 %blocks, {target.threads}",
                f"  %step = mul i64 %share, {bytes_per_block}",
                "  %offset = mul i64 %part, %step",
                "  %own = getelementptr i8, ptr %data, i64 %offset",
                "  call void @read_part(ptr %own, i64 %share)",
            ],
        ),
    }
    lines += [_by_all(name, *part, target) for name, part in parts.items()]
    return "\n".join([*lines, _ARRIVING])


_ARRIVING = """
@arrivals = global i64 0
define void @arrive(i64 %thread, i64 %number) {
  %before = atomicrmw add ptr @arrivals, i64 1 seq_cst
  ret void
}
define i64 @arrived() {
  %count = load atomic i64, ptr @arrivals seq_cst, align 8
  ret i64 %count
}
"""
"""A job for the members of a team (see `autotune.codegen.llvm.team`), who are counted."""


def flush_text() -> str:
    """The first lines of 64 bytes of every page out of every cache, on x86."""
    return """
declare void @llvm.x86.sse2.clflush(ptr)
declare void @llvm.x86.sse2.mfence()
define void @flush(ptr %data, i64 %pages, i64 %lines) {
entry:
  br label %page
page:
  %n = phi i64 [ 0, %entry ], [ %m, %after ]
  %offset = mul i64 %n, 4096
  %start = getelementptr i8, ptr %data, i64 %offset
  br label %loop
loop:
  %i = phi i64 [ 0, %page ], [ %j, %loop ]
  %at = mul i64 %i, 64
  %line = getelementptr i8, ptr %start, i64 %at
  call void @llvm.x86.sse2.clflush(ptr %line)
  %j = add i64 %i, 1
  %more = icmp ult i64 %j, %lines
  br i1 %more, label %loop, label %after
after:
  %m = add i64 %n, 1
  %again = icmp ult i64 %m, %pages
  br i1 %again, label %page, label %done
done:
  call void @llvm.x86.sse2.mfence()
  ret void
}
"""


def _by_all(name: str, arguments: str, part: list[str], target: Target) -> str:
    """NAME(arguments): `part` for every %part from 0 to the number of threads."""
    words = [Word(kind=a.split()[0], name=a.split()[1], lines=()) for a in arguments.split(", ")]
    words += counts({name: "1"}, target)
    if target.threads == 1:
        body = ["  %part = add i64 0, 0", *part, "  br label %out"]
        return job_text(name, arguments, words, body, target)
    phase = f"ptr @{name}_phase, i64 %came0"
    claim = f"{phase}, i64 %thread, i64 %threads, i64 {target.threads}"
    body = [
        "  br label %claims",
        "claims:",
        "  %count = phi i64 [ 0, %work ], [ %counted, %next ]",
        f"  %run = call {{i64, i64}} @{CLAIM}({claim})",
        "  %first = extractvalue {i64, i64} %run, 0",
        "  %limit = extractvalue {i64, i64} %run, 1",
        "  %some = icmp ult i64 %first, %limit",
        "  br i1 %some, label %loop, label %finish",
        "loop:",
        "  %part = phi i64 [ %first, %claims ], [ %after, %loop ]",
        *part,
        "  %after = add i64 %part, 1",
        "  %again = icmp ult i64 %after, %limit",
        "  br i1 %again, label %loop, label %next",
        "next:",
        "  %ran = sub i64 %limit, %first",
        "  %counted = add i64 %count, %ran",
        "  br label %claims",
        "finish:",
        f"  call void @{FINISH}({phase}, i64 {target.threads}, i64 %count)",
        "  br label %out",
    ]
    state = [f"@{name}_calls = global i64 0", phase_text(f"{name}_phase", target)]
    return "\n".join([*state, job_text(name, arguments, words, body, target)])
