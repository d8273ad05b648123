"""Keep: what this machine holds. Lines, the notebook that joins them, and the files they lie in."""
