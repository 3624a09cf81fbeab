"""The threads that kernels run on, as LLVM text. Needs `futex`.

A team belongs to the loaded code that it runs. Its members are started by the first job, and look
for jobs: for a short while spinning, then asleep. Whoever has a job publishes it and works on it
alone from then on; members join when they get to it, and come too late without harm (see
`phase`). So a job waits for no thread to start, to wake up or to leave.

OPEN() begins to change the job, PUBLISH(function) ends it and gives its number; in between the
job's data is written to where `function(thread, number)` reads it. A member that reads data while
they change finds another number afterwards (CURRENT) and leaves. END() ends the threads; the code
must not be unloaded before. The definitions are weak: of many objects, one's are used.

Members are kept off the core of whoever publishes. Where other threads spin on the rest of the
cores, the scheduler would wake a member beside its caller, and leave it waiting there for as long
as a small model takes.
"""

from __future__ import annotations

from autotune.codegen.elf.symbols import TEAM_END
from autotune.codegen.llvm.futex import long_type, pause_lines, wait_line, wake_line
from autotune.target import Target

OPEN, PUBLISH, CURRENT = "autotune_team_open", "autotune_team_publish", "autotune_team_current"
SPINS = 3000
"""Looks for a job before a member sleeps: some fifty microseconds."""
STATE = "@autotune_team"
_JOB, _SLEEPERS, QUIT_OFFSET, _STARTED, _AWAY, FEWER_OFFSET, _FUNCTION = 0, 8, 16, 24, 32, 40, 64
"""Byte offsets in the team's state. The job's number is odd while it changes. AWAY is one more
than the number of the core that members are kept off. FEWER of the members are not started."""
_STATE_BYTES = 128
_MASK_BYTES = 128
"""Bytes of a mask of cores, as the system takes it."""


def team_text(target: Target) -> str:
    """The team and its functions. Targets of one thread need none."""
    state = STATE
    members = target.threads - 1
    return "\n".join(
        [
            "declare i32 @pthread_create(ptr, ptr, ptr, ptr)",
            "declare i32 @pthread_join(i64, ptr)",
            f"declare i32 @pthread_setaffinity_np(i64, {long_type(target)}, ptr)",
            "declare i32 @sched_getcpu()",
            f"declare i32 @sched_getaffinity(i32, {long_type(target)}, ptr)",
            f"{state} = weak global [{_STATE_BYTES} x i8] zeroinitializer, align 64",
            f"@autotune_team_members = weak global [{members} x i64] zeroinitializer, align 64",
            *_open_lines(state),
            *_place_lines(state, target),
            *_publish_lines(state, target),
            *_member_lines(state, target),
            *_end_lines(state, members, target),
        ]
    )


def _field(name: str, state: str, offset: int) -> str:
    return f"  {name} = getelementptr i8, ptr {state}, i64 {offset}"


def _open_lines(state: str) -> list[str]:
    return [
        f"define weak void @{OPEN}() nounwind {{",
        f"  %job = load atomic i64, ptr {state} monotonic, align 8",
        "  %odd = add i64 %job, 1",
        f"  store atomic i64 %odd, ptr {state} monotonic, align 8",
        "  fence release",
        "  ret void",
        "}",
        f"define weak i1 @{CURRENT}(i64 %number) nounwind {{",
        "  fence acquire",
        f"  %job = load atomic i64, ptr {state} monotonic, align 8",
        "  %same = icmp eq i64 %job, %number",
        "  ret i1 %same",
        "}",
    ]


def _publish_lines(state: str, target: Target) -> list[str]:
    """A member that cannot be started is missed by nobody: the others do its work."""
    return [
        f"define weak i64 @{PUBLISH}(ptr %function) nounwind {{",
        "entry:",
        _field("%place", state, _FUNCTION),
        "  store atomic ptr %function, ptr %place monotonic, align 8",
        f"  %job = load atomic i64, ptr {state} monotonic, align 8",
        "  %number = add i64 %job, 1",
        f"  store atomic i64 %number, ptr {state} seq_cst, align 8",
        _field("%started", state, _STARTED),
        "  %many = load i64, ptr %started",
        "  %none = icmp eq i64 %many, 0",
        "  br i1 %none, label %count, label %look",
        "count:",
        _field("%spared", state, FEWER_OFFSET),
        "  %fewer = load i64, ptr %spared",
        f"  %wanted = sub i64 {target.threads - 1}, %fewer",
        "  %any = icmp ne i64 %wanted, 0",
        "  br i1 %any, label %start, label %out",
        "start:",
        "  %i = phi i64 [ 0, %count ], [ %next, %start ]",
        "  %next = add i64 %i, 1",
        "  %slot = getelementptr i64, ptr @autotune_team_members, i64 %i",
        "  %thread = inttoptr i64 %next to ptr",
        "  %failed = call i32 @pthread_create("
        "ptr %slot, ptr null, ptr @autotune_team_member, ptr %thread)",
        "  %bad = icmp ne i32 %failed, 0",
        "  %made = select i1 %bad, i64 %i, i64 %next",
        "  %all = icmp uge i64 %next, %wanted",
        "  %stop = or i1 %bad, %all",
        "  br i1 %stop, label %note, label %start",
        "note:",
        "  store i64 %made, ptr %started",
        "  call void @autotune_team_place()",
        "  ret i64 %number",
        "look:",
        "  call void @autotune_team_place()",
        _field("%sleepers", state, _SLEEPERS),
        "  %asleep = load atomic i64, ptr %sleepers seq_cst, align 8",
        "  %awake = icmp eq i64 %asleep, 0",
        "  br i1 %awake, label %out, label %wake",
        "wake:",
        wake_line(state, target),
        "  br label %out",
        "out:",
        "  ret i64 %number",
        "}",
    ]


def _place_lines(state: str, target: Target) -> list[str]:
    """Keep the members off this thread's core, where it has others. What fails changes nothing."""
    size = f"{long_type(target)} {_MASK_BYTES}"
    return [
        "define weak void @autotune_team_place() nounwind {",
        "entry:",
        f"  %mask = alloca [{_MASK_BYTES // 8} x i64], align 8",
        _field("%away", state, _AWAY),
        _field("%started", state, _STARTED),
        "  %core = call i32 @sched_getcpu()",
        "  %wide = sext i32 %core to i64",
        "  %now = add i64 %wide, 1",
        "  %before = load i64, ptr %away",
        "  %same = icmp eq i64 %now, %before",
        "  br i1 %same, label %out, label %moved",
        "moved:",
        "  store i64 %now, ptr %away",
        f"  store [{_MASK_BYTES // 8} x i64] zeroinitializer, ptr %mask",
        f"  %got = call i32 @sched_getaffinity(i32 0, {size}, ptr %mask)",
        "  %failed = icmp slt i32 %got, 0",
        f"  %known = icmp ult i64 %wide, {_MASK_BYTES * 8}",
        "  %unknown = xor i1 %known, true",
        "  %leave = or i1 %failed, %unknown",
        "  br i1 %leave, label %out, label %clear",
        "clear:",
        "  %place = lshr i64 %wide, 3",
        "  %byte = getelementptr i8, ptr %mask, i64 %place",
        "  %old = load i8, ptr %byte",
        "  %low = and i64 %wide, 7",
        "  %shift = trunc i64 %low to i8",
        "  %bit = shl i8 1, %shift",
        "  %others = xor i8 %bit, -1",
        "  %new = and i8 %old, %others",
        "  store i8 %new, ptr %byte",
        "  br label %any",
        *_keep_lines(size),
        "out:",
        "  ret void",
        "}",
    ]


def _keep_lines(size: str) -> list[str]:
    """Keep the members on the cores of the mask, if there are any in it."""
    return [
        "any:",
        "  %w = phi i64 [ 0, %clear ], [ %following, %any ]",
        "  %sum = phi i64 [ 0, %clear ], [ %more, %any ]",
        "  %word = getelementptr i64, ptr %mask, i64 %w",
        "  %cores = load i64, ptr %word",
        "  %more = or i64 %sum, %cores",
        "  %following = add i64 %w, 1",
        f"  %left = icmp ult i64 %following, {_MASK_BYTES // 8}",
        "  br i1 %left, label %any, label %found",
        "found:",
        "  %alone = icmp eq i64 %more, 0",
        "  br i1 %alone, label %out, label %members",
        "members:",
        "  %many = load i64, ptr %started",
        "  br label %check",
        "check:",
        "  %i = phi i64 [ 0, %members ], [ %next, %set ]",
        "  %has = icmp ult i64 %i, %many",
        "  br i1 %has, label %set, label %out",
        "set:",
        "  %slot = getelementptr i64, ptr @autotune_team_members, i64 %i",
        "  %id = load i64, ptr %slot",
        f"  %ignored = call i32 @pthread_setaffinity_np(i64 %id, {size}, ptr %mask)",
        "  %next = add i64 %i, 1",
        "  br label %check",
    ]


def _member_lines(state: str, target: Target) -> list[str]:
    return [
        "define weak ptr @autotune_team_member(ptr %argument) nounwind {",
        "entry:",
        "  %thread = ptrtoint ptr %argument to i64",
        _field("%sleepers", state, _SLEEPERS),
        _field("%quit", state, QUIT_OFFSET),
        _field("%place", state, _FUNCTION),
        "  br label %idle",
        "idle:",
        "  %last = phi i64 [ 0, %entry ], [ %new, %work ]",
        "  br label %spin",
        "spin:",
        "  %spins = phi i64 [ 0, %idle ], [ %more, %stay ], [ 0, %slept ]",
        f"  %new = load atomic i64, ptr {state} acquire, align 8",
        "  %same = icmp eq i64 %new, %last",
        "  %low = and i64 %new, 1",
        "  %odd = icmp ne i64 %low, 0",
        "  %nothing = or i1 %same, %odd",
        "  br i1 %nothing, label %stay, label %job",
        "stay:",
        *pause_lines(target),
        "  %more = add i64 %spins, 1",
        f"  %short = icmp ult i64 %more, {SPINS}",
        "  br i1 %short, label %spin, label %sleep",
        "sleep:",
        "  %before = atomicrmw add ptr %sleepers, i64 1 seq_cst, align 8",
        f"  %seen = load atomic i64, ptr {state} seq_cst, align 8",
        "  %still = icmp eq i64 %seen, %last",
        "  br i1 %still, label %rest, label %slept",
        "rest:",
        "  %word = trunc i64 %seen to i32",
        wait_line(state, "%word", target),
        "  br label %slept",
        "slept:",
        "  %after = atomicrmw sub ptr %sleepers, i64 1 seq_cst, align 8",
        "  br label %spin",
        "job:",
        "  %end = load atomic i64, ptr %quit acquire, align 8",
        "  %ends = icmp ne i64 %end, 0",
        "  br i1 %ends, label %out, label %work",
        "work:",
        "  %function = load atomic ptr, ptr %place monotonic, align 8",
        "  call void %function(i64 %thread, i64 %new)",
        "  br label %idle",
        "out:",
        "  ret ptr null",
        "}",
    ]


def _end_lines(state: str, members: int, target: Target) -> list[str]:
    return [
        f"define weak void @{TEAM_END}() nounwind {{",
        "entry:",
        _field("%quit", state, QUIT_OFFSET),
        "  store atomic i64 1, ptr %quit release, align 8",
        f"  %old = atomicrmw add ptr {state}, i64 2 seq_cst, align 8",
        wake_line(state, target),
        _field("%started", state, _STARTED),
        "  %many = load i64, ptr %started",
        "  br label %check",
        "check:",
        "  %i = phi i64 [ 0, %entry ], [ %next, %join ]",
        "  %left = icmp ult i64 %i, %many",
        "  br i1 %left, label %join, label %out",
        "join:",
        f"  %slot = getelementptr [{members} x i64], ptr @autotune_team_members, i64 0, i64 %i",
        "  %id = load i64, ptr %slot",
        "  %ignored = call i32 @pthread_join(i64 %id, ptr null)",
        "  %next = add i64 %i, 1",
        "  br label %check",
        "out:",
        "  store i64 0, ptr %started",
        "  ret void",
        "}",
    ]
