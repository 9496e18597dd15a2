"""Labels that stand in a file of their own: a table with the id of a run, what somebody thought of it, and who."""
