"""The commands of `rpc_server`. In: nothing. Out: a parser whose options have a `run`."""

from __future__ import annotations

from autotune.command_line import Parser
from rpc_server.board.command import add_serve_command
from rpc_server.security.command import add_certs_command
from rpc_server.tracker.commands import add_farm_commands


def parser() -> Parser:
    """The parser of the whole command line."""
    whole = Parser(
        prog="rpc_server", description="Serve this machine as a board; run a farm of boards."
    )
    commands = whole.add_subparsers(dest="command", required=True)
    add_serve_command(commands)
    add_farm_commands(commands)
    add_certs_command(commands)
    return whole
