"""The client: one request tried until it is answered or cannot be, and many at a time.

A request is tried again after 408, 409, 425, 429, 5xx and broken or slow connections, with pauses that double and are
spread by chance from a seed; a `Retry-After` applies to all requests of the client. Redirects are not followed, answers are
bounded in size and time, and the key is in a header and nowhere else: in answers it is masked before anything reads them.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self, TypeVar
from urllib.parse import urlsplit

from quintain.endpoints import anthropic, openai, prompt_logprobs, sampled_tokens
from quintain.endpoints.completion import Ask, BadAnswer, Completion, Spent, price
from quintain.endpoints.faults import BUSY, STOPPED, KeyMask, Trouble, excerpt, reports_failure, trouble_of
from quintain.endpoints.profiles import is_loopback, require_safe_url
from quintain.errors import InvalidInput, QuintainError, Refused, Unavailable
from quintain.records.labels.judging import Endpoint
from quintain.records.seeds import stable_seed
from quintain.records.wording import counted

if TYPE_CHECKING:
    import ssl

    import httpx2

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
LONGEST_WAIT_S = 300.0
"""A longer `Retry-After` ends the request instead, in seconds."""
MAX_ANSWER_BYTES = 8_000_000
_WAIT = frozenset({408, 425, 429, 502, 503, 504})
"""Statuses after which a command is sent again; a status 500 reports that the command itself failed."""
_JSON = {"Content-Type": "application/json"}

_T = TypeVar("_T")


class _Wire(Protocol):
    """The interface of a protocol module."""

    PATH: str

    def headers(self, key: str | None) -> dict[str, str]: ...
    def body(self, model: str, ask: Ask, max_tokens: int) -> dict[str, Any]: ...
    def read(self, document: object) -> Completion: ...


_PROTOCOLS: dict[str, _Wire] = {"openai": openai, "anthropic": anthropic}
_TOKEN_PROTOCOLS: dict[str, _Wire] = {"scores": prompt_logprobs, "samples": sampled_tokens}


class CommandAnswer(NamedTuple):
    """The answer to a command that is not a request for a completion."""

    status: int
    message: str
    """Message of the server, in one line, with the key masked."""
    succeeded: bool
    """Whether the status is 200, and the body does not report `success` false."""


class _Sent(NamedTuple):
    """A response as it came."""

    status: int
    body: bytes
    headers: dict[str, str]


@dataclass(frozen=True)
class Clock:
    """The clock and timer of a client; tests pass one that does not wait."""

    now: Callable[[], datetime]
    monotonic: Callable[[], float] = time.monotonic
    pause: Callable[[threading.Event, float], bool] = lambda stop, seconds: stop.wait(seconds)
    """Wait so many seconds; true where `stop` was set before."""


@cache
def _tls(trusts_environment: bool) -> ssl.SSLContext:
    """Return what all clients verify servers by: to read the certificates of the system takes 30 ms."""
    import httpx2

    return httpx2.create_ssl_context(trust_env=trusts_environment)


@dataclass(eq=False)
class EndpointClient:
    """A client of one endpoint; its methods may be called from several threads."""

    endpoint: Endpoint
    clock: Clock
    key: str | None = field(default=None, repr=False)
    seed: int = 0
    spent: Spent = field(default_factory=Spent)
    asks_for: Literal["answers", "scores", "samples"] = "answers"
    """Answers to conversations, log-probs of given tokens, or continuations of token ids."""
    before: Spent = field(default_factory=Spent)
    """What earlier attempts of the job used, which counts towards the profile's limit of costs."""
    note: Callable[[Mapping[str, int]], None] | None = field(default=None, repr=False)
    """Hears of everything that is spent as it is spent, one call at a time: what a request will have used when its process dies."""

    def __post_init__(self) -> None:
        """Check where requests would go, and open the connections.

        Raises:
            InvalidInput: the URL is not one, or the key cannot stand in a header.
            Refused: the URL would send runs and key unencrypted to another machine.
        """
        import httpx2

        require_safe_url(self.endpoint)
        if self.key is not None and not (self.key.isascii() and self.key.isprintable()):
            raise InvalidInput(
                f"the key in {self.endpoint.api_key_env} has characters that are not allowed in a header; set it again",
                code="bad_key",
            )
        self._mask = KeyMask(self.key)
        self._protocol: _Wire = _TOKEN_PROTOCOLS.get(self.asks_for) or _PROTOCOLS[self.endpoint.protocol]
        self._url = f"{self._base()}{self._protocol.PATH}"
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._not_before = 0.0
        self._asked = 0
        trusts = not is_loopback(urlsplit(self.endpoint.base_url).hostname or "")  # a proxy is for other machines
        self._http = httpx2.Client(
            headers={"User-Agent": "quintain", **self._protocol.headers(self.key)},
            timeout=self.endpoint.timeout_s,
            limits=httpx2.Limits(max_connections=self.endpoint.concurrency),
            follow_redirects=False,
            trust_env=trusts,
            verify=_tls(trusts),
        )

    def complete(self, ask: Ask) -> Completion:
        """Return the answer to a request: a text, log-probs of given tokens, or sampled token ids, by `asks_for`.

        Raises:
            QuintainError: There is none. Codes of `faults.UNANSWERED` concern this request; others mean that no request can
                succeed, such as `no_token_ids` where the server gives no ids or log-probs.
        """
        content = self._content(ask)
        return self._tried(lambda again: self._try(content, again))

    def command(self, path: str, fields: Mapping[str, Any]) -> CommandAnswer:
        """Post fields to another path of the endpoint's server, and return what it answers, errors too.

        Args:
            path: Below `base_url`; with a `/` at its start, below the server's root.
            fields: The body.

        Raises:
            Unavailable: the server cannot be reached, or stays busy (`endpoint_busy`).
        """
        base = self._base()
        url = f"{base.removesuffix('/v1')}{path}" if path.startswith("/") else f"{base}/{path}"
        content = json.dumps(dict(fields)).encode()
        return self._tried(lambda again: self._command(url, content))

    def _tried(self, send: Callable[[bool], _T | Trouble]) -> _T:
        """Return the first result of `send` that is not a fault; its argument is whether it is a repetition."""
        with self._lock:
            self._asked += 1
            chance = random.Random(stable_seed(self.seed, self.endpoint.name, self._asked))
        attempt = 0
        while True:
            attempt += 1
            self._wait_until_welcome()
            self._require_budget()
            found = send(attempt > 1)
            if not isinstance(found, Trouble):
                return found
            if not found.again:
                raise found.error
            if attempt == self.endpoint.max_attempts:
                raise Unavailable(f"{found.error.message}; tried {counted(attempt, 'time')}", code=found.error.code)
            if (found.wait_s or 0) > LONGEST_WAIT_S:
                raise Unavailable(f"{found.error.message}; it asks to wait {found.wait_s:.0f} s", code=BUSY)
            self._pause(attempt, found, chance)

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close it."""
        self.close()

    def stop(self) -> None:
        """Let no request begin or wait any more."""
        self._stop.set()

    def close(self) -> None:
        """Stop, and close the connections."""
        self.stop()
        with suppress(RuntimeError):  # a request is under way in another thread
            self._http.close()

    def _base(self) -> str:
        base = self.endpoint.base_url.rstrip("/").removesuffix(_PROTOCOLS[self.endpoint.protocol].PATH)
        return base.removesuffix("/v1") if self.endpoint.protocol == "anthropic" else base

    def _content(self, ask: Ask) -> bytes:
        fields = self._protocol.body(self.endpoint.model, ask, ask.max_tokens or self.endpoint.max_tokens)
        kept = {name: value for name, value in fields.items() if name not in self.endpoint.omit}
        return json.dumps(kept | self.endpoint.extra, ensure_ascii=False).encode("utf-8", "replace")

    def _try(self, content: bytes, again: bool) -> Completion | Trouble:
        self._count(requests=1, retries=int(again), in_flight=1)
        used = {"unmetered": 1}  # until it is known what it cost
        try:
            return self._exchange(content, used)
        finally:
            self._count(**used, in_flight=-1)

    def _exchange(self, content: bytes, used: dict[str, int]) -> Completion | Trouble:
        """Send a request and read its answer; its usage is added to `used`."""
        sent = self._send(self._url, content, used)
        if isinstance(sent, Trouble):
            return sent
        if sent.status != 200:
            used["unmetered"] = 0  # what is refused is not charged for
            return self._refusal(sent)
        return self._completion(sent.body, used)

    def _command(self, url: str, content: bytes) -> CommandAnswer | Trouble:
        """Send a command; answers that ask to wait are trouble, all others are returned."""
        sent = self._send(url, content, {})
        if isinstance(sent, Trouble):
            return sent
        if sent.status in _WAIT:
            return self._refusal(sent)
        message = excerpt(sent.body, self._mask.in_error)
        return CommandAnswer(sent.status, message, sent.status == 200 and not reports_failure(sent.body))

    def _refusal(self, sent: _Sent) -> Trouble:
        now = self.clock.now()
        return trouble_of(self.endpoint.name, sent.status, sent.headers, sent.body, now, self._mask.in_error)

    def _send(self, url: str, content: bytes, used: dict[str, int]) -> _Sent | Trouble:
        """Send a request and return the response, whatever its status; `used` gets whether its cost is unknown."""
        import httpx2

        end = self.clock.monotonic() + self.endpoint.timeout_s
        try:
            with self._http.stream("POST", url, content=content, headers=_JSON) as response:
                body = self._read(response, end)
                return _Sent(response.status_code, body, {n.lower(): value for n, value in response.headers.items()})
        except (httpx2.TimeoutException, TimeoutError) as error:
            used["unmetered"] = int(not isinstance(error, (httpx2.ConnectTimeout, httpx2.PoolTimeout)))
            return self._trouble(f"did not answer within {self.endpoint.timeout_s:g} s")
        except httpx2.TransportError as error:
            used["unmetered"] = int(not isinstance(error, (httpx2.ConnectError, httpx2.ProxyError)))
            reason = self._mask.in_error(str(error))[:200]
            return self._trouble(f"cannot be reached ({type(error).__name__}: {reason})")
        except (httpx2.DecodingError, BadAnswer) as error:
            return self._trouble(f"sent a response that cannot be parsed ({error})", "endpoint_answer")

    def _read(self, response: httpx2.Response, end: float) -> bytes:
        """The body, as long as it keeps within its bounds: a server that trickles would hold a request for ever."""
        parts: list[bytes] = []
        size = 0
        for part in response.iter_bytes():
            parts.append(part)
            size += len(part)
            if size > MAX_ANSWER_BYTES:
                raise BadAnswer(f"more than {MAX_ANSWER_BYTES:,} bytes")
            if self.clock.monotonic() > end:
                raise TimeoutError
        return b"".join(parts)

    def _completion(self, answer: bytes, used: dict[str, int]) -> Completion | Trouble:
        try:
            found = self._protocol.read(json.loads(self._mask.in_answer(answer)))
        except QuintainError as error:
            return Trouble(error, False)
        except (ValueError, RecursionError) as error:  # BadAnswer among them
            reason = str(error) if isinstance(error, BadAnswer) else "it is not whole JSON"
            return self._trouble(f"sent a response that cannot be parsed ({reason})", "endpoint_answer")
        usage = found.usage
        metered = usage.input_tokens is not None and usage.output_tokens is not None
        used |= {
            "input_tokens": usage.input_tokens or 0,
            "output_tokens": usage.output_tokens or 0,
            "unmetered": int(not metered),
        }
        if not metered and self.endpoint.max_usd is not None:
            about = f"endpoint {self.endpoint.name!r} reports no tokens, so that max_usd cannot be kept; leave it out of the profile"
            return Trouble(InvalidInput(about, code="unmetered"), False)
        if found.blocked:
            about = f"endpoint {self.endpoint.name!r} withheld its answer: filter or refusal"
            return Trouble(InvalidInput(about, code="blocked"), False)
        return found

    def _trouble(self, what: str, code: str = BUSY) -> Trouble:
        return Trouble(Unavailable(f"endpoint {self.endpoint.name!r} {what}", code=code), True)

    def _pause(self, attempt: int, trouble: Trouble, chance: random.Random) -> None:
        """Wait before the next try: 1, 2, 4, ... s, half of it by chance; at least as long as the endpoint asks for."""
        growing = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (attempt - 1)) * (0.5 + 0.5 * chance.random())
        seconds = growing if trouble.wait_s is None else trouble.wait_s + 0.1 * growing
        if trouble.wait_s is not None:
            with self._lock:
                self._not_before = max(self._not_before, self.clock.monotonic() + trouble.wait_s)
        self._sleep(seconds)

    def _wait_until_welcome(self) -> None:
        with self._lock:
            left = self._not_before - self.clock.monotonic()
        self._sleep(max(0.0, left))

    def _require_budget(self) -> None:
        """Refuse a request where those that have ended cost the profile's limit."""
        limit = self.endpoint.max_usd
        with self._lock:
            used = self.before.plus(input_tokens=self.spent.input_tokens, output_tokens=self.spent.output_tokens)
        cost = price(self.endpoint, used.input_tokens, used.output_tokens)
        if limit is not None and cost is not None and cost >= limit:
            raise Refused(
                f"endpoint {self.endpoint.name!r} has cost this job {cost:.4g} USD, and max_usd of its profile is {limit:g}; what "
                "it answered is kept: resume the job for as much again, or raise max_usd in endpoints.toml and start anew",
                code="cost_limit",
            )

    def _sleep(self, seconds: float) -> None:
        stopped = self.clock.pause(self._stop, seconds) if seconds > 0 else self._stop.is_set()
        if stopped:
            raise Unavailable(f"endpoint {self.endpoint.name!r}: given up, for all stops", code=STOPPED)

    def _count(self, **more: int) -> None:
        with self._lock:
            self.spent = self.spent.plus(**more)
            if self.note is not None:
                self.note(more)


def read_key(endpoint: Endpoint, secret: Callable[[str], str | None]) -> str | None:
    """The key of an endpoint; None where it needs none.

    Args:
        endpoint: Its profile.
        secret: Reads an environment variable (`settings.secret`).

    Raises:
        InvalidInput: the variable that the profile names is not set.
    """
    if endpoint.api_key_env is None:
        return None
    key = secret(endpoint.api_key_env)
    if key is None:
        raise InvalidInput(missing_key(endpoint), code="missing_key")
    return key


def missing_key(endpoint: Endpoint) -> str:
    """Return the error text for an endpoint whose key variable is not set."""
    return (
        f"endpoint {endpoint.name!r} needs a key, and the environment variable {endpoint.api_key_env} is not set where "
        "quintain runs; set it there (for an assistant's server: in the `env` of its configuration) and start it again"
    )


def identity(endpoint: Endpoint) -> Mapping[str, Any]:
    """Part of a profile on which an answer depends: two profiles that agree in it can use each other's remembered answers."""
    names = {"protocol", "base_url", "model", "extra", "omit", "max_tokens"}
    return endpoint.model_dump(mode="json", include=names) | {"temperature": 0}
