"""Transports of the protocol: standard streams, lines of JSON-RPC, and the logs and spans of requests."""
