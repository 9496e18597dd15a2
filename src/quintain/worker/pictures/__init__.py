"""Figures, drawn in a short-lived subprocess."""
