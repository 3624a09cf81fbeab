"""Valid messages of every kind, and what a peer may make of them.

In: a seeded generator. Out: bytes for a decoder: tokens of a valid message replaced, left out,
doubled and exchanged, and bytes flipped, cut and inserted.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from autotune.machine.profile import CacheLevel, DeviceProfile
from autotune.measure.types import Built, MeasureRequest, MeasureResult, Status, Timing
from autotune.program.ir import Pack
from autotune.schedule.base import schedule_from_json
from autotune.target import Target
from autotune.types import Layout, Task, TaskNode, TaskValue, TensorType
from rpc_server.client.farm_batch import profile_of
from rpc_server.client.leases import boards_of
from rpc_server.tracker.types import Asked, Beat, Registered, Released
from rpc_server.wire import farm as farm_wire
from rpc_server.wire import messages as wire
from rpc_server.wire import models
from tests.unit.machine.samples import FACTS

TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[-+.0-9a-zA-Z]+|[\[\]{},:]')
TARGET = Target(
    name="cpu", kind="cpu", triple="x86_64-unknown-linux-gnu", cpu="znver4", features="+avx2",
    vector_bytes=32, vector_registers=16, cores=4, l1_bytes=32768, l2_bytes=1 << 20,
    l3_bytes=1 << 25,
)  # fmt: skip
PROFILE = DeviceProfile(
    device="here",
    target=TARGET,
    peak_flops=1e11,
    levels=(CacheLevel(name="L1", size_bytes=32768, load_bytes_per_s=2e11),),
    parallel_region_s=1e-6,
    width_peaks=((16, 5e10), (32, 1e11)),
    facts=FACTS,
)
JUNK: tuple[bytes, ...] = (
    b"null", b"true", b"false", b"0", b"-1", b"1.5", b"-0.0", b"1e-320", b"1e400", b"-1e400",
    b"NaN", b"Infinity", b"9007199254740993", b"18446744073709551616", b"9" * 30, b"9" * 400,
    b"9" * 5000, b"0." + b"9" * 60, b'""', b'"OK"', b'"error"', b'"a b"', b'"\\ud800"',
    b'"\\u0000"', b'"\xff"', b'"' + b"x" * 5000 + b'"', b'"\\', b"[]", b"{}", b"[[]]", b"[null]",
    b"[1e400]", b"[0,0,0,0]", b'{"a":1}', b'{"":{}}', b"[" * 40 + b"]" * 40, b"[" * 3000, b"",
)  # fmt: skip
"""What takes the place of a token: of every type, at every edge."""


def _task() -> Task:
    kind = TensorType(dtype="float32", shape=(4, 8))
    layout = Layout.haloed(kind.shape, ((0, 1), (1, 0)))
    return Task(
        nodes=(TaskNode(op="relu", inputs=("i0",), outputs=("o0",), attrs=(("axes", (0, 1)),)),),
        values=(
            TaskValue(name="i0", type=kind, role="input", layout=layout),
            TaskValue(name="o0", type=kind, role="output", layout=Layout.dense(kind.shape)),
        ),
        anchor=0,
    )


def _requests() -> list[MeasureRequest]:
    code = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x01\x00\x3e\x00" + bytes(44)
    pack = Pack("c0", (4, 8), ((1, 4),), (0, 2, 1))
    built = Built(symbol="kernel", code=code, workspace_bytes=64, packs=(pack,))
    steps = schedule_from_json([{"step": "parallel", "loop": "o0_i"}])
    timing = Timing(reuse_distances=(("i0", 32, 0.5, 1.0),), best_s=1e-3)
    return [
        MeasureRequest(task=_task(), schedule=steps, target=TARGET, timing=timing, seed=1),
        MeasureRequest(task=_task(), schedule=(), target=TARGET, seed=2, built=built),
    ]


def _progress() -> bytes:
    done = MeasureResult(status=Status.OK, times_s=(1e-3, 2e-3), build_s=0.1, device="here")
    lost = MeasureResult(status=Status.BUILD_ERROR, error="step 3")
    return wire.encode_progress(wire.JobProgress(results=(done, lost), done=True, failed="why"))


def _sync() -> bytes:
    released = Released(client="", fence=7, results=3, fault="lost", unsound=True)
    return farm_wire.encode_sync(
        farm_wire.Sync(
            session="s",
            asks=(Asked(client="", request="r", key="k", priority=1),),
            withdrawn=("old",),
            releases=(released, Released(client="", fence=8, results=1)),
            renew=(9, 10),
            version=5,
        )
    )


def _view() -> bytes:
    grant = farm_wire.Grant(
        fence=9, request="r", board="b", address="h:1", ticket="9:ab", recalled=False
    )
    return farm_wire.encode_view(
        farm_wire.View(
            version=5, waiting=("w",), grants=(grant, grant), notes={"old": "late"}, run="x"
        )
    )


INFO: dict[str, Any] = {
    "profile": PROFILE.to_json(), "version": "1", "cores": [0, 1], "floor": 7,
    "sandbox": {"network": ""},
}  # fmt: skip
STATS = {"trials": 5, "failed": 1, "queued": 0, "temperature_c": 41.5, "last_error": "no"}


def _boards(data: bytes) -> DeviceProfile:
    return profile_of(boards_of(data), "tracker://h:1/k", None)


@dataclass(frozen=True, slots=True)
class Kind:
    """A valid message, in tokens, and what reads it."""

    tokens: tuple[bytes, ...]
    decode: Callable[[bytes], object]


def _kind(data: bytes, decode: Callable[[bytes], object]) -> Kind:
    tokens = tuple(TOKEN.findall(data))
    assert b"".join(tokens) == json.dumps(json.loads(data), separators=(",", ":")).encode()
    decode(data)
    return Kind(tokens, decode)


OUTCOME = models.ModelOutcome(
    times_s=(1e-3, 2e-3),
    kernels_s=(1e-4,),
    outputs=(("ab" * 32, 40),),
    peak_bytes=1 << 20,
    temperature_c=40.0,
    clock_hz=2e9,
)
KINDS: Mapping[str, Kind] = {
    "hello": _kind(wire.encode_greeting("7:ab"), wire.decode_greeting),
    "welcome": _kind(
        wire.encode_hello(wire.Hello(profile=PROFILE, version="1", compiler="x")),
        wire.decode_hello,
    ),
    "submit": _kind(wire.encode_submit(_requests()), wire.decode_submit),
    "part": _kind(
        models.encode_part(models.FilePart(digest="ab" * 32, size=9, at=3, data=b"abc")),
        models.decode_part,
    ),
    "run": _kind(
        models.encode_run(models.ModelRequest(model="ab" * 32, inputs=("cd" * 32,), repeats=3)),
        models.decode_run,
    ),
    "outcome": _kind(models.encode_outcome(OUTCOME, done=True), models.decode_outcome),
    "job": _kind(wire.encode_job("ab"), wire.decode_job),
    "collect": _kind(
        wire.encode_collect(wire.Collect(job="ab", first=2, wait_s=1.5)), wire.decode_collect
    ),
    "progress": _kind(_progress(), wire.decode_progress),
    "register": _kind(
        farm_wire.encode_register(
            Registered(board="b", key="k", address="h:1", secret="s", info=INFO)
        ),
        farm_wire.decode_register,
    ),
    "beat": _kind(
        farm_wire.encode_beat(Beat(board="b", secret="s", stats=STATS)), farm_wire.decode_beat
    ),
    "standing": _kind(
        farm_wire.encode_board_status(
            farm_wire.BoardStatus(floor=8, state="idle", reset=False, heartbeat_s=2.0)
        ),
        farm_wire.decode_board_status,
    ),
    "sync": _kind(_sync(), lambda data: farm_wire.decode_sync(data, "alice")),
    "view": _kind(_view(), farm_wire.decode_view),
    "command": _kind(farm_wire.encode_command("b", "drain"), farm_wire.decode_command),
    "key": _kind(farm_wire.encode_key("k"), farm_wire.decode_key),
    "boards": _kind(wire.encode("boards", {"boards": [INFO, INFO]}), _boards),
}
STRINGS = tuple({t for kind in KINDS.values() for t in kind.tokens if t.startswith(b'"')})


def mutated(kind: Kind, rng: random.Random) -> bytes:
    """The valid message with one to three things changed."""
    tokens = list(kind.tokens)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        place, how = rng.randrange(len(tokens)), rng.random()
        if how < 0.6:
            while tokens[place] in b"[]{},:" and rng.random() < 0.9:
                place = rng.randrange(len(tokens))
            tokens[place] = rng.choice(JUNK)
        elif how < 0.7:
            tokens[place] = rng.choice(STRINGS)
        elif how < 0.8:
            other = rng.randrange(len(tokens))
            tokens[place], tokens[other] = tokens[other], tokens[place]
        elif how < 0.87:
            tokens[place] = b""
        elif how < 0.93:
            tokens[place] += tokens[rng.randrange(len(tokens))]
        else:
            return _damaged(b"".join(tokens), rng)
    return b"".join(tokens)


def _damaged(data: bytes, rng: random.Random) -> bytes:
    """Bytes flipped, inserted, cut off."""
    whole = bytearray(data or b" ")
    place, how = rng.randrange(len(whole)), rng.randrange(4)
    if how == 0:
        whole[place] = rng.randrange(256)
    elif how == 1:
        whole[place] ^= 1 << rng.randrange(8)
    elif how == 2:
        del whole[place:]
    else:
        whole[place:place] = rng.randbytes(rng.randrange(1, 4))
    return bytes(whole)
