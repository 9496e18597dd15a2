"""Two machines on one: network namespaces with a link between them, which can lose every packet. Linux, as root.

This process is on the first one, programs started with `second` in front are on the other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

FIRST, SECOND = "10.77.0.1", "10.77.0.2"
"""Addresses."""

DEVICES = ("quintain0", "quintain1")
"""Network devices of the two."""

_NOBODY = "02:00:00:00:00:99"
"""A hardware address that no device has: packets to it are dropped by whoever gets them, and nobody is told."""


class NoNamespaces(Exception):
    """Namespaces cannot be made here; the message says why."""


def isolated(*command: str) -> int:
    """Run a command with its own network, which `TwoMachines` may then change; return its exit status.

    Raises:
        NoNamespaces: This user may not, or the programs are missing.
    """
    for probe in (["unshare", "--net", "--uts", "true"], ["ip", "-V"], ["nsenter", "--version"]):
        try:
            subprocess.run(probe, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise NoNamespaces(f"{' '.join(probe)}: {error}") from error
    return subprocess.call(["unshare", "--net", *command])


class TwoMachines:
    """A link from this process's network to another one. Call it in a process that `isolated` runs."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(["unshare", "--net", "--uts", "sh", "-c", "hostname second; exec sleep 36000"])
        pid = self._holder.pid
        while os.readlink(f"/proc/{pid}/ns/uts") == os.readlink("/proc/self/ns/uts"):
            time.sleep(0.01)
        self.second = ("nsenter", f"--target={pid}", "--net", "--uts")
        """What comes in front of a command on the second machine."""
        self._ip("link", "add", DEVICES[0], "type", "veth", "peer", "name", DEVICES[1], "netns", str(pid))
        for place, device, address in (((), DEVICES[0], FIRST), (self.second, DEVICES[1], SECOND)):
            self._ip("link", "set", "lo", "up", place=place)
            self._ip("addr", "add", f"{address}/24", "dev", device, place=place)
            self._ip("link", "set", device, "up", place=place)
        self._addresses = self._hardware((), DEVICES[0]), self._hardware(self.second, DEVICES[1])
        self.restore()

    def silence(self) -> None:
        """Lose every packet from now on, in both directions; nobody gets an error."""
        self._send_to(_NOBODY, _NOBODY)

    def restore(self) -> None:
        """Deliver packets again."""
        self._send_to(*self._addresses)

    def close(self) -> None:
        """End the second machine, and the link with it."""
        self._holder.kill()
        self._holder.wait()

    def _send_to(self, first: str, second: str) -> None:
        self._ip("neigh", "replace", SECOND, "lladdr", second, "nud", "permanent", "dev", DEVICES[0])
        self._ip("neigh", "replace", FIRST, "lladdr", first, "nud", "permanent", "dev", DEVICES[1], place=self.second)

    def _hardware(self, place: tuple[str, ...], device: str) -> str:
        (found,) = json.loads(self._ip("-json", "link", "show", device, place=place))
        return str(found["address"])

    @staticmethod
    def _ip(*arguments: str, place: tuple[str, ...] = ()) -> str:
        return subprocess.run([*place, "ip", *arguments], check=True, capture_output=True, text=True).stdout


def module(name: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of this environment."""
    return [sys.executable, "-m", name, *arguments]


ROOT = Path(__file__).parents[2]
