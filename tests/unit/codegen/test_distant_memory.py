"""Objects loaded into a process whose free addresses are far apart, as where models of gigabytes
are mapped: their parts reach each other by 32 bits, so they must lie together."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import ctypes
from autotune.codegen.llvm.backend import compile_text
from autotune.codegen.loader import load
from autotune.target import host_target

TABLE = '''
@table = constant [4 x i64] [i64 10, i64 20, i64 30, i64 40]
declare i64 @other(i64)
define i64 @kernel(i64 %n) {
  %slot = getelementptr [4 x i64], ptr @table, i64 0, i64 %n
  %value = load i64, ptr %slot
  %result = call i64 @other(i64 %value)
  ret i64 %result
}
'''
STORES = "".join(f"  store volatile i64 {(1 << 40) + i}, ptr @cell\\n" for i in range(4000))
OTHER = f"@cell = global i64 0\\ndefine i64 @other(i64 %n) {{\\n{STORES}  ret i64 %n\\n}}\\n"
target = host_target()
codes = [compile_text(text, target) for text in (TABLE, OTHER)]

libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
PRIVATE, ANONYMOUS, NORESERVE = 0x02, 0x20, 0x4000

def taken(size):
    return libc.mmap(None, size, 0, PRIVATE | ANONYMOUS | NORESERVE, -1, 0)

hole, wall = taken(1 << 20), taken(1 << 33)
for size in (1 << 30, 1 << 24, 1 << 20, 1 << 16, 1 << 12):
    while taken(size) > wall:  # what is free above the wall
        pass
libc.munmap(hole, 3 << 12)  # room for constants, not for the code
library = load(codes, target)
kernel = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library.address("kernel"))
print(kernel(2))
"""


def test_code_reaches_its_constants_where_little_is_free_beside_them() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "30\n"), done.stderr[-500:]
