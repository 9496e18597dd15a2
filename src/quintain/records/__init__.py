"""Frozen pydantic models of what is stored or crosses a process or the protocol, and the Protocols between packages.

Records perform no I/O and read no clock. Their defaults do not depend on the machine.
"""
