"""Persistent storage: the only package with SQL. Takes and returns records; rows, sessions and connections stay inside."""
