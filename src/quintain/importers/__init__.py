"""Import of agent logs: one small reader a format (`registry.py`) and the loop that runs them (`pipeline.py`)."""
