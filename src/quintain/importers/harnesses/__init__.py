"""Readers of the logs of evaluation harnesses, benchmarks and agent frameworks."""
