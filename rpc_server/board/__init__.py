"""A board: one device that builds, checks and times candidates for others."""
