"""Readers of coding agents' sessions."""
