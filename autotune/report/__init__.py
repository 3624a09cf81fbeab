"""Reports: one page about the tuning of a model, without anything outside it."""
