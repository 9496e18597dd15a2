"""Tools for evaluation: collect rollouts, evaluate and compare agents."""
