"""Preferences between runs of one task: mined from values, from forks, or by majority."""
