"""Models that are no single native call: nodes without kernels of ours, and values that decide
shapes and are known to a run only."""
