"""Machine code of inner loops, and what llvm-mca says of it.

In: assembly and a target. Out: its blocks without labels and branches inside, those of given
loops, and their cycles.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from autotune.target import Target

NEWEST = 40
"""Version of LLVM from which llvm-mca is looked for downwards."""
ITERATIONS = 100
"""Of a loop: its steady state counts."""
CHAINS, X86_CHAINS = 24, 12
"""Independent sums that show what multiply-adds alone reach; half of x86-64's registers."""
_LABEL = re.compile(r"([.\w$]+):")
_BRANCH = re.compile(r"(b|b\..*|cbn?z|tbn?z|j\w+)\s")
_MULTIPLY_ADD = re.compile(
    r"(\{vex\}\s+)?(v?fn?m(la|ls|ad|sb|add|sub)|bfdot|bfmmla|[su]+dot|[su]+mmla|vpdp|vdpbf16)\w*\s"
)
_PRODUCT = re.compile(r"(v?fmul\w*|vmulps)\s")
_ADDITION = re.compile(r"(fadd|fsub|vaddps|vsubps)\s")
_TILE_PRODUCT, _TILE_LOAD = re.compile(r"tdp\w+\s"), re.compile(r"tileload\w+\s")


class Loop(Protocol):
    """Straight code of a program."""

    @property
    def multiply_adds(self) -> int:
        """Vectors of them each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeBlock:
    """Assembly without labels and branches inside."""

    lines: tuple[str, ...]

    @property
    def multiply_adds(self) -> int:
        return sum(bool(_MULTIPLY_ADD.match(line)) for line in self.lines)

    @property
    def products(self) -> int:
        """The same with those of the first step of a sum, to which nothing is added."""
        return self.multiply_adds + sum(bool(_PRODUCT.match(line)) for line in self.lines)

    @property
    def additions(self) -> int:
        """Vectors that are added or taken away, without being multiplied."""
        return sum(bool(_ADDITION.match(line)) for line in self.lines)

    @property
    def spills(self) -> int:
        """Instructions that load from the stack or store to it."""
        return sum("[sp" in line or "(%rsp" in line for line in self.lines)

    @property
    def tile_products(self) -> int:
        """Products of matrix tiles (AMX)."""
        return sum(bool(_TILE_PRODUCT.match(line)) for line in self.lines)

    @property
    def tile_loads(self) -> int:
        return sum(bool(_TILE_LOAD.match(line)) for line in self.lines)

    @property
    def tile_sums(self) -> int:
        """Tiles that products are added to."""
        return len({line.split()[-1] for line in self.lines if _TILE_PRODUCT.match(line)})


def code_blocks(assembly: str) -> list[CodeBlock]:
    """Its blocks, in the order of the text."""
    found, lines = [], list[str]()

    def end() -> None:
        if lines:
            found.append(CodeBlock(lines=tuple(lines)))
        lines.clear()

    for row in assembly.splitlines():
        if _LABEL.match(row):
            end()
            continue
        line = re.split(r"//|#(?!-?\d)", row)[0].strip()
        if line and not line.startswith("."):
            lines.append(line)
            if _BRANCH.match(line):
                end()
    end()
    return found


def matched(loops: Sequence[Loop], code: Sequence[CodeBlock]) -> list[CodeBlock]:
    """The code of each loop. Raises ValueError where one has none of as many multiply-adds."""
    out, rest = [], iter(code)
    for loop in loops:
        count = loop.multiply_adds
        out.append(next((c for c in rest if count in (c.multiply_adds, c.products)), None))
    missing = [loop for loop, c in zip(loops, out, strict=True) if c is None]
    if missing:
        raise ValueError(f"no code for {missing[0]} among {[c.multiply_adds for c in code]}")
    return [c for c in out if c is not None]


@functools.cache
def program_name() -> str:
    """The newest llvm-mca. Raises FileNotFoundError where there is none."""
    names = [*(f"llvm-mca-{n}" for n in range(NEWEST, 0, -1)), "llvm-mca"]
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise FileNotFoundError("llvm-mca is missing: apt-get install llvm-19")
    return found


@functools.cache
def predicted(lines: tuple[str, ...], target: Target) -> tuple[float, float]:
    """(cycles of an iteration, the same if dependences never waited)."""
    command = [
        program_name(), f"-mtriple={target.triple}", f"-mcpu={target.cpu}",
        f"-mattr={target.features}", f"-iterations={ITERATIONS}",
    ]  # fmt: skip
    done = subprocess.run(
        command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ValueError(f"{program_name()}: {done.stderr.strip()[:300]}")
    total, bound = (
        re.search(rf"{name}:\s+([\d.]+)", done.stdout) for name in ("Total Cycles", "RThroughput")
    )
    if total is None or bound is None:
        raise ValueError(f"{program_name()} says no cycles")
    return float(total[1]) / ITERATIONS, float(bound[1])


def alone(loop: CodeBlock, target: Target) -> float:
    """Cycles of the loop's multiply-adds, if each had operands that are there: enough sums to hide
    the latency, by the form of the instruction that most of them have."""
    forms = [_form(line) for line in loop.lines if _MULTIPLY_ADD.match(line)]
    common, chains = max(set(forms), key=forms.count), X86_CHAINS if "%" in forms[0] else CHAINS
    lines = tuple(common.replace("SUM", str(i)) for i in range(chains))
    return loop.products * predicted(lines, target)[0] / chains


def _form(line: str) -> str:
    """An instruction with a sum that is yet to be named, and operands that nothing writes."""
    if "%" in line:
        name, kind = line.rsplit("\t", 1)[0], re.findall(r"%([xyz]mm)\d+", line)[-1]
        return f"{name}\t%{kind}15, %{kind}14, %{kind}SUM"
    sums, rest = line.split(",", 1)
    registers = iter((30, 31, 29))
    rest = re.sub(r"\b([vz])\d+", lambda m: f"{m[1]}{next(registers)}", rest)
    return re.sub(r"(?<=[vz])\d+", "SUM", sums) + "," + re.sub(r"\[\d\]", "[0]", rest)
