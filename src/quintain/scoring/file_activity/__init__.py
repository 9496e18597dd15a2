"""What a run did to files: reads, writes, edits, removals and moves, from its calls, shell commands, patches and code."""
