"""Figures, drawn by a short-lived subprocess."""
