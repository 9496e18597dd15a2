"""The HTTP transport: who may call, how much and how fast, and the server that listens."""
