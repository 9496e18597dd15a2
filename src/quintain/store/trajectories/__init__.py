"""Stored trajectories: rows, filters, inserts and reads."""
