"""Names of symbols by which a loader knows what code needs of it."""

TEAM_END = "autotune_team_end"
"""Ends the threads of an object's team."""
TILE_SHAPES = "autotune_tile_shapes"
"""Beginning of the names of tile configurations: an object that has one needs the system's
permission for matrix tiles."""
