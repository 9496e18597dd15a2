"""Connect processes of other machines to a run: each connects to rank 0, and both sides prove that they know the key.

Messages are pickled objects, as between processes of one machine. Whoever knows the key can run code on either side; without
it a connection ends at the HMAC challenge. torch.distributed sends weights and gradients without any protection, so the
machines must share a trusted network.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
import time
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, answer_challenge, deliver_challenge
from pathlib import Path
from typing import NamedTuple

from quintain.errors import InvalidInput, NotFound, TrainingFailed, Unavailable

_COMING_S = 600.0
"""Seconds that a run waits for processes of other machines, and they for a run."""
_HANDSHAKE_S = 10


class Address(NamedTuple):
    """Address at which rank 0 listens, and the shared key."""

    host: str
    port: int
    key: bytes


def address(place: str, key_file: Path) -> Address:
    """Return the address `host:port` with the key of a file.

    Raises:
        NotFound: The file does not exist.
    """
    host, _, port = place.rpartition(":")
    try:
        return Address(host, int(port), key_file.read_bytes().strip())
    except FileNotFoundError:
        raise NotFound(f"no key file at {key_file}; copy it from the machine on which the run was started") from None


def key_file(folder: Path) -> Path:
    """Return the file with the key of this machine's runs; create it, readable by its owner alone, where it is missing."""
    path = folder / "ranks.key"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))
    return path


class Listener:
    """Socket at which rank 0 accepts the processes of other machines."""

    def __init__(self, at: Address) -> None:
        """Listen.

        Raises:
            Unavailable: The address does not belong to this machine, or is in use.
        """
        self._at, self.host = at, at.host
        try:
            self._socket = socket.create_server((at.host, at.port))
        except OSError as error:
            raise Unavailable(
                f"cannot listen on {at.host}:{at.port} for the processes of other machines: {error}; set "
                "rendezvous to a free port of this machine"
            ) from None

    def accept(self, count: int) -> list[Connection]:
        """Accept `count` processes; those of one machine follow each other in the result.

        Raises:
            TrainingFailed: Not all have connected in time (`machines_missing`).
        """
        connections: list[tuple[tuple[str, int], Connection]] = []
        deadline = time.monotonic() + _COMING_S
        while len(connections) < count:
            self._socket.settimeout(max(deadline - time.monotonic(), 1e-3))
            try:
                accepted, _ = self._socket.accept()
            except TimeoutError:
                raise TrainingFailed(
                    f"{len(connections)} of {count} processes of other machines connected to {self._at.host}:{self._at.port} within "
                    f"{_COMING_S:.0f} s; start there `accelerate launch -m quintain.trainers.distributed HOST:PORT KEY_FILE`, "
                    "then resume the job",
                    code="machines_missing",
                ) from None
            with accepted:
                connection = Connection(os.dup(accepted.fileno()))
                accepted.setblocking(True)
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _HANDSHAKE_S, 0))
                try:
                    deliver_challenge(connection, self._at.key)
                    answer_challenge(connection, self._at.key)
                    connections.append((connection.recv(), connection))
                except (AuthenticationError, EOFError, OSError):
                    connection.close()  # does not know the key
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))
        return [connection for _, connection in sorted(connections, key=lambda pair: pair[0])]

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()


def connect(at: Address, local_rank: int) -> Connection:
    """Connect to a run, which may start later.

    Raises:
        InvalidInput: The keys differ.
        Unavailable: No run listens (`no_run`).
    """
    deadline = time.monotonic() + _COMING_S
    while True:
        try:
            connection = Client((at.host, at.port), authkey=at.key)
            break
        except AuthenticationError:
            raise InvalidInput(
                "expected the key of the machine on which the run was started, got another; copy its ranks.key"
            ) from None
        except (EOFError, OSError) as error:
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"no run listens on {at.host}:{at.port} ({error}); start a training with machines above 1 there",
                    code="no_run",
                ) from None
            time.sleep(0.5)
    connection.send((f"{socket.gethostname()} {os.getppid()}", local_rank))  # the launcher identifies the machine
    return connection
