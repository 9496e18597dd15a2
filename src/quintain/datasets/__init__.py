"""Datasets: chosen runs or ready-made rows, curated, split by task, and frozen into an immutable folder."""
