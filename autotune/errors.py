"""Every error the project raises on purpose.

    AutotuneError
    ├── InputError            what the user gave cannot be used: one line, exit status 2
    │   ├── ModelError        missing, truncated or malformed model; a shape that is not static
    │   │   ├── UnsupportedOpError   an operator (or one of its attributes) we do not import
    │   │   └── EmptyInputError      an input without elements
    │   ├── TargetError       unknown target, or a target file with an unknown key
    │   ├── LogError          tuning log: not a database, newer schema, read-only, locked
    │   ├── DeviceError       device unreachable or it refused
    │   ├── ArtifactError     compiled model: not one of ours, or built for another CPU
    │   ├── FeedError         model input or output array of wrong name, shape or type
    │   ├── ClosedError       a compiled model used after `close`
    │   └── ConfigError       settings file, option value or argument
    ├── VerifyError           a graph or program broke an invariant (a defect of a pass or a step)
    ├── ScheduleError         a schedule step is not legal on this program
    └── BuildError            code generation failed for a program

A message says what was expected, what was got, and what to do next.
"""

from autotune.printable import printable

_MOST_SHOWN = 4000
"""Characters of a message; the middle of a longer one is left out."""


class AutotuneError(Exception):
    """Base of every error raised on purpose."""


class InputError(AutotuneError):
    """The user's input cannot be used. Its text is one line, whatever names it quotes."""

    def __str__(self) -> str:
        return printable(super().__str__(), _MOST_SHOWN)


class ModelError(InputError):
    """The model file is missing, malformed or not static."""


class UnsupportedOpError(ModelError):
    """The model uses an operator, or a variant of one, that is not supported. What may run it
    otherwise is told by names in the model: `output`, the first one that the node makes, or
    `value`, an input of the model, or a value that has to be known before a run; of that one
    `inputs` are the inputs of the model that it depends on."""

    output: str = ""
    value: str = ""
    inputs: frozenset[str] = frozenset()


class ControlFlowError(UnsupportedOpError):
    """A branch or a loop that is no part of a single graph; a run may decide, and loop, itself."""


class LengthError(UnsupportedOpError):
    """How much an operator gives depends on the values that it is given."""


class EmptyInputError(ModelError):
    """An input of the model is declared to have no elements, or is written as if it had none."""


class FallbackWarning(UserWarning):
    """Part of a model runs in another program than a compiled one; no error."""


class MissingLogWarning(UserWarning):
    """A model is compiled with a tuning log that is not there; no error."""


class TargetError(InputError):
    """The target is unknown or its description is wrong."""


class LogError(InputError):
    """The tuning log cannot be opened, read or written."""


class DeviceError(InputError):
    """The device cannot be reached or refused the session."""


class ArtifactError(InputError):
    """The compiled model file cannot be used here."""


class FeedError(InputError):
    """An array given for a model's input or output has the wrong name, shape or type."""


class ClosedError(InputError):
    """The compiled model was closed."""


class ConfigError(InputError):
    """A settings file, an option or an argument has a wrong value."""


class VerifyError(AutotuneError):
    """A graph or program violates an invariant."""


class ScheduleError(AutotuneError):
    """A schedule step is not legal on this program."""


class BuildError(AutotuneError):
    """Code generation failed."""


class UndecidedError(AutotuneError):
    """Whether a relation between sizes holds depends on values known only at run time."""

    def __init__(self, what: str, question: tuple[int, int] | None = None) -> None:
        """`question`: (first, second) where it is first < second that is not known."""
        super().__init__(what)
        self.question = question
