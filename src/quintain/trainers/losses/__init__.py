"""The losses: pure functions of log-probs and streams."""
