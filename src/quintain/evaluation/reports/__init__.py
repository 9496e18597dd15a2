"""Reports of evaluations and comparisons."""
