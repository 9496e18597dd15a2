"""Configuration files of MCP clients: where they are, and edits that keep everything else in them as it was."""
