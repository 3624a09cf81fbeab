"""Loops whose time tells one thing of a machine. In: widths and instructions. Out: LLVM IR text.

`void NAME(ptr data, i64 rounds)` works in registers and the innermost cache, `void NAME(ptr data,
i64 blocks, i64 passes)` goes through memory. Nothing here can be computed ahead of time: loads are
volatile or depend on what was loaded, chains depend on values that only memory knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

UNROLL = 8
"""Instructions of each chain in an iteration: the counter costs nothing beside them."""
SLOT_BYTES = 64
"""Operands and results of chains lie so far apart."""
BLOCK_VECTORS = 16
"""Vectors that one round of a pass through memory moves."""
CLOCK_STEPS = 64
"""Dependent additions in a round of `clock`."""
LINE_BYTES = 64
"""Bytes of a cache line."""

Emit = Callable[[str, str, str, str], Sequence[str]]
"""(result, old, a, b) to the lines of one instruction."""


def function(
    name: str, carried: Sequence[tuple[str, str]], start: Sequence[str], body: Sequence[str],
    after: Sequence[str],
) -> str:  # fmt: skip
    """A loop of %rounds rounds. `carried`: (type, name) of values that begin as %NAME.first, enter
    a round as %NAME and leave it as %NAME.next."""
    return "\n".join([
        f"define void @{name}(ptr %data, i64 %rounds) {{",
        "entry:",
        *start,
        "  br label %loop",
        "loop:",
        "  %round = phi i64 [ 0, %entry ], [ %more, %loop ]",
        *(f"  %{v} = phi {kind} [ %{v}.first, %entry ], [ %{v}.next, %loop ]"
          for kind, v in carried),
        *body,
        "  %more = add i64 %round, 1",
        "  %again = icmp ult i64 %more, %rounds",
        "  br i1 %again, label %loop, label %done",
        "done:",
        *after,
        "  ret void",
        "}",
        "",
    ])  # fmt: skip


def slot(name: str, kind: str, number: int) -> list[str]:
    """%NAME loaded from the slot of the data."""
    at = f"%{name}.at"
    return [
        f"  {at} = getelementptr i8, ptr %data, i64 {SLOT_BYTES * number}",
        f"  %{name} = load {kind}, ptr {at}, align {SLOT_BYTES}",
    ]


def kept(values: Sequence[tuple[str, str]], first: int) -> list[str]:
    """Values stored to slots, so that they are wanted."""
    out = []
    for number, (kind, value) in enumerate(values, first):
        out += [
            f"  %keep{number} = getelementptr i8, ptr %data, i64 {SLOT_BYTES * number}",
            f"  store {kind} %{value}, ptr %keep{number}, align {SLOT_BYTES}",
        ]
    return out


def chains_text(
    name: str, kinds: tuple[str, str, str], emit: Emit, chains: int, declared: str = ""
) -> str:
    """`chains` independent chains, UNROLL instructions of each a round. `kinds`: types of the
    result and of the operands; slots 0 and 1 hold these, slot 2 what every chain begins with."""
    result, *operands = kinds
    start = [*slot("a", operands[0], 0), *slot("b", operands[1], 1), *slot("x", result, 2)]
    start += [f"  %c{n}.first = bitcast {result} %x to {result}" for n in range(chains)]
    body: list[str] = []
    for step in range(UNROLL):
        for n in range(chains):
            old = f"%c{n}" if step == 0 else f"%c{n}.{step}"
            new = f"%c{n}.next" if step == UNROLL - 1 else f"%c{n}.{step + 1}"
            body += emit(new, old, "%a", "%b")
    values = [(result, f"c{n}") for n in range(chains)]
    after = kept([(result, f"c{n}.next") for n in range(chains)], 3)
    return "\n".join([declared, function(name, values, start, body, after)])


def chains_bytes(chains: int) -> int:
    """Memory that chains read and write."""
    return (3 + chains) * SLOT_BYTES


def clock_text(name: str, lanes: int = 0) -> str:
    """A chain of additions and exclusive ors of two numbers that only memory knows: a cycle each.
    `lanes`: beside it, a multiply-add of that many float32 per four of them."""
    start = [*slot("c", "i64", 0), *slot("d", "i64", 1), *slot("x.first", "i64", 2)]
    kind, wide = f"<{lanes} x float>", [f"w{n}" for n in range(8 if lanes else 0)]
    if lanes:
        start += slot("v", kind, 3)
        start += [f"  %{w}.first = bitcast {kind} %v to {kind}" for w in wide]
    body, used = [], 0
    for step in range(CLOCK_STEPS):
        old = "%x" if step == 0 else f"%x.{step}"
        new = "%x.next" if step == CLOCK_STEPS - 1 else f"%x.{step + 1}"
        body.append(f"  {new} = {'xor' if step % 2 else 'add'} i64 {old}, %{'cd'[step % 2]}")
        if lanes and step % 4 == 3:
            w, turn = wide[used % 8], used // 8
            before = f"%{w}" if turn == 0 else f"%{w}.t"
            after_ = f"%{w}.t" if turn == 0 else f"%{w}.next"
            args = f"{kind} %v, {kind} %v, {kind} {before}"
            body.append(f"  {after_} = call {kind} @llvm.fma.v{lanes}f32({args})")
            used += 1
    carried = [("i64", "x"), *((kind, w) for w in wide)]
    after = kept([("i64", "x.next"), *((kind, f"{w}.next") for w in wide)], 4)
    declared = f"declare {kind} @llvm.fma.v{lanes}f32({kind}, {kind}, {kind})" if lanes else ""
    return "\n".join([declared, function(name, carried, start, body, after)])


CLOCK_BYTES = SLOT_BYTES * 16

# ------------------------------------------------------------------------- innermost cache


def broadcasts_text(name: str, lanes: int) -> str:
    """Elements of 4 KiB of memory, each as all lanes of an exclusive or: 16 a round."""
    kind, every = f"<{lanes} x i32>", f"<{lanes} x i32> zeroinitializer"
    start = [f"  %x{n}.first = bitcast {kind} zeroinitializer to {kind}" for n in range(8)]
    body = ["  %row = and i64 %round, 15", "  %base = mul i64 %row, 256"]
    for n in range(16):
        old, new = (f"%x{n % 8}", f"%x{n % 8}.t") if n < 8 else (f"%x{n % 8}.t", f"%x{n - 8}.next")
        body += [
            f"  %o{n} = add i64 %base, {16 * n}",
            f"  %p{n} = getelementptr i8, ptr %data, i64 %o{n}",
            f"  %e{n} = load i32, ptr %p{n}, align 4",
            f"  %i{n} = insertelement {kind} poison, i32 %e{n}, i32 0",
            f"  %s{n} = shufflevector {kind} %i{n}, {kind} poison, {every}",
            f"  {new} = xor {kind} {old}, %s{n}",
        ]
    values = [(kind, f"x{n}") for n in range(8)]
    return function(name, values, start, body, kept([(kind, f"x{n}.next") for n in range(8)], 64))


BROADCASTS = 16
"""Elements in a round of broadcasts."""
BROADCAST_BYTES = SLOT_BYTES * 72


def gathers_text(name: str, lanes: int) -> str:
    """Vectors of elements three lines apart in 8 KiB: 4 vectors a round."""
    ints, kind, pointers = f"<{lanes} x i64>", f"<{lanes} x i32>", f"<{lanes} x ptr>"
    every = f"<{lanes} x i32> zeroinitializer"
    steps = ", ".join(f"i64 {n * 3 * LINE_BYTES}" for n in range(lanes))
    start = [f"  %x{n}.first = bitcast {kind} zeroinitializer to {kind}" for n in range(4)]
    body = ["  %row = and i64 %round, 15", "  %base = mul i64 %row, 256"]
    mask = f"<{lanes} x i1> splat (i1 true)"
    for n in range(4):
        body += [
            f"  %o{n} = add i64 %base, {64 * n}",
            f"  %i{n} = insertelement {ints} poison, i64 %o{n}, i32 0",
            f"  %s{n} = shufflevector {ints} %i{n}, {ints} poison, {every}",
            f"  %a{n} = add {ints} %s{n}, <{steps}>",
            f"  %p{n} = getelementptr i8, ptr %data, {ints} %a{n}",
            f"  %g{n} = call {kind} @llvm.masked.gather.v{lanes}i32.v{lanes}p0("
            f"{pointers} %p{n}, i32 4, {mask}, {kind} zeroinitializer)",
            f"  %x{n}.next = xor {kind} %x{n}, %g{n}",
        ]
    declared = (
        f"declare {kind} @llvm.masked.gather.v{lanes}i32.v{lanes}p0("
        f"{pointers}, i32, <{lanes} x i1>, {kind})"
    )
    values = [(kind, f"x{n}") for n in range(4)]
    return "\n".join([
        declared,
        function(name, values, start, body, kept([(kind, f"x{n}.next") for n in range(4)], 112)),
    ])  # fmt: skip


GATHERS = 4
"""Vectors in a round of gathers."""
GATHER_BYTES = SLOT_BYTES * 116

# ----------------------------------------------------------------------------------- memory


def passes_text(name: str, vector_bytes: int, moves: str) -> str:
    """Every vector of `blocks` blocks of BLOCK_VECTORS, `passes` times. moves: load, store, or
    copy, which takes as many blocks behind these as their copies."""
    kind = f"<{vector_bytes // 4} x i32>"
    block = BLOCK_VECTORS * vector_bytes
    start = [
        f"  %size = mul i64 %blocks, {block}",
        f"  %one = load {kind}, ptr %data, align {vector_bytes}",
    ]
    body = ["  %to = getelementptr i8, ptr %from, i64 %size"]
    for v in range(BLOCK_VECTORS):
        body.append(f"  %f{v} = getelementptr i8, ptr %from, i64 {v * vector_bytes}")
        if moves != "store":
            body.append(f"  %v{v} = load volatile {kind}, ptr %f{v}, align {vector_bytes}")
        if moves == "store":
            body.append(f"  store volatile {kind} %one, ptr %f{v}, align {vector_bytes}")
        if moves == "copy":
            body += [
                f"  %t{v} = getelementptr i8, ptr %to, i64 {v * vector_bytes}",
                f"  store volatile {kind} %v{v}, ptr %t{v}, align {vector_bytes}",
            ]
    return over_and_over(name, block, start, body)


def over_and_over(name: str, block_bytes: int, start: Sequence[str], body: Sequence[str]) -> str:
    """A function whose body has %from, the beginning of each of `blocks` blocks in turn, `passes`
    times."""
    return "\n".join([
        f"define void @{name}(ptr %data, i64 %blocks, i64 %passes) {{",
        "entry:",
        *start,
        "  br label %pass",
        "pass:",
        "  %p = phi i64 [ 0, %entry ], [ %q, %after ]",
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %pass ], [ %j, %loop ]",
        f"  %base = mul i64 %i, {block_bytes}",
        "  %from = getelementptr i8, ptr %data, i64 %base",
        *body,
        "  %j = add i64 %i, 1",
        "  %more = icmp ult i64 %j, %blocks",
        "  br i1 %more, label %loop, label %after",
        "after:",
        "  %q = add i64 %p, 1",
        "  %again = icmp ult i64 %q, %passes",
        "  br i1 %again, label %pass, label %done",
        "done:",
        "  ret void",
        "}",
        "",
    ])  # fmt: skip


def chase_text(name: str) -> str:
    """Loads that each give the address of the next; `data` holds the first address, and then the
    one that the next call goes on from."""
    start = ["  %x.first = load ptr, ptr %data, align 8"]
    body = []
    for step in range(UNROLL):
        old = "%x" if step == 0 else f"%x.{step}"
        new = "%x.next" if step == UNROLL - 1 else f"%x.{step + 1}"
        body.append(f"  {new} = load ptr, ptr {old}, align 8")
    return function(name, [("ptr", "x")], start, body, ["  store ptr %x.next, ptr %data, align 8"])


RUN_LINES = 8
"""Lines of a run: the hardware sees one begin when most of it is over."""
RUN_CHAINS = 8
"""Chains of multiply-adds beside a stream."""
AHEAD = 6
"""Runs between asking for scattered lines and using them."""
AHEAD_IN_ORDER = 32
"""The same of lines that lie in order: a few pages, as the next panel of weights is."""


def runs_text(name: str, lanes: int, *, ahead: int = 0, each: int = 1) -> str:
    """Runs of RUN_LINES lines at the addresses that `data` lists (a cycle would begin anew at its
    end: more are listed than used), with `each` times RUN_CHAINS multiply-adds for each line.
    `ahead`: runs that lines are asked for ahead of their use, 0: never."""
    kind = f"<{lanes} x float>"
    fma = f"@llvm.fma.v{lanes}f32"
    start = [
        f"  %x{n}.first = bitcast {kind} zeroinitializer to {kind}" for n in range(RUN_CHAINS)
    ]
    body = [
        "  %own = getelementptr ptr, ptr %data, i64 %round",
        "  %run = load ptr, ptr %own, align 8",
    ]
    if ahead:
        body += [
            f"  %later = getelementptr ptr, ptr %own, i64 {ahead}",
            "  %ahead = load ptr, ptr %later, align 8",
        ]
    for line in range(RUN_LINES):
        if ahead:
            body += [
                f"  %q{line} = getelementptr i8, ptr %ahead, i64 {line * LINE_BYTES}",
                f"  call void @llvm.prefetch.p0(ptr %q{line}, i32 0, i32 3, i32 1)",
            ]
        body += [
            f"  %p{line} = getelementptr i8, ptr %run, i64 {line * LINE_BYTES}",
            f"  %v{line} = load volatile {kind}, ptr %p{line}, align {4 * lanes}",
        ]
        for turn in range(each):
            step = line * each + turn
            for n in range(RUN_CHAINS):
                old = f"%x{n}" if step == 0 else f"%x{n}.{step}"
                new = f"%x{n}.next" if step == RUN_LINES * each - 1 else f"%x{n}.{step + 1}"
                args = f"{kind} %v{line}, {kind} %v{line}, {kind} {old}"
                body.append(f"  {new} = call {kind} {fma}({args})")
    values = [(kind, f"x{n}") for n in range(RUN_CHAINS)]
    # What was computed is wanted, but its place is known to memory alone.
    after = ["  %out.at = load ptr, ptr %data, align 8"]
    total = "%x0.next"
    for n in range(1, RUN_CHAINS):
        after.append(f"  %sum{n} = fadd {kind} {total}, %x{n}.next")
        total = f"%sum{n}"
    after.append(f"  store {kind} {total}, ptr %out.at, align {4 * lanes}")
    declared = f"declare {kind} {fma}({kind}, {kind}, {kind})"
    return "\n".join([declared, function(name, values, start, body, after)])


PREFETCH = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"

# ------------------------------------------------------------------------------------- cores


def meeting_text() -> str:
    """`ping` and `pong`, called by two cores with one line: the number in it is raised by each in
    turn, `rounds` times. The first goes on from the number that is there and returns when it has
    been answered. `wait(ptr, until)` returns when a number is there, `tell(ptr, number)` puts it
    there."""
    put = "  store atomic i64 %next, ptr %data release, align 8"
    return "\n".join([
        _turns("ping", "%first = load atomic i64, ptr %data acquire, align 8", 2, [put], []),
        _turns("pong", "%first = add i64 0, 0", 1, [], [put]),
        "define void @wait(ptr %data, i64 %until) {",
        "entry:",
        "  br label %loop",
        "loop:",
        "  %seen = load atomic i64, ptr %data acquire, align 8",
        "  %there = icmp eq i64 %seen, %until",
        "  br i1 %there, label %done, label %loop",
        "done:",
        "  ret void",
        "}",
        "define void @tell(ptr %data, i64 %number) {",
        "  store atomic i64 %number, ptr %data release, align 8",
        "  ret void",
        "}",
        "",
    ])  # fmt: skip


def _turns(name: str, first: str, until: int, before: list[str], after: list[str]) -> str:
    """One side of the meeting. In each round it waits until the number is `until` more than at the
    round's begin; `before` and `after` are what it does around that, %next being what it puts: one
    more for the side that begins, two for the one that answers."""
    step = 1 if before else 2
    return "\n".join([
        f"define void @{name}(ptr %data, i64 %rounds) {{",
        "entry:",
        f"  {first}",
        "  br label %round",
        "round:",
        "  %n = phi i64 [ 0, %entry ], [ %m, %mine ]",
        "  %now = phi i64 [ %first, %entry ], [ %turn, %mine ]",
        f"  %until = add i64 %now, {until}",
        f"  %next = add i64 %now, {step}",
        *before,
        "  br label %wait",
        "wait:",
        "  %seen = load atomic i64, ptr %data acquire, align 8",
        "  %there = icmp eq i64 %seen, %until",
        "  br i1 %there, label %mine, label %wait",
        "mine:",
        *after,
        "  %turn = add i64 %now, 2",
        "  %m = add i64 %n, 1",
        "  %again = icmp ult i64 %m, %rounds",
        "  br i1 %again, label %round, label %done",
        "done:",
        "  ret void",
        "}",
    ])  # fmt: skip
