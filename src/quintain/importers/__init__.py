"""Readers of agent logs, one small module a format behind one protocol (`protocol.py`), found by `registry.py`."""
