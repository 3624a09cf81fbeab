"""Defects of ours that end no run. In: what raised, and what is taken instead. Out: a warning.

A rule or a step that raises where it should not costs a good schedule, never a result: the next
candidate is taken. Whoever runs a command reads one line; whoever tests sees an error, since
warnings are errors there.
"""

from __future__ import annotations

import warnings

from autotune.errors import AutotuneError, InputError
from autotune.printable import one_line

_REQUEST = "this is a defect, please report it"
NO_DEFECT = (InputError, MemoryError)
"""What the user gave, a device that is lost, a machine that is too small: these end a run."""
_LIMIT = 400
"""Characters of an error's text."""


class DefectWarning(UserWarning):
    """Something of ours raised; what was taken instead is in the message."""


def raised(where: str, error: BaseException, instead: str) -> str:
    """Warn of what was raised somewhere (a task, a rule, a config); gives the message."""
    return tell(f"{where}: {described(error)}", instead)


def tell(failed: str, instead: str) -> str:
    """Warn of a defect: what failed how, and what is taken instead. Gives the message."""
    message = f"{failed}; {instead}; {_REQUEST}"
    warnings.warn(message, DefectWarning, stacklevel=2)
    return message


def is_told(note: str) -> bool:
    """Whether a note is the message of such a warning."""
    return note.endswith(_REQUEST)


def described(error: BaseException) -> str:
    """An error as one line; kinds that are not the project's own are named."""
    text = one_line(str(error), _LIMIT)
    return text if isinstance(error, AutotuneError) and text else f"{type(error).__name__}: {text}"
