"""The farm's commands: the tracker, how the farm stands, and what is decided about its boards.

rpc_server tracker --listen HOST:PORT [--certs DIR] [--state farm.db] [--config FILE.toml]
rpc_server status --tracker HOST:PORT [--watch] [--json]
rpc_server release|quarantine|drain BOARD ... --tracker HOST:PORT
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autotune.errors import DeviceError
from autotune.release import release
from rpc_server.board.server import parse_address
from rpc_server.security.audit import AuditLog
from rpc_server.security.tls import Credentials
from rpc_server.stopping import until_told
from rpc_server.tracker.link import TrackerLink, asked
from rpc_server.tracker.service import LIMITS, Tracker, tracker_listener
from rpc_server.tracker.settings import load_farm_settings
from rpc_server.tracker.status import farm_text
from rpc_server.tracker.store import StateStore
from rpc_server.wire import farm as farm_wire
from rpc_server.wire import messages as wire
from rpc_server.wire.listener import take_address

CALL_S = 10.0
"""Seconds until the tracker answers an operator."""
WATCH_S = 1.0
"""Seconds between two looks at a watched farm."""
SPARE_FILES = 64
"""Open files beside those of links."""
COMMANDS = {
    "release": "put a board back into service, ending its lease if it has one",
    "quarantine": "take a board out of service now, until it is released",
    "drain": "take a board out of service when its lease has ended, until it is released",
}


def add_farm_commands(commands: Any) -> None:
    """Add them to the subparsers of a command line."""
    parser: argparse.ArgumentParser = commands.add_parser("tracker", help="run a farm's tracker")
    parser.add_argument("--listen", metavar="HOST:PORT", help="port 0: any free port")
    parser.add_argument("--certs", metavar="DIR", help="folder of the tracker's certificate")
    parser.add_argument("--state", metavar="FILE", help="leases, queue and boards are kept here")
    parser.add_argument("--audit", metavar="FILE", help="append who did what")
    parser.add_argument("--config", metavar="FILE.toml", help="settings; see configs/farm")
    parser.set_defaults(run=_track)
    parser = commands.add_parser("status", help="show a farm's boards and queue")
    _tracker_options(parser)
    parser.add_argument("--watch", action="store_true", help="show it again every second")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=_status)
    for name, text in COMMANDS.items():
        parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        parser.add_argument("boards", nargs="+", metavar="BOARD", help="name, as status shows it")
        _tracker_options(parser)
        parser.set_defaults(run=_command)


def _tracker_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tracker", required=True, metavar="HOST:PORT")
    parser.add_argument("--certs", type=Path, metavar="DIR", help="folder of your certificate")


def _track(options: argparse.Namespace) -> None:
    """Run a tracker until told to stop."""
    _allow_files(LIMITS.links + LIMITS.opening + SPARE_FILES)
    settings = load_farm_settings(options.config).tracker
    host, port = parse_address(options.listen or settings.listen)
    certs = options.certs or settings.certs
    credentials = Credentials(Path(certs)) if certs else None
    audit_path = options.audit or settings.audit
    audit = AuditLog(Path(audit_path) if audit_path else None)
    with (
        until_told() as stopping,
        contextlib.closing(take_address(host, port, credentials)) as bound,
        contextlib.closing(StateStore(Path(options.state or settings.state))) as store,
    ):
        tracker = Tracker(settings.rules, store, version=release(), audit=audit)
        listener = tracker_listener(
            tracker, host, port, credentials=credentials, audit=audit, bound=bound
        )
        threads = [threading.Thread(target=f, daemon=True) for f in (tracker.run, listener.serve)]
        for thread in threads:
            thread.start()
        print(f"tracker listening on {host}:{listener.port}", flush=True)
        stopping.wait()
        tracker.stop()
        listener.close()
        for thread in threads:
            thread.join(timeout=5.0)
    print("stopped", flush=True)


def _allow_files(wanted: int) -> None:
    """Every link is an open file; usual limits are fewer than a tracker takes, and may be raised
    as far as the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextlib.contextmanager
def _linked(options: argparse.Namespace) -> Iterator[TrackerLink]:
    host, port = parse_address(options.tracker)
    link = TrackerLink(host, port, Credentials(options.certs) if options.certs else None)
    with contextlib.closing(link):
        yield link


def _ask(link: TrackerLink, name: str, payload: bytes, answer: str) -> dict[str, Any]:
    """The fields of the tracker's answer. Raises DeviceError."""
    start = f"start it with `rpc_server tracker --listen {link.address}`, or check --certs"
    return wire.decode(answer, asked(link, name, payload, CALL_S, start))


def _status(options: argparse.Namespace) -> None:
    with _linked(options) as link:
        while True:
            try:
                farm = _ask(link, "status", wire.encode("status", {}), "farm")
                text = json.dumps(farm, indent=None if options.watch else 2)
                text = text if options.json else farm_text(farm)
            except DeviceError as error:
                if not options.watch:
                    raise
                text = str(error)
            clear = "\x1b[H\x1b[2J" if options.watch and sys.stdout.isatty() else ""
            print(clear + text, flush=True)
            if not options.watch:
                return
            time.sleep(WATCH_S)


def _command(options: argparse.Namespace) -> None:
    with _linked(options) as link:
        for board in options.boards:
            done = _ask(link, "command", farm_wire.encode_command(board, options.command), "done")
            print(f"{done['board']}: {done['state']}")
