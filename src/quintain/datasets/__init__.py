"""Frozen datasets: selection, curation, splits by task, and immutable folders of rows."""
