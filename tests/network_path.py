"""A network path between two programs of a test, which can fail."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress


class NetworkPath:
    """A network path to a server, which can be cut, or go silent: a TCP proxy that resets its connections, or forwards nothing.

    Args:
        target: Path of a socket, or host and port.
    """

    def __init__(self, target: str | tuple[str, int]) -> None:
        self.target = target
        self._is_open = threading.Event()
        self._is_open.set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            behind = socket.socket(socket.AF_UNIX if isinstance(self.target, str) else socket.AF_INET)
            try:
                behind.connect(self.target)
            except OSError:
                client.close()
                behind.close()
                continue
            self.open += [client, behind]
            for source, sink in ((client, behind), (behind, client)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                self._is_open.wait()
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)  # ends the other pump, which closes it
        source.close()

    def cut(self) -> None:
        """Reset every connection, in both directions."""
        ends, self.open = self.open, []
        for end in ends:
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close() resets
                end.shutdown(socket.SHUT_RDWR)

    def hold(self) -> None:
        """Forward nothing from now on; connections stay open."""
        self._is_open.clear()

    def close(self) -> None:
        """Close everything, and forward what is held back."""
        self.listener.close()
        self._is_open.set()
        self.cut()
