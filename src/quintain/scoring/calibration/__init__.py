"""Calibration of scorers against labels of people, and agreement between raters."""
