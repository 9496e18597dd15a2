"""What lasts: the only room with SQL. Takes and returns records; rows, sessions and connections stay inside."""
