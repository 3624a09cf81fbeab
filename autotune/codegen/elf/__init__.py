"""Objects read, relocated and loaded without a compiler or a linker, for small boards."""
