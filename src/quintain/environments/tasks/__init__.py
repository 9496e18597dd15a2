"""Tasks: families that are generated, and files of rows."""
