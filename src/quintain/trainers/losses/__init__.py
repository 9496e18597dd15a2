"""The losses, one file a method: pure functions of log-probs and streams."""
