"""The client as blocking calls, generated from `aio`."""
