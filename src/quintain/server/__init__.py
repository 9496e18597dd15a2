"""The MCP server: registers what `quintain.tools` offers and serves it. No decisions, no SQL, no torch."""
