"""The tracker: what a farm knows and decides, and the process around it."""
