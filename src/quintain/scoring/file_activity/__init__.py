"""File operations of a run: reads, writes, edits, removals and moves, from its calls, shell commands, patches and code."""
