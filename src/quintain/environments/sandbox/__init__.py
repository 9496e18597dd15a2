"""`quintain/sandbox`: work on code behind the walls of a sandbox; after `submit` the tests decide."""

from quintain.environments.sandbox.environment import Sandboxed

__all__ = ["Sandboxed"]
