"""How processes of other machines come to a run: each connects to rank 0, and both sides prove that they know the key.

What they then say to each other are pickled objects, as in a pipe between processes of one machine: whoever knows the key
can run code on either side, and whoever does not gets no further than the challenge (HMAC). Weights and gradients travel
beside that through torch.distributed, which protects nothing: the machines must share a network that they can trust.
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
"""How long a run waits for processes of other machines, and they for a run."""
_HANDSHAKE_S = 10


class Address(NamedTuple):
    """Where rank 0 listens, and the key that is asked for there."""

    host: str
    port: int
    key: bytes


def address(place: str, key_file: Path) -> Address:
    """The address at host:port with the key in a file.

    Raises:
        NotFound: there is no such file.
    """
    host, _, port = place.rpartition(":")
    try:
        return Address(host, int(port), key_file.read_bytes().strip())
    except FileNotFoundError:
        raise NotFound(f"no key at {key_file}; copy it from the machine that the run was started on") from None


def key_file(folder: Path) -> Path:
    """The file in a folder with the key of this machine's runs; made, for its owner alone to read, where there is none."""
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
    """Where rank 0 lets the processes of other machines in."""

    def __init__(self, at: Address) -> None:
        """Listen.

        Raises:
            Unavailable: the address is not of this machine, or taken.
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
        """Let in as many as the run needs, those of a machine one after the other.

        Raises:
            TrainingFailed: they did not come in time (`machines_missing`).
        """
        came: list[tuple[tuple[str, int], Connection]] = []
        deadline = time.monotonic() + _COMING_S
        while len(came) < count:
            self._socket.settimeout(max(deadline - time.monotonic(), 1e-3))
            try:
                accepted, _ = self._socket.accept()
            except TimeoutError:
                raise TrainingFailed(
                    f"{len(came)} of {count} processes of other machines came to {self._at.host}:{self._at.port} within "
                    f"{_COMING_S:.0f} s; start there `accelerate launch -m quintain.trainers.distributed HOST:PORT KEY_FILE`, "
                    "then resume_job",
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
                    came.append((connection.recv(), connection))
                except (AuthenticationError, EOFError, OSError):
                    connection.close()  # a stranger
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))
        return [connection for _, connection in sorted(came, key=lambda guest: guest[0])]

    def close(self) -> None:
        """Let nobody in any more."""
        self._socket.close()


def connect(at: Address, local_rank: int) -> Connection:
    """Come to a run, which may begin later.

    Raises:
        InvalidInput: the keys differ.
        Unavailable: there is no run (`no_run`).
    """
    deadline = time.monotonic() + _COMING_S
    while True:
        try:
            connection = Client((at.host, at.port), authkey=at.key)
            break
        except AuthenticationError:
            raise InvalidInput(
                "the key is not that of the machine that the run was started on; copy ranks.key from there"
            ) from None
        except (EOFError, OSError) as error:
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"no run listens on {at.host}:{at.port} ({error}); start a training with machines above 1 there",
                    code="no_run",
                ) from None
            time.sleep(0.5)
    connection.send((f"{socket.gethostname()} {os.getppid()}", local_rank))  # the launcher stands for the machine
    return connection
