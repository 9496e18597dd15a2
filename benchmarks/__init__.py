"""Measurements: `python -m benchmarks.NAME` for each module that has a `main`, and for each package; figures are JSON lines.

Used by several: `figures` (output), `jobs` (jobs and their runs), `machine` (load and ports), `process_cost` (CPU time and memory),
`workload` (small models and runs), `postgres_server` and `ray_cluster` (throw-away services), `server` (a client over stdio).
"""
