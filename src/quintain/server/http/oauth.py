"""Access tokens of an OAuth issuer: JWTs whose keys the issuer publishes (RFC 9068, RFC 8414)."""

from __future__ import annotations

import json
import logging
import time
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import anyio.to_thread
import jwt
from mcp.server.auth.provider import AccessToken, TokenVerifier

from quintain.endpoints.profiles import is_loopback
from quintain.errors import InvalidInput

logger = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures by a private key: one by a shared secret could be made with the published key."""

_TIMEOUT_S = 5.0
_RETRY_S = 10.0
_METADATA_BYTES = 2**20
_LEEWAY_S = 30


class IssuerVerifier(TokenVerifier):
    """Accept the access tokens that an issuer signed for this server: those that name its audience and have its scopes.

    Raises:
        InvalidInput: The issuer is not an https URL, or an http URL of this machine.
    """

    def __init__(
        self, issuer: str, audience: str, scopes: Sequence[str] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        parts = urlsplit(issuer)
        secure = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
        if not secure or not parts.hostname or parts.query or parts.fragment:
            raise InvalidInput(f"expected QUINTAIN_HTTP_ISSUER to be an https URL, got {issuer!r}; correct it")
        self._issuer, self._audience, self._scopes, self._clock = issuer, audience, frozenset(scopes), clock
        self._keys: jwt.PyJWKClient | None = None
        self._failed_at: float | None = None

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the owner of the token, or None where it is not valid or the issuer's keys cannot be had now."""
        if token.count(".") != 2:
            return None
        try:
            claims = await anyio.to_thread.run_sync(self._claims, token)
        except (jwt.PyJWTError, ValueError) as error:
            logger.info("a token was refused: %s", type(error).__name__)
            return None
        except OSError as error:
            self._failed_at = self._clock()
            logger.warning("the keys of the issuer %s cannot be read: %s", self._issuer, error)
            return None
        scopes = _scopes(claims)
        if not self._scopes <= set(scopes):
            return None
        return AccessToken(
            token=token,
            client_id=str(claims.get("client_id") or claims.get("azp") or claims["sub"]),
            scopes=scopes,
            expires_at=int(claims["exp"]),
            resource=self._audience,
            subject=str(claims["sub"]),
            claims={"iss": self._issuer},
        )

    def _claims(self, token: str) -> dict[str, Any]:
        """Return the claims of a token whose signature, issuer, audience and times are right."""
        if self._failed_at is not None and self._clock() - self._failed_at < _RETRY_S:
            raise jwt.InvalidTokenError
        if jwt.get_unverified_header(token).get("alg") not in ALGORITHMS:
            raise jwt.InvalidAlgorithmError
        if self._keys is None:
            self._keys = jwt.PyJWKClient(_jwks_url(self._issuer), timeout=_TIMEOUT_S)
        try:
            key = self._keys.get_signing_key_from_jwt(token)
        except jwt.PyJWKClientConnectionError as error:
            raise OSError(str(error)) from error
        return jwt.decode(
            token,
            key,
            algorithms=list(ALGORITHMS),
            issuer=self._issuer,
            audience=self._audience,
            leeway=_LEEWAY_S,
            options={"require": ["exp", "iss", "aud", "sub"]},
        )


def _scopes(claims: dict[str, Any]) -> list[str]:
    """Return the scopes of a token: a text with spaces (RFC 9068), or a list as some issuers write it."""
    found = claims.get("scope", claims.get("scp", ""))
    if isinstance(found, str):
        return found.split()
    return [str(scope) for scope in found] if isinstance(found, list) else []


def _jwks_url(issuer: str) -> str:
    """Return the URL of an issuer's keys from its metadata (RFC 8414, section 3.1, or OpenID Connect Discovery)."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    root = f"{parts.scheme}://{parts.netloc}"
    places = (
        f"{root}/.well-known/oauth-authorization-server{path}",
        f"{root}/.well-known/openid-configuration{path}",
        f"{root}{path}/.well-known/openid-configuration",
    )
    reason = ""
    for place in dict.fromkeys(places):
        try:
            with urllib.request.urlopen(place, timeout=_TIMEOUT_S) as answer:
                metadata = json.loads(answer.read(_METADATA_BYTES))
        except (OSError, ValueError) as error:
            reason = str(error)
            continue
        if (
            isinstance(metadata, dict)
            and metadata.get("issuer") == issuer
            and isinstance(metadata.get("jwks_uri"), str)
        ):
            return str(metadata["jwks_uri"])
        reason = "the metadata is of another issuer, or names no jwks_uri"
    raise OSError(reason)
