"""WebAssembly: objects that LLVM makes, linked as a module without a linker."""
