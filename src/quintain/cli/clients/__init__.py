"""Configuration files of MCP clients: where they are, and edits that leave everything else in them unchanged."""
