"""Errors of remote stores as errors that name a remedy, without credentials."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from quintain.errors import NotFound, QuintainError, Refused, Unavailable, disk_remedy
from quintain.records.wording import clip
from quintain.redaction.redact import redact_text

_EXTRAS = {"s3": "s3", "s3a": "s3"}
"""Scheme -> extra that installs its library."""

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class TransferStopped(Exception):
    """The caller asked to end a transfer; raised by its progress callback."""


@contextmanager
def faults_explained(action: str, url: str) -> Iterator[None]:
    """Translate the errors of a remote store while the body does something, such as `read`, with a URL without credentials.

    Raises:
        NotFound: There is nothing (`artifact_not_found`).
        Refused: The store rejects the credentials (`artifact_forbidden`).
        Unavailable: A library is missing, the disk is full, or the store cannot be reached.
    """
    try:
        yield
    except (QuintainError, TransferStopped):
        raise
    except ImportError as error:
        scheme = url.partition(":")[0]
        remedy = f"pip install 'quintain[{_EXTRAS[scheme]}]'" if scheme in _EXTRAS else "install it"
        raise Unavailable(
            f"expected a library for {scheme}://, got none ({_brief(error)}); {remedy}", code="missing_extra"
        ) from None
    except FileNotFoundError:
        if action != "read":
            raise NotFound(
                f"cannot {action} {url}: its bucket or folder does not exist; create it, or name another location",
                code="artifact_not_found",
            ) from None
        raise NotFound(
            f"expected an artifact at {url}, got nothing; check the address", code="artifact_not_found"
        ) from None
    except PermissionError as error:
        raise Refused(
            f"cannot {action} {url} ({_brief(error)}); let the operator check the credentials in the server's environment",
            code="artifact_forbidden",
        ) from None
    except Exception as error:  # each store has its own exceptions
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            raise Unavailable(f"cannot {action} {url} ({error}); {disk_remedy(error)}", code="disk_refused") from None
        raise Unavailable(
            f"cannot {action} {url} ({_brief(error)}); check the network, and the credentials in the server's environment, then "
            "try again",
            code="artifact_unreachable",
        ) from None


def _brief(error: BaseException) -> str:
    """Return kind and text of an error, or of the one that caused it."""
    cause = error.__cause__ or error
    return f"{type(cause).__name__}: {brief_text(str(cause))}"


def brief_text(text: str) -> str:
    """Return the first line of a store's text, without secrets."""
    return clip(redact_text(next(iter(text.splitlines()), ""))[0], 200)
