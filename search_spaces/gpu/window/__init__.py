"""Windows that slide, on GPUs."""
