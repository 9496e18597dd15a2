"""Environments of other libraries and servers, each behind an adapter that runs in a separate process."""
