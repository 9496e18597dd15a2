"""`quintain/sandbox`: work on code in a sandbox; after `submit` the tests decide."""

from quintain.environments.sandbox.environment import Sandboxed

__all__ = ["Sandboxed"]
