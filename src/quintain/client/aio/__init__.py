"""The client as coroutines: the source that `sync` is generated from."""
