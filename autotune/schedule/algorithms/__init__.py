"""Steps that replace a kernel's algorithm by another one."""
