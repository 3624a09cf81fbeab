"""Updates at computed places, on CPUs."""
