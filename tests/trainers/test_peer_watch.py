"""Processes on other machines that go silent are noticed, and whatever waits for them ends."""

from __future__ import annotations

import socket
import sys
import threading
from contextlib import closing

import pytest
from torch.distributed import TCPStore

from network_path import NetworkPath
from quintain.trainers.distributed.peer_watch import PeerWatch, break_remote_connections


@pytest.mark.parametrize("is_silent_from_the_start", [True, False])
def test_both_sides_of_a_network_path_that_forwards_nothing_any_more_notice_it(
    is_silent_from_the_start: bool,
) -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    noticed = [threading.Event(), threading.Event()]
    with closing(NetworkPath(("127.0.0.1", store.port))) as path:
        watches = [PeerWatch(rank, 2, 0.3, noticed[rank].set) for rank in (0, 1)]
        try:
            watches[0].start("127.0.0.1", store.port)
            if is_silent_from_the_start:
                path.hold()
            watches[1].start("127.0.0.1", path.port)
            while not is_silent_from_the_start and store.add("quintain/beats/1", 0) == 0:
                pass
            path.hold()
            assert all(event.wait(100) for event in noticed)
        finally:
            for watch in watches:
                watch.stop()
    assert watches[0].fault is not None
    assert watches[0].fault.startswith("expected a heartbeat of process 2 of 2 within 0.3 s, got none: its machine")
    assert (watches[1].fault or "").startswith("expected a heartbeat of process 1 of 2")


@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is an address of its own on Linux alone")
def test_connections_to_other_addresses_break_and_those_within_the_machine_stay() -> None:
    pairs = []
    for host in ("127.0.0.2", "127.0.0.1"):
        with socket.create_server((host, 0)) as server:
            client = socket.create_connection(server.getsockname(), source_address=("127.0.0.1", 0))
            pairs.append((client, server.accept()[0]))
    break_remote_connections()
    (far, far_end), (near, near_end) = pairs
    assert (far.recv(1), far_end.recv(1)) == (b"", b"")
    near.sendall(b"x")
    assert near_end.recv(1) == b"x"
    for connection in (far, far_end, near, near_end):
        connection.close()
