"""JWT access tokens of an OAuth issuer: a real issuer's metadata and keys over HTTP, and every way to be wrong."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from starlette.testclient import TestClient

from quintain.errors import InvalidInput
from quintain.server.app import QuintainServer
from quintain.server.http.application import http_application
from quintain.server.http.limits import Limits
from quintain.server.http.oauth import IssuerVerifier
from quintain.server.http.serving import access_of
from quintain.settings import Settings

AUDIENCE = "https://train.example.org/quintain/mcp"
KEY, STRANGER = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
HANDSHAKE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
JWK = {**ECAlgorithm.to_jwk(KEY.public_key(), as_dict=True), "kid": "one", "use": "sig", "alg": "ES256"}


class Issuer(ThreadingHTTPServer):
    """Publishes its metadata and its keys."""

    asked: list[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/realm"


class _Answer(BaseHTTPRequestHandler):
    server: Issuer

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        found: dict[str, Any] | None = {
            "/.well-known/oauth-authorization-server/realm": {
                "issuer": self.server.url,
                "jwks_uri": f"http://127.0.0.1:{self.server.server_port}/keys",
            },
            "/keys": {"keys": [JWK]},
        }.get(self.path)
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(json.dumps(found or {}).encode())

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer(("127.0.0.1", 0), _Answer) as server:
        server.asked = []
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def signed(issuer: Issuer, key: Any = KEY, algorithm: str = "ES256", kid: str = "one", **changes: Any) -> str:
    claims = {"iss": issuer.url, "aud": AUDIENCE, "sub": "ann", "exp": time.time() + 60, "scope": "read train"}
    claims |= changes
    headers = {"kid": kid}
    return jwt.encode({name: value for name, value in claims.items() if value is not None}, key, algorithm, headers)


def test_a_token_of_the_issuer_for_this_server_is_accepted_and_no_other(issuer: Issuer) -> None:
    verifier = IssuerVerifier(issuer.url, AUDIENCE, ["train"])

    def accepted(token: str) -> bool:
        return asyncio.run(verifier.verify_token(token)) is not None

    found = asyncio.run(verifier.verify_token(signed(issuer)))
    assert found is not None
    assert (found.subject, found.client_id, found.resource, found.scopes) == ("ann", "ann", AUDIENCE, ["read", "train"])
    assert accepted(signed(issuer, aud=["other", AUDIENCE], scope=None, scp=["train"]))
    unsigned = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    wrong = {
        "another key": signed(issuer, STRANGER),
        "an unknown key": signed(issuer, kid="two"),
        "another issuer": signed(issuer, iss="https://evil.example"),
        "no issuer": signed(issuer, iss=None),
        "another server": signed(issuer, aud="https://other.example/mcp"),
        "no audience": signed(issuer, aud=None),
        "expired": signed(issuer, exp=time.time() - 60),
        "without end": signed(issuer, exp=None),
        "not yet valid": signed(issuer, nbf=time.time() + 90),
        "without subject": signed(issuer, sub=None),
        "without the scope": signed(issuer, scope="read"),
        "of an odd scope": signed(issuer, scope=7),
        "signed by the published key as a secret": signed(issuer, str(JWK["x"]).encode(), "HS256"),
        "unsigned": f"{unsigned}.{signed(issuer).split('.')[1]}.",
        "cut": signed(issuer)[:-8],
        "no JWT": "a.b.c",
        "not ASCII": "é.é.é",
    }
    assert [name for name, token in wrong.items() if accepted(token)] == []
    assert issuer.asked == ["/.well-known/oauth-authorization-server/realm", "/keys"]  # strangers cause no requests


def test_an_issuer_that_is_down_is_asked_once_in_ten_seconds_and_nobody_gets_in() -> None:
    now = [0.0]
    with Issuer(("127.0.0.1", 0), _Answer) as gone:
        token = signed(gone)
    verifier = IssuerVerifier(gone.url, AUDIENCE, clock=lambda: now[0])
    assert asyncio.run(verifier.verify_token(token)) is None
    assert verifier._failed_at == 0.0
    now[0] = 9.0
    assert asyncio.run(verifier.verify_token(token)) is None
    assert verifier._failed_at == 0.0  # not asked again
    for url in ("http://issuer.example", "ftp://a.b", "issuer", "https://a.b/?c"):
        with pytest.raises(InvalidInput, match="QUINTAIN_HTTP_ISSUER"):
            IssuerVerifier(url, AUDIENCE)


def test_a_client_finds_the_issuer_by_the_answer_to_its_first_request(
    issuer: Issuer, small: QuintainServer, tmp_path: Path
) -> None:
    """Behind a proxy with a root path: 401 names the metadata (RFC 9728), which names the issuer; its token gets in."""
    settings = Settings(
        home=tmp_path,
        http_public_url="https://train.example.org/quintain",
        http_issuer=issuer.url,
        http_scopes=("train",),
    )
    access = access_of(settings, "127.0.0.1", 8765, None)
    app = http_application(small, access, Limits(), issuer=settings.http_issuer)
    with TestClient(app, base_url="https://train.example.org") as client:
        refused = client.post("/quintain/mcp")
        where = "https://train.example.org/.well-known/oauth-protected-resource/quintain/mcp"
        assert refused.status_code == 401
        assert f'resource_metadata="{where}"' in refused.headers["WWW-Authenticate"]
        for place in (where, "/.well-known/oauth-protected-resource", "/quintain/.well-known/oauth-protected-resource"):
            metadata = client.get(place).json()
            assert (metadata["resource"], metadata["authorization_servers"]) == (AUDIENCE, [issuer.url])
        assert client.get("/.well-known/other").status_code == 404
        body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HANDSHAKE}
        headers = {"Authorization": f"Bearer {signed(issuer)}", "Accept": "application/json, text/event-stream"}
        opened = client.post("/mcp", json=body, headers=headers)  # a proxy may remove the root path
        session = opened.headers["Mcp-Session-Id"]
        other = {"Mcp-Session-Id": session} | headers | {"Authorization": f"Bearer {signed(issuer, sub='bob')}"}
        listed = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        assert client.post("/mcp", json=listed, headers=other).status_code == 404  # a session belongs to who opened it
        assert client.post("/mcp", json=listed, headers=other | headers).status_code == 200
