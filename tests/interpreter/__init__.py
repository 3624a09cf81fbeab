"""What programs mean: a slow interpreter, the judge of what schedule steps may not change, and a
check of the invariants that every program keeps."""
