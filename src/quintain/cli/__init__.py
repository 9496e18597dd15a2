"""The command line: one file a command. Imports stand inside the commands, so that `--help` is quick."""
