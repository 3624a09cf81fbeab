"""Kernels for aarch64, run on this machine by an emulator. In: a request. Out: its output.

A C program places the arguments as the storage here says, calls the kernel once and writes the
output's memory to a file. It is linked by the cross compiler and run by qemu-user.
"""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

from autotune.measure.execute import Case
from autotune.measure.storage import reset_output
from autotune.measure.types import Built, MeasureRequest
from tests.needs import CROSS_ROOT, require
from tests.patience import PATIENCE_S

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"

HARNESS = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
void KERNEL_run(void **args, int64_t repeats);
int main(int count, char **names) {
    FILE *in = fopen(names[1], "rb"), *out = fopen(names[2], "wb");
    uint64_t blocks, head[2];
    void *base = 0, *args[64];
    if (count != 3 || !in || !out || fread(&blocks, 8, 1, in) != 1 || blocks > 64) return 2;
    for (uint64_t i = 0; i < blocks; i++) {
        if (fread(head, 8, 2, in) != 2) return 3;
        base = aligned_alloc(64, (head[0] + 127) / 64 * 64);
        if (!base || fread(base, 1, head[0], in) != head[0]) return 4;
        args[i] = (char *)base + head[1];
    }
    KERNEL_run(args, 1);
    fseek(in, 8, SEEK_SET);
    for (uint64_t i = 0; i < blocks; i++) {
        if (fread(head, 8, 2, in) != 2) return 5;
        fseek(in, head[0], SEEK_CUR);
        if (i + 2 == blocks) fwrite((char *)args[i] - head[1], 1, head[0], out);
    }
    return fclose(out);
}
"""


def run_emulated(request: MeasureRequest, built: Built, case: Case, folder: Path) -> None:
    """Run the kernel once on the case's inputs; the output is in the case's storage after it."""
    require("aarch64-cc")
    require("qemu")
    code, source, program = folder / "kernel.o", folder / "harness.c", folder / "harness"
    code.write_bytes(built.code)
    source.write_text(HARNESS.replace("KERNEL", built.symbol))
    link = [COMPILER, "-O1", str(source), str(code), "-o", str(program), "-lm"]
    subprocess.run(link, check=True, timeout=PATIENCE_S)
    given, taken = folder / "in.bin", folder / "out.bin"
    reset_output(case.output)
    given.write_bytes(_arguments(request, built, case))
    wide = request.target.sve_granules
    cpu = f"max,sve{8 * request.target.vector_bytes}=on" if wide else "max"
    run = [EMULATOR, "-cpu", cpu, "-L", str(CROSS_ROOT), str(program), str(given), str(taken)]
    subprocess.run(run, check=True, timeout=PATIENCE_S)
    case.output.block[...] = memoryview(bytearray(taken.read_bytes()))


def _arguments(request: MeasureRequest, built: Built, case: Case) -> bytes:
    packs = {p.buffer: p for p in built.packs}
    task = request.task
    storages = [case.inputs[v.name] for v in task.by_role("input")]
    storages += [case.constant(v.name, packs.get(v.name)) for v in task.by_role("constant")]
    storages.append(case.output)
    blocks = [(s.block.tobytes(), s.address - s.block.ctypes.data) for s in storages]
    blocks.append((bytes(built.workspace_bytes), 0))
    parts = [struct.pack("<Q", len(blocks))]
    for data, offset in blocks:
        parts += [struct.pack("<QQ", len(data), offset), data]
    return b"".join(parts)
