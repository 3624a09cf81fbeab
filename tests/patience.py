"""How long a test waits for what comes at once where nobody else uses the machine."""

PATIENCE_S = 120.0
"""Seconds: nothing that works takes as long on a busy machine, and what hangs is still told."""
