"""A model on its way out: its interface, its target, and how what belongs to it is called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from autotune.codegen.llvm.futex import long_type
from autotune.export.interface import Frame
from autotune.target import Target

WORDS = (
    "about", "inputs", "outputs", "input", "output", "memory_bytes", "threads", "limit_threads",
    "create", "create_in", "run", "destroy", "error",
)  # fmt: skip
"""The functions, without the prefix."""
OPEN_WORDS = ("sizes", "size", "resize", "input_of", "output_of")
"""Those that models of open sizes have besides."""
RESERVED = frozenset((
    "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break",
    "case", "catch", "char", "class", "compl", "concept", "const", "const_cast", "consteval",
    "constexpr", "constinit", "continue", "co_await", "co_return", "co_yield", "decltype",
    "default", "delete", "do", "double", "dynamic_cast", "else", "enum", "explicit", "export",
    "extern", "false", "float", "for", "friend", "goto", "if", "inline", "int", "long",
    "mutable", "namespace", "new", "noexcept", "not", "not_eq", "nullptr", "operator",
    "or", "or_eq", "private", "protected", "public", "register", "reinterpret_cast",
    "requires", "restrict", "return", "short", "signed", "sizeof", "static", "static_assert",
    "static_cast", "struct", "switch", "template", "this", "thread_local", "throw", "true",
    "try", "typedef", "typeid", "typename", "typeof", "union", "unsigned", "using", "virtual",
    "void", "volatile", "wchar_t", "while", "xor", "xor_eq",
    "entry", "ix", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64",
))  # fmt: skip
"""Words of C and C++ (specified), and in the last line `model.c`'s own: no names of types."""
Face_co = TypeVar("Face_co", bound=Frame, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported(Generic[Face_co]):
    """A model to write functions and files for."""

    face: Face_co
    target: Target
    about: str
    """What the library says of itself: one line of JSON."""
    seal: bytes | None
    """None: the weights are in the library; else the last bytes of the file that they are in."""

    @property
    def size(self) -> str:
        """LLVM's type for C's size_t and long."""
        return long_type(self.target)

    @property
    def on_team(self) -> bool:
        """Whether runs use several threads."""
        return self.target.threads > 1


def weights_symbol(prefix: str) -> str:
    """The name by which the functions know weights that are in the library."""
    return f"{prefix}_weights"


def public_names(prefix: str, *, open_sizes: bool) -> tuple[str, ...]:
    """The functions that can be called from outside."""
    return tuple(f"{prefix}_{word}" for word in (*WORDS, *(OPEN_WORDS if open_sizes else ())))
