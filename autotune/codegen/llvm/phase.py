"""Work sharing among the threads of a team, as LLVM text. Needs `futex`.

A phase is a top-level statement of a kernel. Its iterations are cut into one run per thread, and
every run into a few pieces. A thread claims the pieces of its own run, then what is left of the
others', and goes on as soon as all pieces are done. So it waits for work, never for a thread: one
that lost its core to another process delays the piece it is in, and nobody waits for it to arrive.

State of a phase: the number of iterations ever done, then one word per thread for its run, a cache
line each. A word holds the call's number (`epoch`) and the pieces claimed in it; an older number
means none. Nothing is ever reset, so a thread that comes late sees at once that all is claimed.
"""

from __future__ import annotations

from autotune.codegen.llvm.futex import pause_lines, wait_line, wake_line
from autotune.target import Target

CLAIM, FINISH = "autotune_claim", "autotune_finish"
PIECES = 8
"""Pieces of a thread's run: a claim costs some ten nanoseconds, while a piece too large leaves the
others idle at the end."""
ITERATIONS = 1 << 31
"""Counted of a phase whose extent differs from call to call, whatever it is: more than any has."""
SPINS = 6000
"""Looks at a phase's state before the thread sleeps: some hundred microseconds."""
_LINE_BYTES = 64
"""Bytes between words that different threads write: a cache line."""
_SLEEPERS = 8
"""Offset of the number of threads asleep, beside the number of iterations."""
_CLAIMED_BITS = 8
"""Low bits of a run's word, which count its claimed pieces; the rest is the number of the call."""


def phase_text(name: str, target: Target) -> str:
    """The state of one phase."""
    words = (target.threads + 1) * _LINE_BYTES // 8
    return f"@{name} = internal global [{words} x i64] zeroinitializer, align {_LINE_BYTES}"


def phases_text(target: Target) -> str:
    """The functions that kernels call, private to the object they are written into.

    CLAIM(phase, epoch, thread, threads, extent) gives iterations first .. limit-1 to run, none
    where everything is claimed; FINISH(phase, epoch, extent, count) adds the iterations that this
    thread ran and returns when all are done."""
    return "\n".join([_CLAIM_TEXT, *_finish_lines(target)])


_CLAIM_TEXT = f"""define internal {{i64, i64}} @{CLAIM}(ptr %phase, i64 %epoch, i64 %thread, \
i64 %threads, i64 %extent) nounwind noinline {{
entry:
  br label %owner
owner:
  %k = phi i64 [ 0, %entry ], [ %following, %next ]
  %shifted = add i64 %thread, %k
  %round = icmp uge i64 %shifted, %threads
  %wrapped = sub i64 %shifted, %threads
  %owned = select i1 %round, i64 %wrapped, i64 %shifted
  %cut = mul i64 %owned, %extent
  %end = add i64 %cut, %extent
  %first = udiv i64 %cut, %threads
  %limit = udiv i64 %end, %threads
  %length = sub i64 %limit, %first
  %upward = add i64 %length, {PIECES - 1}
  %piece = udiv i64 %upward, {PIECES}
  %line = add i64 %owned, 1
  %offset = mul i64 %line, {_LINE_BYTES}
  %word = getelementptr i8, ptr %phase, i64 %offset
  %start = load atomic i64, ptr %word monotonic, align 8
  br label %look
look:
  %seen = phi i64 [ %start, %owner ], [ %found, %claim ]
  %of = lshr i64 %seen, {_CLAIMED_BITS}
  %late = icmp ugt i64 %of, %epoch
  br i1 %late, label %none, label %count
count:
  %current = icmp eq i64 %of, %epoch
  %low = and i64 %seen, {(1 << _CLAIMED_BITS) - 1}
  %claimed = select i1 %current, i64 %low, i64 0
  %at = mul i64 %claimed, %piece
  %left = icmp ult i64 %at, %length
  br i1 %left, label %claim, label %next
claim:
  %high = shl i64 %epoch, {_CLAIMED_BITS}
  %more = add i64 %claimed, 1
  %wanted = or i64 %high, %more
  %pair = cmpxchg ptr %word, i64 %seen, i64 %wanted monotonic monotonic, align 8
  %found = extractvalue {{i64, i1}} %pair, 0
  %mine = extractvalue {{i64, i1}} %pair, 1
  br i1 %mine, label %give, label %look
next:
  %following = add i64 %k, 1
  %others = icmp ult i64 %following, %threads
  br i1 %others, label %owner, label %none
none:
  ret {{i64, i64}} zeroinitializer
give:
  %from = add i64 %first, %at
  %to = add i64 %from, %piece
  %past = icmp ugt i64 %to, %limit
  %until = select i1 %past, i64 %limit, i64 %to
  %half = insertvalue {{i64, i64}} zeroinitializer, i64 %from, 0
  %run = insertvalue {{i64, i64}} %half, i64 %until, 1
  ret {{i64, i64}} %run
}}"""


def _finish_lines(target: Target) -> list[str]:
    return [
        f"define internal void @{FINISH}(ptr %phase, i64 %epoch, i64 %extent, i64 %count) "
        "nounwind noinline {",
        "entry:",
        f"  %sleepers = getelementptr i8, ptr %phase, i64 {_SLEEPERS}",
        "  %calls = add i64 %epoch, 1",
        "  %all = mul i64 %calls, %extent",
        "  %some = icmp ne i64 %count, 0",
        "  br i1 %some, label %add, label %spin",
        "add:",
        "  %old = atomicrmw add ptr %phase, i64 %count seq_cst, align 8",
        "  %total = add i64 %old, %count",
        "  %last = icmp uge i64 %total, %all",
        "  br i1 %last, label %wake, label %spin",
        "wake:",
        "  %asleep = load atomic i64, ptr %sleepers seq_cst, align 8",
        "  %nobody = icmp eq i64 %asleep, 0",
        "  br i1 %nobody, label %out, label %call",
        "call:",
        wake_line("%phase", target),
        "  br label %out",
        "spin:",
        "  %spins = phi i64 [ 0, %entry ], [ 0, %add ], [ %more, %stay ]",
        "  %now = load atomic i64, ptr %phase acquire, align 8",
        "  %done = icmp uge i64 %now, %all",
        "  br i1 %done, label %out, label %stay",
        "stay:",
        *pause_lines(target),
        "  %more = add i64 %spins, 1",
        f"  %short = icmp ult i64 %more, {SPINS}",
        "  br i1 %short, label %spin, label %sleep",
        "sleep:",
        "  %before = atomicrmw add ptr %sleepers, i64 1 seq_cst, align 8",
        "  br label %look",
        "look:",
        "  %seen = load atomic i64, ptr %phase seq_cst, align 8",
        "  %over = icmp uge i64 %seen, %all",
        "  br i1 %over, label %awake, label %rest",
        "rest:",
        "  %low = trunc i64 %seen to i32",
        wait_line("%phase", "%low", target),
        "  br label %look",
        "awake:",
        "  %after = atomicrmw sub ptr %sleepers, i64 1 seq_cst, align 8",
        "  br label %out",
        "out:",
        "  ret void",
        "}",
    ]
