"""The program that starts a worker inside its bounds. In: settings as JSON, worker's arguments.

Usage: python -m autotune.measure.confined SETTINGS [worker arguments]
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

from autotune.measure.sandbox import Sandbox, confine


def main(arguments: Sequence[str]) -> None:
    """Confine this process, then be the worker."""
    settings, *rest = arguments
    sandbox = Sandbox(**json.loads(settings))
    report = confine(sandbox, os.getcwd())
    from autotune.measure.worker import main as worker_main  # only now: it starts threads

    worker_main(list(rest), report)


if __name__ == "__main__":
    main(sys.argv[1:])
