"""Traces of observability tools: their records by trace, the model calls in them, and the conversations that these were."""
