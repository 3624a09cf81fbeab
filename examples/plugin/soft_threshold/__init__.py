"""A plugin of autotune: the soft threshold of wavelet shrinkage (Donoho and Johnstone 1994)."""
