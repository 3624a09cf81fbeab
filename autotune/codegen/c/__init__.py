"""Programs to C99 and OpenCL C."""
