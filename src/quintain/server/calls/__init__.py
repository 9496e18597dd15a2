"""Calls of tools over the protocol: their schemas and listings, the check of arguments, results and failures."""
