"""Jobs: states, launch, the shim that watches each job, and the reconciler that reads job directories into the store.

A job is a process of its own and a directory that is its mailbox; it needs no server to run, to end or to be followed by
the next one. Nothing here knows what a job computes: the worker is started by name.
"""
