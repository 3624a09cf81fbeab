"""Accuracies and precisions of results. In: names, a target. Out: those that there are, or a
TargetError where a target cannot have one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast, get_args

from autotune.errors import TargetError

if TYPE_CHECKING:
    from autotune.target import Target

Accuracy = Literal["normal", "strict", "reproducible"]
Precision = Literal["float32", "bfloat16", "float16", "tf32", "int8"]
ACCURACIES = get_args(Accuracy)
REPRODUCIBLE_LANES = 16
"""Partial sums along a vector where all machines' are to be the same: those of the widest."""


def precision_named(text: str) -> Precision:
    """float32, bfloat16 (also written bf16), float16 (f16), tf32 or int8. Raises TargetError for
    anything else."""
    named = {"fp32": "float32", "bf16": "bfloat16", "f16": "float16"}.get(text, text)
    if named not in get_args(Precision):
        raise TargetError(f"precision must be float32, bf16, f16, tf32 or int8, got {text!r}")
    return cast(Precision, named)


def possible(target: Target) -> Target:
    """The target. Raises TargetError where results are asked to be reproducible that are not."""
    if not target.is_reproducible:
        return target
    x86 = target.kind == "cpu" and target.triple.startswith("x86_64")
    if not x86 or target.vector_bytes not in (32, 64) or "+fma" not in target.features.split(","):
        raise TargetError(
            f"accuracy reproducible is for x86-64 with AVX2 and FMA, or AVX-512, not for "
            f"{target.name}; take strict"
        )
    if target.precision != "float32":
        raise TargetError(
            f"accuracy reproducible is for precision float32, not {target.precision}; take strict"
        )
    return target
