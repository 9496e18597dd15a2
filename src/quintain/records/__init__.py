"""What is stored or crosses a process or the protocol: frozen pydantic models and the Protocols between rooms.

No I/O, no clock, no defaults that read the world.
"""
