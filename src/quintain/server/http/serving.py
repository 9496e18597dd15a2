"""The streamable HTTP transport: `quintain serve --transport http`."""

from __future__ import annotations

import errno
import logging
import math
import socket
from collections.abc import Callable
from contextlib import ExitStack

import anyio
from mcp.server.auth.provider import TokenVerifier
from mcp.server.auth.routes import build_resource_metadata_url
from pydantic import AnyHttpUrl
from starlette.types import ASGIApp

from quintain.endpoints.profiles import is_loopback
from quintain.errors import Refused, Unavailable
from quintain.server.app import QuintainServer
from quintain.server.http.access import Access, accepted_names, public_address
from quintain.server.http.application import PROTOCOL, http_application
from quintain.server.http.limits import Limits
from quintain.server.http.tokens import AnyVerifier, FileVerifier, TokenFile
from quintain.settings import Settings
from quintain.tools.web_address import page_announced

_BACKLOG = 256
"""Connections that wait to be accepted."""


def limits_of(settings: Settings) -> Limits:
    """Return the limits that the operator set."""
    return Limits(
        body_bytes=int(settings.http_body_mib * 2**20),
        calls_per_s=settings.http_calls_per_s,
        calls_at_once=settings.http_calls_at_once,
        connections=max(512, settings.http_connections),
        connections_per_client=settings.http_connections,
        grace_s=settings.http_grace_s,
    )


def access_of(settings: Settings, host: str, port: int, token: TokenFile | None) -> Access:
    """Return who may call a server that listens on an address, with the token of the home folder or with none.

    Raises:
        Refused: The server would be reachable from other machines and ask for no token.
        InvalidInput: A URL among the settings is not valid.
    """
    alone = is_loopback(host) and not settings.http_public_url and not settings.http_trusted_proxies
    if token is None and settings.http_issuer is None and not alone:
        raise Refused(
            f"expected a token for a server that other machines can reach ({host}), got --no-token; leave that option out, or "
            "set QUINTAIN_HTTP_ISSUER"
        )
    hosts, origins = accepted_names(host, port, settings.http_public_url, settings.http_hosts)
    url, root_path = public_address(host, port, settings.http_public_url)
    verifiers: list[TokenVerifier] = [FileVerifier(token)] if token is not None else []
    metadata_url = None
    if settings.http_issuer is not None:
        # Imported for those who set an issuer: it loads a library for signatures.
        from quintain.server.http.oauth import IssuerVerifier

        audience = settings.http_audience or f"{url}{PROTOCOL}"
        verifiers.append(IssuerVerifier(settings.http_issuer, audience, settings.http_scopes))
        metadata_url = str(build_resource_metadata_url(AnyHttpUrl(f"{url}{PROTOCOL}")))
    return Access(
        hosts=hosts,
        origins=origins,
        verifier=AnyVerifier(*verifiers) if verifiers else None,
        reads_are_open=alone,
        root_path=root_path,
        public_url=url,
        metadata_url=metadata_url,
    )


def serve_http(
    server: QuintainServer,
    settings: Settings,
    host: str = "127.0.0.1",
    port: int = 8765,
    *,
    token: TokenFile | None = None,
    page: Callable[[Access], ASGIApp] | None = None,
    on_ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve clients at `http://HOST:PORT/mcp` until SIGTERM or SIGINT; running jobs go on after that.

    Args:
        server: The server.
        settings: The operator settings: limits, names, proxies and issuer.
        host: Address to listen on.
        port: Port to listen on; 0: a free one.
        token: The token that clients must present; None for a server on loopback that asks for none.
        page: Makes the application for all other paths than those of the protocol.
        on_ready: Called with the public URL once the server listens.

    Raises:
        Unavailable: The address cannot be listened on.
    """
    import uvicorn

    from quintain.server.http.connections import GracefulServer, bounded_protocol

    # Requests that are not HTTP would each write a line.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    limits = limits_of(settings)
    with listening_socket(host, port) as listener, ExitStack() as announcement:
        access = access_of(settings, host, listener.getsockname()[1], token)
        app = http_application(server, access, limits, issuer=settings.http_issuer, page=page(access) if page else None)
        config = uvicorn.Config(
            app,
            http=bounded_protocol(limits, settings.http_trusted_proxies),
            ws="none",
            log_config=None,  # uvicorn's own would write to standard output
            access_log=False,
            server_header=False,
            proxy_headers=bool(settings.http_trusted_proxies),
            forwarded_allow_ips=list(settings.http_trusted_proxies),
            timeout_keep_alive=math.ceil(limits.idle_s),
            timeout_graceful_shutdown=math.ceil(limits.grace_s),
        )

        def ready() -> None:
            if page is not None:
                announcement.enter_context(page_announced(settings.home, access.public_url))
            on_ready(access.public_url)

        graceful = GracefulServer(config, ready, app.close_streams)
        anyio.run(graceful.serve, [listener])


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address.

    Raises:
        Unavailable: Another process listens there, or the address is not of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # asyncio sends small answers at once (TCP_NODELAY) only on sockets whose protocol is named.
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        remedy = "choose another --port" if error.errno == errno.EADDRINUSE else "correct --host"
        raise Unavailable(f"cannot listen on {host} port {port}: {error.strerror}; {remedy}", code="no_port") from error
    return listener
