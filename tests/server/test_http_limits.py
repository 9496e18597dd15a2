"""What the HTTP server does with clients that are slow, many, or in a hurry, behind proxies, and when it stops."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from quintain.errors import InvalidInput, Refused, Unavailable
from quintain.server.http.access import Access, accepted_names
from quintain.server.http.connections import GracefulServer, bounded_protocol
from quintain.server.http.guard import Guard, may_change, may_read
from quintain.server.http.limits import Limits, TokenBuckets
from quintain.server.http.serving import access_of, listening_socket
from quintain.server.http.tokens import FileVerifier, TokenFile
from quintain.settings import Settings

OPEN = Access(frozenset({"h"}), frozenset({"http://h"}), None, True, "", "http://h")
QUICK = Limits(header_s=0.4, body_s=0.4, idle_s=0.4, stall_s=0.4, grace_s=1)
REQUEST = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n"


class Echo:
    """An application that answers when it is let: `/hold` waits, `/stream` never ends, `/flood` never stops."""

    def __init__(self) -> None:
        self.entered, self.go_on, self.left = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.scope: Scope = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.entered.set()
        if scope["type"] == "lifespan":
            return
        if scope["path"].endswith("/hold"):
            await self.go_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"].endswith("/stream"):
            await send({"type": "http.response.body", "body": b"event", "more_body": True})
            await asyncio.Event().wait()
        if scope["path"].endswith("/flood"):
            leaving = asyncio.create_task(self._wait_until_gone(receive))
            while not leaving.done():
                await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
                await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"done"})

    async def _wait_until_gone(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.left.set()


class Serving:
    """A server that runs in this test."""

    def __init__(self, app: ASGIApp, limits: Limits, access: Access, trusted: tuple[str, ...]) -> None:
        self.guard = Guard(app, access, limits, lambda scope: False)
        self.listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            self.guard,
            http=bounded_protocol(limits, trusted),
            ws="none",
            lifespan="off",
            log_config=None,
            proxy_headers=bool(trusted),
            forwarded_allow_ips=list(trusted),
            timeout_keep_alive=limits.idle_s,  # type: ignore[arg-type]
            timeout_graceful_shutdown=int(limits.grace_s),
        )
        self.ready = asyncio.Event()
        self.server = GracefulServer(config, self.ready.set, self.guard.close_streams)

    async def ask(self, sent: bytes, *, end: bytes | None = None) -> bytes:
        """Return what a new connection gets until it is closed, or until `end` is there."""
        reader, writer = await asyncio.open_connection(*self.listener.getsockname())
        writer.write(sent)
        async with asyncio.timeout(100):
            try:
                answer = await (reader.read() if end is None else reader.readuntil(end))
            except ConnectionResetError:
                answer = b""
        writer.close()
        return answer


def with_server(
    check: Callable[[Serving, Echo], Awaitable[None]],
    limits: Limits = QUICK,
    access: Access = OPEN,
    trusted: tuple[str, ...] = (),
) -> None:
    """Run a check against a server, and end it by the signal that an operator sends."""

    async def main() -> None:
        app = Echo()
        serving = Serving(app, limits, access, trusted)
        task = asyncio.create_task(serving.server.serve([serving.listener]))
        await serving.ready.wait()
        try:
            await check(serving, app)
        finally:
            app.go_on.set()
            signal.raise_signal(signal.SIGTERM)
            async with asyncio.timeout(100):
                await task

    asyncio.run(main())


def test_half_open_and_slow_connections_are_closed() -> None:
    """60 that send nothing, a part of their headers or a part of their body, and one that does not read its answer."""

    async def check(serving: Serving, app: Echo) -> None:
        half = [b"", b"POST / HT", REQUEST[:-2], b"GET / HTTP/1.1\r\nHost: h\r\n\r\nGET / HT"] * 15
        answers = await asyncio.gather(*(serving.ask(sent) for sent in half))
        assert [answer.partition(b"\r\n")[0] for answer in answers] == [b"", b"", b"", b"HTTP/1.1 200 OK"] * 15
        assert b"408 Request Timeout" in await serving.ask(REQUEST + b"a", end=b"again")
        _, writer = await asyncio.open_connection(*serving.listener.getsockname())
        writer.write(b"GET /flood HTTP/1.1\r\nHost: h\r\n\r\n")
        async with asyncio.timeout(100):
            await app.left.wait()
        writer.close()

    with_server(check)


def test_connections_calls_and_rates_of_a_client_are_bounded() -> None:
    limits = replace(QUICK, header_s=100, connections_per_client=3, calls_at_once=1)

    async def check(serving: Serving, app: Echo) -> None:
        serving.guard._buckets = TokenBuckets(rate=2, burst=4, clock=lambda: 0.0)  # however long the calls take
        held = asyncio.create_task(serving.ask(b"POST /hold HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"))
        await app.entered.wait()
        busy = await serving.ask(b"POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        assert busy.startswith(b"HTTP/1.1 503")
        assert b"at most 1 calls at once" in busy
        open_ones = [await asyncio.open_connection(*serving.listener.getsockname()) for _ in range(2)]
        assert await serving.ask(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n") == b""
        for _, writer in open_ones:
            writer.close()
            await writer.wait_closed()
        app.go_on.set()
        assert (await held).endswith(b"done\r\n0\r\n\r\n")
        get = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
        answers = [await serving.ask(get) for _ in range(4)]
        refused = [answer for answer in answers if answer.startswith(b"HTTP/1.1 429")]
        assert refused
        assert b"retry-after: 1\r\n" in refused[0].lower()

    with_server(check, limits)


def test_small_answers_are_sent_at_once(tmp_path: Path) -> None:
    """asyncio sets TCP_NODELAY where a socket names its protocol; else each answer waits 40 ms for the client's kernel."""
    with listening_socket("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP
        with pytest.raises(Unavailable, match=r"\[no_port\] .*Address already in use; choose another --port"):
            listening_socket("127.0.0.1", listener.getsockname()[1])


def test_a_bucket_refills_and_clients_do_not_share_it() -> None:
    now = [0.0]
    buckets = TokenBuckets(rate=10, burst=2, clock=lambda: now[0])
    assert [buckets.take("a") for _ in range(3)] == [0, 0, 0.1]
    assert buckets.take("b") == 0
    now[0] = 0.1
    assert buckets.take("a") == 0
    now[0] = 100
    assert [buckets.take("a") == 0 for _ in range(3)] == [True, True, False]


def test_sigterm_ends_streams_at_once_and_lets_calls_finish() -> None:
    async def check(serving: Serving, app: Echo) -> None:
        stream = asyncio.create_task(serving.ask(b"GET /stream HTTP/1.1\r\nHost: h\r\n\r\n"))
        await app.entered.wait()
        app.entered.clear()
        call = asyncio.create_task(serving.ask(b"POST /hold HTTP/1.1\r\nHost: h\r\n\r\n"))
        await app.entered.wait()
        signal.raise_signal(signal.SIGTERM)
        assert (await stream).endswith(b"\r\n0\r\n\r\n")  # complete, not cut off
        assert not call.done()
        app.go_on.set()
        assert b"done" in await call

    with_server(check, Limits(grace_s=10))


def test_a_proxy_is_believed_only_where_the_operator_names_it() -> None:
    get = b"GET /quintain/x HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 9.9.9.9, 8.8.8.8\r\nConnection: close\r\n\r\n"
    below = replace(OPEN, root_path="/quintain")
    seen: list[tuple[str, str, str]] = []

    async def check(serving: Serving, app: Echo) -> None:
        for request in (get, get.replace(b"/quintain", b"")):
            await serving.ask(request)
            seen.append((app.scope["client"][0], app.scope["root_path"], app.scope["path"]))

    with_server(check, access=below)
    with_server(check, access=below, trusted=("127.0.0.1",))
    assert seen == [("127.0.0.1", "/quintain", "/quintain/x")] * 2 + [("8.8.8.8", "/quintain", "/quintain/x")] * 2


def test_names_of_a_server_come_from_its_address_and_its_public_url() -> None:
    hosts, origins = accepted_names("0.0.0.0", 8765, "https://Train.example.org/quintain", ["quintain:8765"])
    names = {"127.0.0.1:8765", "localhost:8765", "[::1]:8765", "quintain:8765"}
    assert hosts == names | {"train.example.org", "train.example.org:443"}
    local = {f"{scheme}://{name}" for scheme in ("http", "https") for name in names}
    assert origins == local | {"https://train.example.org"}
    for url in ("train.example.org", "ftp://a.b", "https://a.b?c", "https://u:p@a.b", "https://[", "https://a.b:99999"):
        with pytest.raises(InvalidInput, match="QUINTAIN_HTTP_PUBLIC_URL"):
            accepted_names("127.0.0.1", 1, url)


@pytest.mark.parametrize(
    ("host", "environment"),
    [
        ("0.0.0.0", {}),
        ("192.0.2.7", {}),
        ("::", {}),
        ("example.org", {}),
        ("127.0.0.1", {"http_public_url": "https://example.org"}),
        ("127.0.0.1", {"http_trusted_proxies": ("10.0.0.1",)}),
    ],
)
def test_what_others_can_reach_needs_a_token(tmp_path: Path, host: str, environment: dict[str, object]) -> None:
    settings = Settings.model_validate({"home": tmp_path, **environment})
    with pytest.raises(Refused, match=r"expected a token .* got --no-token; leave that option out"):
        access_of(settings, host, 8765, None)
    access = access_of(settings, host, 8765, TokenFile(tmp_path))
    request: Scope = {"type": "http", "headers": []}
    assert not may_read(request, access)
    assert not may_change(request, access)


def test_reading_needs_no_token_on_loopback_unless_a_proxy_passed_it_on(tmp_path: Path) -> None:
    access = access_of(Settings(home=tmp_path), "127.0.0.1", 8765, TokenFile(tmp_path))
    assert may_read({"type": "http", "headers": []}, access)
    assert not may_change({"type": "http", "headers": []}, access)
    assert not may_read({"type": "http", "headers": [(b"x-forwarded-for", b"9.9.9.9")]}, access)


def test_the_token_is_private_lasts_and_is_replaced_at_once(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "home")
    verifier = FileVerifier(file)

    def valid(text: str) -> bool:
        return asyncio.run(verifier.verify_token(text)) is not None

    assert not valid("")
    assert file.create()
    first = file.read()
    assert (len(first), file.path.stat().st_mode & 0o777, file.path.parent.stat().st_mode & 0o777) == (43, 0o600, 0o700)
    assert not TokenFile(tmp_path / "home").create()
    assert (valid(first), valid(first[:-1]), valid(first + "a"), valid("\ud800"), valid("é")) == (True, *[False] * 4)
    assert TokenFile(tmp_path / "home").create(replace=True)  # another process, while this one serves
    assert (valid(first), valid(file.read()), [path.name for path in file.path.parent.iterdir()]) == (
        False,
        True,
        ["http-token"],
    )
    file.path.chmod(0o640)
    with pytest.raises(Refused, match=r"expected mode 600 .*, got 640; .*--rotate-token"):
        file.create()
    file.path.unlink()
    assert not valid(first)
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match=r"cannot write the token file .*: File exists"):
        TokenFile(tmp_path / "file").create()
