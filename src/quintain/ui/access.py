"""Who may ask the web page for what: exact hosts and origins, and the token without which nothing changes."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from quintain.errors import Refused


def loopback_hosts(port: int) -> frozenset[str]:
    """Return the Host headers of a server on this machine's loopback addresses."""
    return frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]"))


@dataclass(frozen=True)
class Access:
    """The rules of one server.

    Attributes:
        hosts: Valid Host headers, with their port; an Origin must be `http://` or `https://` and one of them.
        token: What a request that changes something sends as `Authorization: Bearer`; None: nothing can be changed.
        open_reads: Whether reading needs no token.
    """

    hosts: frozenset[str]
    token: str | None = field(default=None, repr=False)
    open_reads: bool = True

    def require_origin(self, headers: Mapping[str, str]) -> None:
        """Refuse requests that a page of another site sent, and those for another host name (DNS rebinding).

        Raises:
            Refused: the Host or the Origin is not one of this server.
        """
        if headers.get("host", "").lower() not in self.hosts:
            raise Refused(
                "expected this server's host name, got another; open the address that it printed", code="host"
            )
        origin = headers.get("origin")
        if origin is not None and origin.lower().partition("://")[2] not in self.hosts:
            raise Refused(
                "expected a request of this server's page, got one of another site; open its page", code="origin"
            )

    def has_token(self, headers: Mapping[str, str]) -> bool:
        """Whether the request has the token."""
        scheme, _, sent = headers.get("authorization", "").partition(" ")
        if self.token is None or scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(sent.strip().encode(), self.token.encode())

    def require(self, headers: Mapping[str, str], *, changes: bool) -> None:
        """Refuse a request that needs the token and lacks it.

        Raises:
            Refused: with the code `token`.
        """
        if (self.open_reads and not changes) or self.has_token(headers):
            return
        if self.token is None:
            raise Refused(
                "expected a request that reads, got one that changes something; this page is read-only", code="token"
            )
        raise Refused(
            "expected the token, got none or another; open the address with #token= that the server printed at its start",
            code="token",
        )
