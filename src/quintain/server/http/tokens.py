"""The bearer tokens that a server accepts: the one in its home folder, and those of an OAuth issuer."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from stat import S_IMODE

from mcp.server.auth.provider import AccessToken, TokenVerifier

from quintain.errors import Refused, Unavailable, disk_remedy
from quintain.files import write_file

_LONGEST = 16 * 2**10
"""Characters of a token that are looked at."""


class TokenFile:
    """The token in `HOME/http-token`, readable by its owner alone. A new token in the file is valid at once."""

    def __init__(self, home: Path) -> None:
        self.path = home / "http-token"
        self._cached: tuple[tuple[int, int], bytes] | None = None

    def create(self, *, replace: bool = False) -> bool:
        """Write a new random token of 256 bits where there is none, or in place of the present one; return whether it was written.

        Raises:
            Unavailable: The file cannot be written or read.
            Refused: Others may read the present file.
        """
        if not replace and self._mode() is not None:
            self._check_mode()
            return False
        try:
            return write_file(self.path, f"{secrets.token_urlsafe(32)}\n".encode(), replace=replace)
        except OSError as error:
            raise Unavailable(
                f"cannot write the token file {str(self.path)!r}: {error.strerror}; {disk_remedy(error)}"
            ) from error

    def read(self) -> str:
        """Return the token; empty where there is none."""
        return self._content().decode("ascii", "replace")

    def matches(self, token: str) -> bool:
        """Whether this is the token, compared in constant time."""
        content = self._content()
        return secrets.compare_digest(token.encode("utf-8", "surrogatepass"), content) and bool(content)

    def _content(self) -> bytes:
        try:
            found = self.path.stat()
            version = (found.st_mtime_ns, found.st_ino)
            if self._cached is None or self._cached[0] != version:
                self._cached = (version, self.path.read_bytes().strip())
        except OSError:
            self._cached = None
            return b""
        return self._cached[1]

    def _mode(self) -> int | None:
        """Return the file's permissions; None where there is none."""
        try:
            return S_IMODE(self.path.stat().st_mode)
        except OSError:
            return None

    def _check_mode(self) -> None:
        mode = self._mode()
        if os.name == "posix" and mode is not None and mode & 0o077:
            raise Refused(
                f"expected mode 600 of the token file {str(self.path)!r}, got {mode:o}; others may have read the token: start "
                "once with --rotate-token"
            )


class FileVerifier(TokenVerifier):
    """Accept the token of a home folder."""

    def __init__(self, file: TokenFile) -> None:
        self._file = file

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the owner of the token, or None where it is not valid."""
        if len(token) > _LONGEST or not self._file.matches(token):
            return None
        return AccessToken(token=token, client_id="home", scopes=[])


class AnyVerifier(TokenVerifier):
    """Accept what one of several verifiers accepts."""

    def __init__(self, *verifiers: TokenVerifier) -> None:
        self._verifiers = verifiers

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the answer of the first verifier that accepts the token."""
        for verifier in self._verifiers:
            if (found := await verifier.verify_token(token)) is not None:
                return found
        return None
