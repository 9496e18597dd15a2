"""Checkers of text answers, shared by scorers and environments."""
