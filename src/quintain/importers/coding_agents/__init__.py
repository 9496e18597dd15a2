"""Readers of the sessions of coding agents."""
