"""The command line of boards and farms. In: arguments. Out: what the command does.

rpc_server serve ...                        (see rpc_server.serve_command)
rpc_server tracker|status|release|quarantine|drain ...    (see rpc_server.farm_commands)
rpc_server certs init|issue|revoke ...      (see rpc_server.certs_command)

Exit status 2 with one line on stderr where the arguments cannot be used.
"""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from autotune.errors import ConfigError, InputError
from autotune.streams import discard, open_closed, refusal
from rpc_server.certs_command import add_certs_command
from rpc_server.farm_commands import add_farm_commands
from rpc_server.serve_command import add_serve_command


class _Parser(argparse.ArgumentParser):
    """Its complaint, and that of its commands, is an InputError: one line, like every other."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see {self.prog} --help")


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `rpc_server` command."""
    open_closed()
    try:
        options = _parser().parse_args(arguments)
        options.run(options)
        sys.stdout.flush()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        discard(sys.stdout)  # whoever read the output has seen enough
    except OSError as error:
        discard(sys.stdout)
        print(f"error: {refusal(error)}", file=sys.stderr)
        sys.exit(2)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="rpc_server", description="Serve this machine as a board; run a farm of boards."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    add_serve_command(commands)
    add_farm_commands(commands)
    add_certs_command(commands)
    return parser


if __name__ == "__main__":
    main()
