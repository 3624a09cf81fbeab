"""Code generation: programs to object code (`BACKENDS`), object code to callable addresses."""
