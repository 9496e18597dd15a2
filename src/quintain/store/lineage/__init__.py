"""Lineage of stored things, and forgetting."""
