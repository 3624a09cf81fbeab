"""Hopper's instructions as inline PTX, which LLVM's intrinsics lack. In: LLVM values. Out: calls.

Addresses of shared memory are i32, in its own window; so are barriers, 8 bytes each. Calls are
convergent: LLVM must not put them where only some threads of a warp come.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.codegen.llvm.text import FunctionText

MAP_BYTES = 128
"""Bytes of the driver's description of a tensor."""
_MAP = "cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
_WAIT = (
    r"{\0A.reg .pred done;\0Aagain:\0A"
    r"mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1;\0A@!done bra again;\0A}"
)
_SUMS = {
    "bfloat16": "16.f32.bf16.bf16", "float16": "16.f32.f16.f16", "int8": "32.s32.s8.s8",
    "uint8": "32.s32.u8.s8",
}  # fmt: skip
"""Element type of the first operand -> terms, and types, as `wgmma` names them."""
_KEPT = {"float": "=f", "i32": "=r"}
"""Type of sums -> registers that hold them."""
_WIDTH = 8
"""Columns of a warp group's smallest product."""
_HELD = 4
"""Sums of a matrix of 64 x 8 that each thread holds."""


class Asm:
    """Writes into a function."""

    def __init__(self, text: FunctionText) -> None:
        self.text = text

    def _do(self, words: str, constraints: str = "", *operands: str) -> None:
        constraints = f"{constraints},~{{memory}}" if constraints else "~{memory}"
        given = ", ".join(operands)
        self.text.line(f'call void asm sideeffect "{words}", "{constraints}"({given}) convergent')

    # ------------------------------------------------------------------------- barriers in memory

    def init(self, barrier: str, arrivals: int) -> None:
        """A barrier whose phases take so many arrivals."""
        self._do("mbarrier.init.shared::cta.b64 [$0], $1;", "r,r", f"i32 {barrier}",
                 f"i32 {arrivals}")  # fmt: skip

    def fence_init(self) -> None:
        """The copy engine sees barriers that were made before."""
        self._do("fence.mbarrier_init.release.cluster;")

    def expect(self, barrier: str, nbytes: int) -> None:
        """Arrive, and let the phase wait for bytes too."""
        self._do("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", "r,r",
                 f"i32 {barrier}", f"i32 {nbytes}")  # fmt: skip

    def arrive(self, barrier: str) -> None:
        self._do("mbarrier.arrive.shared::cta.b64 _, [$0];", "r", f"i32 {barrier}")

    def wait(self, barrier: str, parity: str) -> None:
        """Until the phase of a parity is over; before the first, the odd one is."""
        self._do(_WAIT, "r,r", f"i32 {barrier}", f"i32 {parity}")

    # ------------------------------------------------------------------------------------- fetches

    def prepare(self, tensor: str) -> None:
        """The description of a tensor will be used soon."""
        self._do("prefetch.tensormap [$0];", "l", f"ptr {tensor}")

    def fetch(self, to: str, tensor: str, first: Sequence[str], barrier: str) -> None:
        """A box whose first element has those coordinates, the innermost one first."""
        names = ", ".join(f"${3 + i}" for i in range(len(first)))
        words = f"{_MAP.format(rank=len(first))} [$0], [$1, {{{names}}}], [$2];"
        self._do(
            words, ",".join(["r", "l", "r", *["r"] * len(first)]),
            f"i32 {to}", f"ptr {tensor}", f"i32 {barrier}", *(f"i32 {c}" for c in first),
        )  # fmt: skip

    # ---------------------------------------------------------------------------- groups of warps

    def fence(self) -> None:
        """Products that follow see registers as they are now."""
        self._do("wgmma.fence.sync.aligned;")

    def commit(self) -> None:
        """Products since the last commit are a batch."""
        self._do("wgmma.commit_group.sync.aligned;")

    def wait_group(self, pending: int) -> None:
        """Until at most so many batches are not done."""
        self._do(f"wgmma.wait_group.sync.aligned {pending};")

    def kept(self, sums: Sequence[str], kind: str) -> list[str]:
        """The sums, in registers from here on: LLVM would put constants there only right before a
        product, behind the fence that is meant for them."""
        return self._through("", "", sums, kind, ())

    def settled(self, sums: Sequence[str], kind: str) -> list[str]:
        """The sums once every batch is done."""
        return self._through("wgmma.wait_group.sync.aligned 0;", "", sums, kind, ())

    def multiply(self, sums: Sequence[str], kind: str, a: str, b: str, dtype: str) -> list[str]:
        """The sums with a product added: later, as seen by `settled`. `a`, `b`: descriptors."""
        count, turns = len(sums), ", 1, 1, 0, 0" if kind == "float" else ""
        held = ", ".join(f"${i}" for i in range(count))
        shape = f"m64n{count // _HELD * _WIDTH}k{_SUMS[dtype]}"
        words = (
            r"{\0A.reg .pred add;\0Asetp.ne.b32 add, 1, 0;\0A"
            rf"wgmma.mma_async.sync.aligned.{shape} {{{held}}}, ${2 * count}, ${2 * count + 1}, "
            rf"add{turns};\0A}}"
        )
        return self._through(words, ",l,l", sums, kind, (f"i64 {a}", f"i64 {b}"))

    def _through(
        self, words: str, constraints: str, sums: Sequence[str], kind: str,
        operands: Sequence[str],
    ) -> list[str]:  # fmt: skip
        """Instructions that change registers in place."""
        count = len(sums)
        kinds = f"{{{', '.join([kind] * count)}}}"
        ties = ",".join([*[_KEPT[kind]] * count, *map(str, range(count))])
        given = ", ".join([*(f"{kind} {s}" for s in sums), *operands])
        whole = self.text.emit(
            f'call {kinds} asm sideeffect "{words}", "{ties}{constraints},~{{memory}}"({given}) '
            "convergent"
        )
        return [self.text.emit(f"extractvalue {kinds} {whole}, {i}") for i in range(count)]
