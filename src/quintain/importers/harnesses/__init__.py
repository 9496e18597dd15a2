"""Readers of evaluation harnesses, benchmarks and agent frameworks."""
