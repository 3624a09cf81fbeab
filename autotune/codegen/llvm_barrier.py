"""The barrier between kernels, as LLVM text.

A thread that waits spins shortly, then gives its core away again and again. libgomp's own barrier
spins for milliseconds first: on a machine that does other work too, the thread that is waited for
may need that very core, and every barrier then costs a scheduler's time slice.
"""

from __future__ import annotations

from autotune.target import Target

NAME = "autotune_barrier"
SPINS = 2000
"""Looks at the flag before the first yield: some ten microseconds."""


def barrier_text(target: Target) -> str:
    """The function NAME(threads) and its state, private to the object it is written into."""
    pause = target.triple.startswith(("x86_64", "i386", "i686"))
    return "\n".join(
        [
            "declare i32 @sched_yield()",
            *(["declare void @llvm.x86.sse2.pause()"] if pause else []),
            f"@{NAME}_arrived = internal global i64 0, align 64",
            f"@{NAME}_round = internal global i64 0, align 64",
            f"define internal void @{NAME}(i64 %threads) nounwind noinline {{",
            "entry:",
            f"  %round = load atomic i64, ptr @{NAME}_round acquire, align 8",
            f"  %before = atomicrmw add ptr @{NAME}_arrived, i64 1 acq_rel",
            "  %arrived = add i64 %before, 1",
            "  %last = icmp eq i64 %arrived, %threads",
            "  br i1 %last, label %open, label %wait",
            "open:",
            f"  store atomic i64 0, ptr @{NAME}_arrived monotonic, align 8",
            "  %following = add i64 %round, 1",
            f"  store atomic i64 %following, ptr @{NAME}_round release, align 8",
            "  ret void",
            "wait:",
            "  %spin = phi i64 [ 0, %entry ], [ %spun, %again ]",
            f"  %now = load atomic i64, ptr @{NAME}_round acquire, align 8",
            "  %same = icmp eq i64 %now, %round",
            "  br i1 %same, label %stay, label %done",
            "stay:",
            f"  %short = icmp ult i64 %spin, {SPINS}",
            "  br i1 %short, label %pause, label %give",
            "pause:",
            *(["  call void @llvm.x86.sse2.pause()"] if pause else []),
            "  br label %again",
            "give:",
            "  %ignored = call i32 @sched_yield()",
            "  br label %again",
            "again:",
            "  %spun = add i64 %spin, 1",
            "  br label %wait",
            "done:",
            "  ret void",
            "}",
        ]
    )
