"""The training loop: schedule, passes, optimizer, checkpoints and metrics."""
