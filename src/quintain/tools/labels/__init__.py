"""Tools for labels: score, judge, prefer and calibrate."""
