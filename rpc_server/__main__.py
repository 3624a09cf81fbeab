"""The board's command line. In: arguments. Out: a served device, until SIGINT or SIGTERM.

    rpc_server serve --listen 127.0.0.1:9190 [--target cpu] [--threads 1] [--cores 0-1]
    rpc_server certs init|issue|revoke ...     (see rpc_server.certs_command)

Prints target, cores, caches and measured peaks, then `listening on HOST:PORT`. Exit status 2 with
one line on stderr where the arguments cannot be used.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading
from importlib import metadata
from pathlib import Path

from autotune.errors import ConfigError, InputError
from autotune.measure.batch import available_cores
from autotune.measure.executor import DEFAULT_EXECUTOR
from autotune.measure.runners.local import LocalRunner
from autotune.measure.sandbox import Report, Sandbox
from autotune.measure.types import DeviceProfile
from autotune.target import load_target
from rpc_server.audit import AuditLog
from rpc_server.auth import check_loopback
from rpc_server.board import Board
from rpc_server.certs_command import add_certs_command
from rpc_server.server import BoardServer, parse_address
from rpc_server.tls import Credentials


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `rpc_server` command."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:  # while the device was still being measured
        sys.exit(130)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rpc_server", description="Serve this machine as a board."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    serve_command = commands.add_parser("serve", help="measure candidates for tuners")
    serve_command.add_argument(
        "--listen", default="127.0.0.1:9190", metavar="HOST:PORT", help="port 0: any free port"
    )
    serve_command.add_argument("--target", default="cpu", help="name or .toml file")
    serve_command.add_argument("--threads", type=int, default=1, help="of a kernel, by default")
    serve_command.add_argument("--cores", default="", help="cores to use: 0-1 or 0,2,3")
    serve_command.add_argument("--certs", type=Path, help="folder of this board's certificate")
    serve_command.add_argument(
        "--accept-objects", action="store_true", help="run object code built by clients"
    )
    serve_command.add_argument(
        "--memory-mib", type=int, default=0, help="of a candidate; default: 3/4 of the machine's"
    )
    serve_command.add_argument("--audit", type=Path, metavar="FILE", help="append who did what")
    serve_command.set_defaults(run=serve)
    add_certs_command(commands)
    serve_command.add_argument("--executor", default=DEFAULT_EXECUTOR, help=argparse.SUPPRESS)
    return parser


def serve(options: argparse.Namespace) -> None:
    """Measure the device, listen, and serve until told to stop. Raises InputError."""
    host, port = parse_address(options.listen)
    credentials = Credentials(options.certs) if options.certs else None
    if credentials is None:
        check_loopback(host)
    audit = AuditLog(options.audit)
    cores = parse_cores(options.cores)
    target = load_target(options.target, options.threads)
    device = LocalRunner(
        target,
        cores=cores,
        executor=options.executor,
        region_threads=len(cores),
        sandbox=Sandbox(
            read_system_only=True,
            memory_bytes=options.memory_mib << 20 if options.memory_mib else -1,
        ),
    )
    with contextlib.closing(device):
        board = Board(
            device,
            version=version(),
            cores=len(cores),
            accept_objects=options.accept_objects,
            audit=audit,
        )
        server = BoardServer(board, host, port, credentials=credentials, audit=audit)
        stopping = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopping.set())
        threads = [threading.Thread(target=f, daemon=True) for f in (board.run, server.serve)]
        for thread in threads:
            thread.start()
        print(describe(board.profile, cores))
        print("\n".join(describe_sandbox(device.sandbox)))
        print(f"listening on {host}:{server.port}", flush=True)
        stopping.wait()
        server.close()
        board.stop()
        for thread in threads:
            thread.join(timeout=5.0)
    print("stopped", flush=True)


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
        f"peak    {profile.peak_flops / 1e9:.1f} GFLOP/s per core",
    ]
    lines += [
        f"load    {level.load_bytes_per_s / 1e9:.1f} GB/s from {level.name}"
        for level in profile.levels
    ]
    lines.append(f"region  {profile.parallel_region_s * 1e6:.2f} us to open and close")
    return "\n".join(lines)


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
        if not first.isdigit() or not (last or first).isdigit():
            raise ConfigError(f"expected cores like 0-1 or 0,2,3, got {text!r}")
        cores.update(range(int(first), int(last or first) + 1))
    if not cores or not cores <= set(allowed):
        listed = ",".join(map(str, allowed))
        raise ConfigError(f"cores {text} are not all available; this process may use {listed}")
    return tuple(sorted(cores))


def version() -> str:
    """The installed version, 'unknown' when run from a bare tree."""
    try:
        return metadata.version("autotune-compiler")
    except metadata.PackageNotFoundError:
        return "unknown"


if __name__ == "__main__":
    main()
