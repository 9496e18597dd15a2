"""Jobs: states, launch, the shim that supervises each job, and ingestion of job directories into the store.

A job is a process and a directory through which it communicates. It does not need a server to run, to finish, or to be
followed by the next job. This package is independent of what a job computes; it starts the worker by module name.
"""
