"""Tools for training: plan, start, and register or export agents."""
