"""The reward audit: rewards that were earned by something else than doing the task."""
