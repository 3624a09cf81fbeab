"""Bodies, vector loops and conditions as LLVM IR: what kernels of CPUs and GPUs write alike."""

from __future__ import annotations

from autotune.codegen.dispatch import StatementDispatch
from autotune.codegen.llvm.index import Lane
from autotune.codegen.llvm.store import StoreWriter
from autotune.errors import BuildError
from autotune.program.ir import For, If


class StatementWriter(StoreWriter, StatementDispatch):
    """Writes statements; loops and memory are the device's."""

    def _vector_loop(self, loop: For) -> None:
        if self.lanes > 1:
            raise BuildError(f"vector loop {loop.var} is inside another")
        if loop.extent == 1:
            self.env[loop.var] = 0
            self.body(loop.body)
            return
        self.env[loop.var], self.lanes = Lane(loop.extent), loop.extent
        with self.text.region():
            self.body(loop.body)
        self.lanes = 1
        del self.env[loop.var]

    def guard(self, stmt: If) -> None:
        condition = self.condition(stmt.bounds)
        if condition is False:
            return
        if condition is True:
            self.body(stmt.body)
            return
        flag, lanes = condition
        if lanes == 1:
            with self.text.when(flag):
                self.body(stmt.body)
            return
        saved, self.mask = self.mask, self.under(flag)
        self.body(stmt.body)
        self.mask = saved
