"""Preview of a dataset: its rows as training uses them, what is cut off, and faults."""
