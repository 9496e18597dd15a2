"""Labels of runs: scores, rewards, judgements, preferences and their calibration."""
