"""`rpc_server certs`: the farm's certificates. In: arguments. Out: files, and what to do next.

rpc_server certs init DIR
rpc_server certs issue NAME --role tracker|board|client [--days N] [--objects] [--dir DIR]
rpc_server certs revoke NAME [--dir DIR]
"""

from __future__ import annotations

import argparse
import datetime
from pathlib import Path
from typing import Any

from autotune.errors import ConfigError
from autotune.parse_int import whole
from rpc_server.security import certs
from rpc_server.security.auth import ISSUED, Role
from rpc_server.security.tls import CRL

DEFAULT_FOLDER = Path("certs")


def add_certs_command(commands: Any) -> None:
    """Add `certs` to the subparsers of a command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "certs", help="make and revoke the farm's certificates"
    )
    actions = parser.add_subparsers(dest="action", required=True)
    init = actions.add_parser("init", help="make a certificate authority")
    init.add_argument("dir", type=Path, metavar="DIR")
    init.set_defaults(run=_init)
    issue = actions.add_parser("issue", help="make a certificate")
    issue.add_argument("name", metavar="NAME")
    issue.add_argument("--role", required=True, choices=[str(r) for r in ISSUED])
    issue.add_argument("--days", type=_days, default=certs.DEFAULT_DAYS, metavar="N")
    issue.add_argument("--objects", action="store_true", help="a client that may send object code")
    issue.set_defaults(run=_issue)
    revoke = actions.add_parser("revoke", help="refuse a certificate from now on")
    revoke.add_argument("name", metavar="NAME")
    revoke.set_defaults(run=_revoke)
    for action in (issue, revoke):
        action.add_argument(
            "--dir", type=Path, default=DEFAULT_FOLDER, metavar="DIR", help="of the authority"
        )


def _days(text: str) -> int:
    days = whole(text, certs.CA_DAYS)
    if not days:
        raise argparse.ArgumentTypeError(f"days from 1 to {certs.CA_DAYS}, got {text!r}")
    return days


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _init(options: argparse.Namespace) -> None:
    _writing(options.dir, lambda: certs.init(options.dir, _now()))
    print(f"made {options.dir}; keep {options.dir / certs.CA_KEY} on this machine")


def _issue(options: argparse.Namespace) -> None:
    made: list[Path] = []
    role, folder = Role(options.role), options.dir
    _writing(
        folder,
        lambda: made.append(
            certs.issue(
                folder, options.name, role, _now(), days=options.days, objects=options.objects
            )
        ),
    )
    print(f"made {made[0]}; copy the folder to the {role} and pass it as --certs")


def _revoke(options: argparse.Namespace) -> None:
    _writing(options.dir, lambda: certs.revoke(options.dir, options.name, _now()))
    print(
        f"revoked {options.name}; copy {options.dir / CRL} over crl.pem on the tracker and "
        "the boards, which read it again by themselves"
    )


def _writing(folder: Path, work: Any) -> None:
    try:
        work()
    except OSError as error:
        raise ConfigError(f"cannot write in {folder}: {error.strerror}") from None
