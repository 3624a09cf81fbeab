"""Steps for GPUs: blocks, threads, shared memory, tensor cores."""
