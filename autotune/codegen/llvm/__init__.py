"""Programs to LLVM IR as text, and LLVM that makes objects of it: CPUs."""
