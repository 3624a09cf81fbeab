"""Windows that slide: depthwise convolutions and pools, on CPUs."""
