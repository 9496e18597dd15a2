"""Which requests may reach an application: by Host, Origin and bearer token."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from mcp.server.auth.provider import TokenVerifier

from quintain.endpoints.profiles import is_loopback
from quintain.errors import InvalidInput

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Access:
    """The conditions of one server.

    Args:
        hosts: Exact values of the Host header, in lower case.
        origins: Exact values of the Origin header, in lower case.
        verifier: Checks bearer tokens; None: no request needs one.
        reads_are_open: Whether requests that only read need no token: the server is reachable from this machine alone.
        root_path: Path below which a proxy publishes the server, such as `/quintain`; empty for none.
        public_url: URL under which clients reach the server, without a slash at its end.
        metadata_url: URL of the OAuth metadata that a refusal names; None where no issuer is set.
    """

    hosts: frozenset[str]
    origins: frozenset[str]
    verifier: TokenVerifier | None
    reads_are_open: bool
    root_path: str
    public_url: str
    metadata_url: str | None = None


def accepted_names(
    host: str, port: int, public_url: str | None, further_hosts: Iterable[str] = ()
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the exact Host and Origin values of a server: its own address, its public URL, and what the operator adds.

    The public URL is that under which a proxy publishes it; further hosts have their ports.

    Raises:
        InvalidInput: `public_url` is not an http or https URL without query and credentials.
    """
    local = {"127.0.0.1", "localhost", "::1"} if is_loopback(host) or host in {"0.0.0.0", "::"} else set()
    names = {_bracketed(name) for name in local | ({host} - {"0.0.0.0", "::"})}
    hosts = {f"{name}:{port}" for name in names} | {name.lower() for name in further_hosts}
    origins = {f"{scheme}://{name}" for name in hosts for scheme in _DEFAULT_PORTS}
    if port in _DEFAULT_PORTS.values():
        hosts |= names
        origins |= {f"{scheme}://{name}" for name in names for scheme in _DEFAULT_PORTS}
    if public_url is not None:
        parts = _published(public_url)
        default = _DEFAULT_PORTS[parts.scheme]
        name, published = _bracketed(parts.hostname or ""), parts.port or default
        hosts |= {f"{name}:{published}"} | ({name} if published == default else set())
        origins.add(f"{parts.scheme}://{name}" + (f":{published}" if published != default else ""))
    return frozenset(hosts), frozenset(origins)


def public_address(host: str, port: int, public_url: str | None) -> tuple[str, str]:
    """Return the URL under which clients reach a server, and the path below which it serves; neither ends in a slash.

    Arguments and errors are those of `accepted_names`.
    """
    if public_url is None:
        name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        return f"http://{_bracketed(name)}:{port}", ""
    return public_url.rstrip("/"), _published(public_url).path.rstrip("/")


def _published(public_url: str) -> SplitResult:
    """Split the URL under which a proxy publishes a server."""
    try:
        parts = urlsplit(public_url)
        valid = parts.scheme in _DEFAULT_PORTS and parts.hostname and parts.port != 0
    except ValueError:
        valid = None
    if not valid or parts.query or parts.fragment or parts.username is not None:
        raise InvalidInput(
            f"expected QUINTAIN_HTTP_PUBLIC_URL to be a URL such as https://example.org/quintain, got {public_url!r}; correct it"
        )
    return parts


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name else name.lower()
