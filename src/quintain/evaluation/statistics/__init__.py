"""Statistics of success rates and scores on shared tasks."""
