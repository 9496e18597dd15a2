"""The job kinds `judge` and `score`: models that judge runs."""
