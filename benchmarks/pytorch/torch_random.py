"""Random small functions of PyTorch's users, compiled: each gives what eager gives.

    python benchmarks/pytorch/torch_random.py [--seeds 0:200] [--modes plain,dynamic,autocast]

A function is a chain of operators on its arguments and on what it made before, some of which
write in place, to copies or to an argument. Arguments are of several element types, may have no
dimension or no element, and lie in memory in several ways (strided, turned, expanded, channels
last, within a larger tensor). Compared are results with shapes, element types and strides, and
what became of the arguments. A difference that PyTorch's own backend `aot_eager` has, too, is
PyTorch's; where numbers of 16 bits are in between, so is one that Inductor has, which keeps them
in float32 as we do (`x > x.bfloat16()`).
"""
# ruff: noqa: ARG005 (operators take what they need of a pair and a dimension)

from __future__ import annotations

import argparse
import random
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 (as PyTorch's users write it)
from torch import Tensor

MODES = ("plain", "dynamic", "autocast")
MOST_ELEMENTS = 4000
TYPES = (*[torch.float32] * 5, torch.int64, torch.int32, torch.bool, torch.bfloat16, torch.float64)
EXTENTS, RANKS = (1, 2, 3, 4, 5, 7, 8), (0, 1, 2, 3, 4, 4, 3, 2)
PLAIN = {"machine": "nominal", "threads": 1, "min_gain": 0}
TOLERANCES = {torch.bfloat16: 3e-2, torch.float16: 3e-2}
Step = Callable[[Tensor, Tensor, int], Tensor]
"""Of one value, another one, and a dimension of the first."""


# --------------------------------------------------------------------------------------- operators


def _fits(x: Tensor, y: Tensor) -> bool:
    """Whether one is broadcast to the other."""
    for i in range(1, min(x.dim(), y.dim()) + 1):
        a, b = x.shape[-i], y.shape[-i]
        if a not in (b, 1) and b != 1:
            return False
    return True


def _float(x: Tensor) -> Tensor:
    return x if x.is_floating_point() else x.float()


def _in_place(x: Tensor) -> Tensor:
    made = x.clone()
    flat = made.reshape(-1)
    return made if flat.dtype == torch.bool else flat.mul_(2).view(made.shape)


def _first_filled(x: Tensor) -> Tensor:
    made = x.clone()
    if made.dim() and made.shape[0]:
        made[0] = 1
    return made


def _image(x: Tensor) -> bool:
    return x.dim() == 4 and min(x.shape) > 0 and min(x.shape[2:]) >= 2


ANYTHING: tuple[Step, ...] = (
    lambda x, y, d: x + y if _fits(x, y) else x + 1,
    lambda x, y, d: x * y if _fits(x, y) else x * 2,
    lambda x, y, d: x > y if _fits(x, y) else x != y.sum(),
    lambda x, y, d: torch.minimum(x, y) if _fits(x, y) else x,
    lambda x, y, d: x.reshape(-1),
    lambda x, y, d: x.unsqueeze(d),
    lambda x, y, d: x.squeeze(),
    lambda x, y, d: x.expand(2, *x.shape),
    lambda x, y, d: x.repeat(*([2] * max(x.dim(), 1))),
    lambda x, y, d: x.permute([*reversed(range(x.dim()))]),
    lambda x, y, d: torch.stack([x, x], d),
    lambda x, y, d: x.all(),
    lambda x, y, d: x.contiguous(),
    lambda x, y, d: _float(x).softmax(d),
    lambda x, y, d: _float(x).mean(),
    lambda x, y, d: _float(x).clamp(-1, 1),
    lambda x, y, d: F.gelu(_float(x)).relu(),
    lambda x, y, d: _float(x).exp().log1p(),
    lambda x, y, d: _float(x).clamp(-99, 99).round().to(torch.int64),
    lambda x, y, d: x.prod() if x.numel() < 9 else x.sum(),
    lambda x, y, d: torch.bucketize(_float(x).float(), torch.tensor([-1.0, 0.0, 1.0])),
    lambda x, y, d: x.to(torch.float64),
    lambda x, y, d: x.to(torch.bool),
    lambda x, y, d: x.to(torch.bfloat16),
    lambda x, y, d: _in_place(x),
    lambda x, y, d: _first_filled(x),
)
NUMBERS: tuple[Step, ...] = (
    lambda x, y, d: torch.where(x > 0, x, x * 2),
    lambda x, y, d: x.clone().add_(1),
    lambda x, y, d: x.masked_fill(x > 0, 0),
    lambda x, y, d: x // 2,
    lambda x, y, d: x % 3,
    lambda x, y, d: -x.abs(),
)
WITH_DIMENSIONS: tuple[Step, ...] = (
    lambda x, y, d: x.transpose(d, 0),
    lambda x, y, d: x.flip(d),
    lambda x, y, d: x.sum(d),
    lambda x, y, d: torch.cat([x, x], d),
    lambda x, y, d: x[::2],
    lambda x, y, d: x.cumsum(d),
    lambda x, y, d: x.any(d),
    lambda x, y, d: x.roll(1, d),
    lambda x, y, d: F.pad(x, (1, 1)),
    lambda x, y, d: x.narrow(d, 0, max(0, x.shape[d] - 1)),
)
WITH_ELEMENTS: tuple[Step, ...] = (
    lambda x, y, d: x.select(d, 0),
    lambda x, y, d: x.amax(d),
    lambda x, y, d: x.index_select(d, torch.arange(x.shape[d] - 1, -1, -1)),
    lambda x, y, d: torch.chunk(x, 2, d)[-1],
    lambda x, y, d: x.unfold(d, 1, 1),
    lambda x, y, d: torch.as_strided(x.contiguous(), (x.numel(),), (1,)),
    lambda x, y, d: F.layer_norm(_float(x), x.shape[-1:]),
    lambda x, y, d: F.linear(_float(x).float(), torch.ones(4, x.shape[-1])),
    lambda x, y, d: x.float().sort(d).values,
    lambda x, y, d: x.float().argmax(d),
)
MATRICES: tuple[Step, ...] = (
    lambda x, y, d: x.tril(),
    lambda x, y, d: x.diagonal(),
    lambda x, y, d: _float(x) @ _float(x).transpose(-1, -2),
)
IMAGES: tuple[Step, ...] = (
    lambda x, y, d: F.max_pool2d(_float(x), 2),
    lambda x, y, d: F.avg_pool2d(_float(x), 2),
    lambda x, y, d: F.interpolate(_float(x), scale_factor=2),
    lambda x, y, d: F.conv2d(_float(x).float(), torch.ones(3, x.shape[1], 1, 1)),
)


def _steps(x: Tensor) -> tuple[Step, ...]:
    """What a value can be an operand of."""
    return (
        *ANYTHING,
        *(NUMBERS if x.dtype != torch.bool else ()),
        *(WITH_DIMENSIONS if x.dim() else ()),
        *(WITH_ELEMENTS if x.dim() and x.numel() else ()),
        *(MATRICES if x.dim() >= 2 else ()),
        *(IMAGES * 3 if _image(x) else ()),
    )


# --------------------------------------------------------------------------------------- functions


@dataclass(frozen=True)
class RandomFunction:
    """Which operators of which values; the numbers are taken modulo how many there are."""

    draws: tuple[tuple[int, int, int, int], ...]
    results: int
    writes: bool
    """Whether it writes to its first argument."""
    views: bool
    """Whether it gives its last argument, and a view of it, too."""

    @staticmethod
    def of(rng: random.Random) -> RandomFunction:
        draws = [[rng.randrange(10**6) for _ in range(4)] for _ in range(rng.randrange(3, 9))]
        return RandomFunction(
            tuple((a, b, c, d) for a, b, c, d in draws),
            rng.randrange(1, 4), rng.random() < 0.35, rng.random() < 0.4,
        )  # fmt: skip

    def __call__(self, *given: Tensor) -> list[Tensor]:
        pool = self._pool(given)
        if self.writes and given[0].dtype != torch.bool and not _overlaps(given[0]):
            given[0].mul_(2)
        extra = [given[-1], given[-1][:1]] if self.views and given[-1].dim() else []
        return pool[-self.results :] + extra

    def _pool(self, given: Sequence[Tensor]) -> list[Tensor]:
        """The arguments and all that is made of them."""
        pool = list(given)
        for one, other, which, dim in self.draws:
            x, y = pool[one % len(pool)], pool[other % len(pool)]
            steps = _steps(x)
            made = steps[which % len(steps)](x, y, dim % max(x.dim(), 1))
            if made.numel() <= MOST_ELEMENTS:
                pool.append(made)
        return pool

    def rounds(self, given: Sequence[Tensor]) -> bool:
        """Whether some of it has 16 bits."""
        with torch.no_grad():
            return any(t.dtype in TOLERANCES for t in self._pool([*map(_copied, given)]))


def arguments(rng: random.Random, seed: int) -> list[Tensor]:
    maker = torch.Generator().manual_seed(seed)
    shape = _shape(rng)
    count = rng.randrange(1, 3)
    shapes = [shape if rng.random() < 0.6 else _shape(rng) for _ in range(count)]
    return [_argument(rng, maker, s, rng.choice(TYPES)) for s in shapes]


def _shape(rng: random.Random) -> list[int]:
    return [rng.choice(EXTENTS) if rng.random() > 0.04 else 0 for _ in range(rng.choice(RANKS))]


def _argument(
    rng: random.Random, maker: torch.Generator, shape: list[int], dtype: torch.dtype
) -> Tensor:
    """A tensor that lies in memory in one of several ways."""

    def made(extents: Sequence[int]) -> Tensor:
        return (3 * torch.randn(list(extents), generator=maker)).to(dtype)

    how = rng.randrange(6) if shape else 0
    if how == 1:
        return made([2 * e for e in shape])[tuple(slice(None, None, 2) for _ in shape)]
    if how == 2:
        order = rng.sample(range(len(shape)), len(shape))
        return made([shape[d] for d in order]).permute([order.index(d) for d in range(len(shape))])
    if how == 3:
        dim = rng.randrange(len(shape))
        return made([1 if d == dim else e for d, e in enumerate(shape)]).expand(shape)
    if how == 4:
        return made([e + 1 for e in shape])[tuple(slice(1, None) for _ in shape)]
    if how == 5 and len(shape) == 4:
        return made(shape).to(memory_format=torch.channels_last)
    return made(shape)


def _overlaps(x: Tensor) -> bool:
    return any(s == 0 and e > 1 for s, e in zip(x.stride(), x.shape, strict=True))


# -------------------------------------------------------------------------------------- comparison


def flaws(seed: int, mode: str = "plain") -> list[str] | None:
    """What distinguishes a function from eager's; None where eager does not run it."""
    rng = random.Random(seed)
    function = RandomFunction.of(rng)
    given = arguments(rng, seed)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            expected = _called(function, given, mode)
        except (RuntimeError, IndexError, NotImplementedError):
            return None
        try:
            found = _compiled(function, given, mode, "autotune")
        except Exception as error:  # whatever is raised is a flaw
            return [f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"]
        told = [str(w.message) for w in warned if "defect" in str(w.message)]
        short = mode == "autocast" or function.rounds(given)
        different = _differences(found, expected, short)
        for backend in ("aot_eager", "inductor")[: 1 + short]:
            if different and not told:
                theirs = _compiled(function, given, mode, backend)
                different = different if _differences(found, theirs, short) else []
    return told + different


def _called(function: Callable[..., list[Tensor]], given: list[Tensor], mode: str) -> list[Tensor]:
    """Results, and the arguments as they are afterwards."""
    copies = [_copied(t) for t in given]
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=mode == "autocast"):
        return [*function(*copies), *copies]


def _compiled(
    function: RandomFunction, given: list[Tensor], mode: str, backend: str
) -> list[Tensor]:
    """The same of the second call of a compiled function."""
    torch._dynamo.reset()
    options = {"options": PLAIN} if backend == "autotune" else {}
    fast = torch.compile(function.__call__, backend=backend, dynamic=mode == "dynamic", **options)  # type: ignore[call-overload]
    _called(fast, given, mode)
    return _called(fast, given, mode)


def _copied(tensor: Tensor) -> Tensor:
    """The same numbers in memory of their own, lying as they do."""
    memory = tensor.untyped_storage().clone()  # type: ignore[no-untyped-call]
    place = tensor.storage_offset(), tensor.shape, tensor.stride()
    return tensor.new_empty(0).set_(memory, *place)


def _differences(found: list[Tensor], expected: list[Tensor], short: bool) -> list[str]:
    """`short`: whether some of what results are made of is rounded to 16 bits, step by step in
    eager alone."""
    pairs = enumerate(zip(found, expected, strict=True))
    return [f"result {i}: {flaw}" for i, (a, b) in pairs if (flaw := _difference(a, b, short))]


def _difference(a: Tensor, b: Tensor, short: bool) -> str:
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype}{[*a.shape]}, expected {b.dtype}{[*b.shape]}"
    strides = zip(a.stride(), b.stride(), b.shape, strict=True)
    if b.numel() and any(s != t and t and e > 1 for s, t, e in strides):
        return f"strides {a.stride()}, expected {b.stride()}"
    numbers = b.detach().float().nan_to_num(0, 0, 0).abs().reshape(-1)
    largest = torch.cat([numbers, torch.ones(1)]).max().item() if short else 1.0
    near = 3e-2 if short else TOLERANCES.get(b.dtype, 2e-4)
    try:
        torch.testing.assert_close(a, b, equal_nan=True, rtol=near, atol=near * largest)
    except AssertionError as error:
        return " ".join(str(error).split())[:200]
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", default="0:200", help="FIRST:END")
    parser.add_argument("--modes", default=",".join(MODES))
    args = parser.parse_args()
    torch.set_num_threads(1)
    first, end = map(int, args.seeds.split(":"))
    ran = wrong = 0
    for seed in range(first, end):
        for mode in args.modes.split(","):
            found = flaws(seed, mode)
            ran += found is not None
            wrong += bool(found)
            if found:
                print(f"seed {seed}, {mode}: {'; '.join(found)}", flush=True)
    print(f"{ran} functions ran, {wrong} wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
