"""The only episode loop, task suites, statistics and comparison. No torch and no store."""
