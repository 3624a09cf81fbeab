"""The command line of boards and farms. In: arguments. Out: what the command does.

rpc_server serve ...                        (see rpc_server.board.command)
rpc_server tracker|status|release|quarantine|drain ...    (see rpc_server.tracker.commands)
rpc_server certs init|issue|revoke ...      (see rpc_server.security.command)

Exit status 2 with one line on stderr where the arguments cannot be used.
"""

from __future__ import annotations

import sys

from autotune.errors import InputError
from autotune.streams import discard, open_closed, refusal


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `rpc_server` command."""
    open_closed()
    try:
        # Loading them takes long enough for a Ctrl-C.
        from rpc_server.commands import parser

        options = parser().parse_args(arguments)
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


if __name__ == "__main__":
    main()
