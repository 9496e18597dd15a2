"""Steppable tasks: the registry and the built-in environments. No policies and no reward mixing."""
