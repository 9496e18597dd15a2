"""Scorers of outcomes: recorded results, answers, JSON, patterns and unit tests."""
