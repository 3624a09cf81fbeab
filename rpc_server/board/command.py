"""`rpc_server serve`: this machine as a board. In: arguments. Out: a served device, until told to
stop.

rpc_server serve --listen HOST:PORT [--target cpu] [--threads 1] [--cores 0-1] [--certs DIR]
rpc_server serve --tracker HOST:PORT --key KEY [--name NAME] [--reset-command CMD] ...
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import os
import platform
import random
import secrets
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autotune.errors import ConfigError
from autotune.machine.profile import DeviceProfile
from autotune.measure.devices.cuda import locked_clocks
from autotune.measure.devices.sandbox import sandbox_for
from autotune.measure.executor import DEFAULT_EXECUTOR
from autotune.measure.process import WorkerProcess
from autotune.measure.profile import profile_lines
from autotune.measure.runners.local import LocalRunner
from autotune.measure.sandbox import Report, Sandbox, hide_memory
from autotune.measure.simulator.names import (
    NAMES,
    SERIAL,
    SERIAL_MODELS,
    SIMULATORS,
    executor_of,
)
from autotune.measure.simulator.serial_engine import SerialPlace
from autotune.measure.throttle import available_cores
from autotune.parse_int import whole
from autotune.release import release
from autotune.target import Target, load_target
from rpc_server.board.agent import Agent, Membership, Post, check_place, check_reset
from rpc_server.board.device import BoardDevice
from rpc_server.board.job import Abilities
from rpc_server.board.lease_guard import Gate
from rpc_server.board.model_desk import EXECUTOR as MODELS
from rpc_server.board.model_desk import ModelDesk
from rpc_server.board.serial_place import serial_place
from rpc_server.board.server import BoardServer, parse_address
from rpc_server.board.walls import check_certs, file_walls
from rpc_server.security.audit import AuditLog
from rpc_server.security.auth import is_loopback
from rpc_server.security.tls import Credentials
from rpc_server.stopping import until_told
from rpc_server.tracker.link import TrackerLink
from rpc_server.tracker.settings import BoardSettings, check_board, load_farm_settings
from rpc_server.wire.listener import take_address
from rpc_server.wire.versions import compiler

MOST_CORES = 4095
"""Numbers of cores are up to it."""
SETTINGS = tuple(f.name for f in dataclasses.fields(BoardSettings))


def add_serve_command(commands: Any) -> None:
    """Add `serve` to the subparsers of a command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "serve", help="measure candidates for tuners"
    )
    parser.add_argument(
        "--listen", metavar="HOST:PORT", help="port 0: any free port (default 127.0.0.1:9190)"
    )
    parser.add_argument("--tracker", metavar="HOST:PORT", help="of the farm to belong to")
    parser.add_argument("--key", help="what clients of the farm ask for")
    parser.add_argument("--name", help="in the farm (default: host name and cores)")
    parser.add_argument("--advertise", metavar="HOST", help="where clients reach this board")
    parser.add_argument(
        "--reset-command", metavar="CMD", help="brings the device back after repeated faults"
    )
    parser.add_argument("--config", metavar="FILE.toml", help="settings; see configs/farm")
    parser.add_argument("--target", help="name or .toml file (default cpu)")
    parser.add_argument("--threads", type=int, help="of a kernel, by default")
    parser.add_argument("--cores", help="cores to use: 0-1 or 0,2,3")
    parser.add_argument("--certs", metavar="DIR", help="folder of this board's certificate")
    parser.add_argument(
        "--accept-objects",
        action="store_const",
        const=True,
        help="run object code built by clients",
    )
    parser.add_argument(
        "--lock-clocks", action="store_const", const=True, help="of an NVIDIA GPU, meanwhile"
    )
    parser.add_argument(
        "--memory-mib", type=int, help="of a candidate; default: 3/4 of the machine's"
    )
    parser.add_argument("--audit", metavar="FILE", help="append who did what")
    parser.add_argument(
        "--simulator", choices=sorted(SIMULATORS), help="of a microcontroller or WebAssembly"
    )
    parser.add_argument(
        "--serial", metavar="PORT[,BAUD]", help="of a microcontroller that runs serial_board.c"
    )
    parser.add_argument("--executor", default=DEFAULT_EXECUTOR, help=argparse.SUPPRESS)
    parser.set_defaults(run=serve)


def serve(options: argparse.Namespace) -> None:
    """Check what was asked for, take the address, then measure the device and serve until told to
    stop. Raises InputError."""
    settings = _settings(options)
    built_by = compiler()
    if not built_by and not settings.accept_objects:
        raise ConfigError(
            "llvmlite is not installed here, so this board cannot build: pip install llvmlite, or "
            "start it with --accept-objects and tune with --build host"
        )
    host, port = parse_address(settings.listen)
    credentials = Credentials(Path(settings.certs)) if settings.certs else None
    audit = AuditLog(Path(settings.audit) if settings.audit else None)
    cores = parse_cores(settings.cores)
    target = load_target(settings.target, settings.threads)
    bounds, place = _bounds(settings), serial_place(options.serial, options.simulator, target)
    executor, models = _executors(options, target, place)
    if place:
        bounds = dataclasses.replace(bounds, devices=(place.path,))
    if settings.certs:
        check_certs(Path(settings.certs), sandbox_for(target, bounds))
    with contextlib.closing(take_address(host, port, credentials)) as bound:
        member = _place(settings, cores, int(bound.getsockname()[1]))
        gate = Gate(secrets.token_hex(16)) if settings.tracker else None
        device = _device(target, cores, executor, bounds)
        with contextlib.closing(device), _clocks(target, settings.lock_clocks) as clocks:
            walls = file_walls(device.ready(), os.getuid(), settings.certs)
            if device.sandbox.get("files"):
                hide_memory()
            abilities = Abilities(
                version=release(),
                cores=len(cores),
                compiler=built_by,
                can_build=bool(built_by),
                accept_objects=settings.accept_objects,
                simulated=bool(options.simulator or place),
            )
            desk = ModelDesk(functools.partial(_model_worker, models, target, cores, bounds))
            board = BoardDevice(device, abilities, audit=audit, gate=gate, desk=desk)
            server = BoardServer(
                board, host, port, credentials=credentials, audit=audit, bound=bound
            )
            said = describe(board.profile, cores) + clocks
            print("\n".join([said, *describe_sandbox(device.sandbox), *walls]))
            post = _post(settings, board, device, gate, member) if gate else None
            _run(board, server, host, _in_farm(post, settings.tracker, credentials))
    print("stopped", flush=True)


def _executors(
    options: argparse.Namespace, target: Target, place: SerialPlace | None
) -> tuple[str, str]:
    """Those of candidates and of whole models. Raises ConfigError."""
    if place:
        return f"{SERIAL}?{place.encode()}", f"{SERIAL_MODELS}?{place.encode()}"
    if options.simulator:
        executor = executor_of(options.simulator, target)
        return executor, NAMES[options.simulator].models or MODELS
    return options.executor, MODELS


def _run(
    board: BoardDevice,
    server: BoardServer,
    host: str,
    farm: contextlib.AbstractContextManager[None],
) -> None:
    """Serve until told to stop."""
    threads = [threading.Thread(target=f, daemon=True) for f in (board.run, server.serve)]
    with until_told() as stopping:
        for thread in threads:
            thread.start()
        print(f"listening on {host}:{server.port}", flush=True)
        with farm:
            stopping.wait()
        server.close()
        board.stop()
        for thread in threads:
            thread.join(timeout=5.0)


def _bounds(settings: BoardSettings) -> Sandbox:
    """The sandbox of candidates that strangers send."""
    memory_bytes = settings.memory_mib << 20 if settings.memory_mib else -1
    return Sandbox(read_system_only=True, memory_bytes=memory_bytes)


def _device(target: Target, cores: tuple[int, ...], executor: str, bounds: Sandbox) -> LocalRunner:
    """What candidates of strangers run on. Raises DeviceError."""
    return LocalRunner(
        target,
        cores=cores,
        executor=executor,
        region_threads=len(cores),
        sandbox=bounds,
    )


def _model_worker(
    executor: str, target: Target, cores: tuple[int, ...], bounds: Sandbox
) -> WorkerProcess:
    """What whole models run in, with the bounds of candidates."""
    return WorkerProcess(executor=executor, cores=cores, sandbox=sandbox_for(target, bounds))


@contextlib.contextmanager
def _clocks(target: Target, wanted: bool) -> Iterator[str]:
    """Locked clocks, if they are wanted and may be locked: a line that says so. Raises ConfigError
    for what has none, DeviceError where there is no GPU."""
    if not wanted:
        yield ""
        return
    if target.kind != "cuda":
        raise ConfigError(f"--lock-clocks is for NVIDIA GPUs, target {target.name} is none")
    with locked_clocks(target) as why:
        yield f"\nclocks  not locked: {why}" if why else "\nclocks  locked"


def _settings(options: argparse.Namespace) -> BoardSettings:
    """Settings of the file, and over them those of the command line. Raises ConfigError."""
    given = {n: getattr(options, n) for n in SETTINGS if getattr(options, n) is not None}
    settings = dataclasses.replace(load_farm_settings(options.config).board, **given)
    check_board(settings)
    if bool(settings.tracker) != bool(settings.key):
        raise ConfigError("a board of a farm needs both --tracker HOST:PORT and --key KEY")
    if settings.tracker:
        parse_address(settings.tracker)
    check_reset(settings.reset_command)
    if settings.listen:
        return settings
    elsewhere = settings.tracker and not is_loopback(parse_address(settings.tracker)[0])
    host = "0.0.0.0" if elsewhere and settings.certs else "127.0.0.1"
    return dataclasses.replace(settings, listen=f"{host}:9190")


def advertised(settings: BoardSettings) -> str:
    """The host that clients reach this board at."""
    host = settings.advertise or parse_address(settings.listen)[0]
    if host not in ("0.0.0.0", "::"):
        return host
    try:
        family = socket.AF_INET6 if host == "::" else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:  # nothing is sent
            probe.connect(parse_address(settings.tracker))
            return str(probe.getsockname()[0])
    except OSError:
        return platform.node()


def _place(settings: BoardSettings, cores: tuple[int, ...], port: int) -> Membership:
    """What the board is called in a farm. Raises FarmError for what the farm would not take."""
    host = advertised(settings)
    place = Membership(
        name=settings.name or f"{platform.node() or 'board'}-{'.'.join(map(str, cores))}",
        key=settings.key,
        address=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
    )
    return check_place(place) if settings.tracker else place


def _post(
    settings: BoardSettings, board: BoardDevice, device: LocalRunner, gate: Gate, place: Membership
) -> Post:
    """What the farm is told, and what it may do."""
    return Post(
        name=place.name,
        key=place.key,
        address=place.address,
        gate=gate,
        info=functools.partial(board_info, board, device),
        stats=board.stats,
        raise_floor=board.raise_floor,
        remeasure=board.remeasure,
        reset_command=settings.reset_command,
    )


@contextlib.contextmanager
def _in_farm(post: Post | None, tracker: str, credentials: Credentials | None) -> Iterator[None]:
    """Belong to the tracker's farm for as long as this lasts, if there is one."""
    if post is None:
        yield
        return
    link = TrackerLink(*parse_address(tracker), credentials)
    agent = Agent(post, link, generator=random.Random(post.gate.secret))
    thread = threading.Thread(target=agent.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        agent.stop()
        thread.join(timeout=5.0)


def board_info(board: BoardDevice, device: LocalRunner) -> Mapping[str, Any]:
    """What the tracker and its clients are told about a board."""
    return {
        "profile": board.profile.to_json(),
        "device": board.profile.device,
        "version": release(),
        "compiler": compiler(),
        "cores": list(device.cores),
        "sandbox": dict(device.sandbox.items()),
    }


def describe(profile: DeviceProfile, cores: tuple[int, ...]) -> str:
    """What the board is and what it measured, for the one who started it."""
    target = profile.target
    caches = ((1, target.l1_bytes), (2, target.l2_bytes), (3, target.l3_bytes))
    lines = [
        f"device  {profile.device}",
        f"target  {target.name} ({target.triple}, {target.cpu}, "
        f"{target.vector_bytes * 8}-bit vectors)",
        f"cores   {','.join(map(str, cores))}",
        "caches  " + ", ".join(f"L{n} {size(count)}" for n, count in caches if count),
    ]
    return "\n".join([*lines, *profile_lines(profile)])


def describe_sandbox(report: Report) -> list[str]:
    """Which bounds of worker processes hold here, and a line for each that does not."""
    held = ", ".join(name for name, why in report.items() if not why)
    absent = [f"absent  {name}: {why}" for name, why in report.items() if why]
    return [f"sandbox {held}", *absent]


def size(count: int) -> str:
    """Bytes for people: 32 KiB."""
    for unit in ("B", "KiB"):
        if count < 1024:
            return f"{count:g} {unit}"
        count //= 1024
    return f"{count:g} MiB"


def parse_cores(text: str) -> tuple[int, ...]:
    """'0-1' or '0,2,3' as core numbers; empty for all that this process may use."""
    allowed = available_cores()
    if not text:
        return allowed
    cores: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        start, stop = whole(first, MOST_CORES), whole(last or first, MOST_CORES)
        if start is None or stop is None:
            raise ConfigError(f"expected cores like 0-1 or 0,2,3, got {text!r}")
        cores.update(range(start, stop + 1))
    if not cores or not cores <= set(allowed):
        listed = ",".join(map(str, allowed))
        raise ConfigError(f"cores {text} are not all available; this process may use {listed}")
    return tuple(sorted(cores))
