"""The engine: packed rows, shared prefixes, the head at supervised places only."""
