"""Jobs: their states, specs and events, and the records that single kinds of jobs read and write."""
