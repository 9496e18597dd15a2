"""Quintain: an MCP server through which an assistant trains agents by conversation."""

__version__ = "0.1.0"
