"""Programs to PTX through LLVM: NVIDIA GPUs."""
