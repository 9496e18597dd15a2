"""Isolated execution of agents' commands and tests: no network, no writes outside the workspace, resource limits, cleanup."""
