"""Readers of observability traces: records grouped by trace, model calls, and the conversations they form."""
