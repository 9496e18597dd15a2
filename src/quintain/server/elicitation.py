"""Asking the person: a tool's questions become forms, in both protocol eras.

With 2025-06-18 and 2025-11-25 the server asks while the call is open (`elicitation/create` on its stream). With 2026-07-28 a
call that needs an answer ends with the question and a sealed state, and the client calls again with both: any server process
on the same home can go on. The state is encrypted with a key that lies in the home folder, bound to the tool and its
arguments, and expires; a client can neither read nor make one.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from mcp import MCPError
from mcp.server import ServerRequestContext
from mcp.server.request_state import AESGCMRequestStateCodec, RequestStateBoundary, RequestStateSecurity
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
)
from pydantic import ValidationError

from quintain.errors import Unavailable
from quintain.files import write_file
from quintain.server.calls.bindings import Binding, read_arguments, to_result
from quintain.tools.catalog import Answer, Question

if TYPE_CHECKING:
    from quintain.tools.services import Services

_MODERN = "2026-07-28"
_KEY = "answer"
_KEY_BYTES = 32
_TTL_S = 24 * 3600.0
"""Seconds that a question may wait for its answer."""


def can_ask(ctx: ServerRequestContext[Any, Any]) -> bool:
    """Can the client of this call show forms? One that names no kind of elicitation means forms."""
    capabilities = ctx.session.client_capabilities
    elicitation = capabilities.elicitation if capabilities else None
    if elicitation is None or (elicitation.form is None and elicitation.url is not None):
        return False
    return ctx.protocol_version >= _MODERN or ctx.session.can_send_request


async def ask(
    binding: Binding, services: Services, ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams
) -> CallToolResult | InputRequiredResult | None:
    """Answer a call of a tool that asks, as far as the person's answers go.

    Returns:
        The tool's result; with 2026-07-28 also the next question; None: this call asks nobody.
    """
    assert binding.spec.asks is not None
    arguments = await anyio.to_thread.run_sync(read_arguments, binding, params.arguments or {})
    go_on = partial(binding.spec.asks, services, **arguments)
    if ctx.protocol_version >= _MODERN:
        state = params.request_state
        answer = None if state is None else _answer(_reply(params), state)
        asked = await anyio.to_thread.run_sync(partial(go_on, answer))
        if isinstance(asked, Question):
            return InputRequiredResult(input_requests={_KEY: _request(asked)}, request_state=asked.state)
    else:
        asked = await anyio.to_thread.run_sync(partial(go_on, None))
        while isinstance(asked, Question):
            answer = await _elicited(asked, ctx)
            asked = await anyio.to_thread.run_sync(partial(go_on, answer))
    return None if asked is None else await anyio.to_thread.run_sync(to_result, binding, asked, services.settings.home)


def seal(key: Callable[[], bytes] | None) -> RequestStateBoundary:
    """Protection of the states of questions from being read, forged, or used for another call.

    The key is asked for when the first state is sealed or opened; None: one of this process alone.
    """
    codec = AESGCMRequestStateCodec([secrets.token_bytes(_KEY_BYTES)]) if key is None else _LateCodec(key)
    return RequestStateBoundary(RequestStateSecurity(codec=codec, ttl=_TTL_S), default_audience="quintain")


def key_of_home(home: Path) -> bytes:
    """Return the key of a home folder, created at first use and shared by all servers on the home.

    Raises:
        Unavailable: it cannot be written or read, or something else lies in its place.
    """
    path = home / "state.key"
    try:
        if not path.exists():
            write_file(path, secrets.token_bytes(_KEY_BYTES), replace=False)
        key = path.read_bytes()
    except OSError as error:
        raise Unavailable(
            f"the key {str(path)!r} cannot be created or read ({error.strerror}); let this user write there"
        ) from error
    if len(key) != _KEY_BYTES:
        raise Unavailable(
            f"expected a key of {_KEY_BYTES} bytes in {str(path)!r}, got {len(key)}; delete the file, and a new one is created"
        )
    return key


class _LateCodec:
    """The SDK's codec, created at first use: a server starts before its home folder is opened."""

    def __init__(self, key: Callable[[], bytes]) -> None:
        self._key = key

    @cached_property
    def _codec(self) -> AESGCMRequestStateCodec:
        return AESGCMRequestStateCodec([self._key()])

    def seal(self, payload: bytes) -> str:
        return self._codec.seal(payload)

    def unseal(self, token: str) -> bytes:
        return self._codec.unseal(token)


def _request(question: Question) -> ElicitRequest:
    return ElicitRequest(params=ElicitRequestFormParams(message=question.message, requested_schema=_form(question)))


def _form(question: Question) -> dict[str, Any]:
    """The form as the flat schema that the protocol allows: text and choices of text only."""
    lines: dict[str, Any] = {}
    for entry in question.entries:
        choices = {"enum": list(entry.options)} if entry.options else {}
        lines[entry.name] = {"type": "string", "title": entry.title, **choices}
    required = [entry.name for entry in question.entries if entry.required]
    return {"type": "object", "properties": lines, **({"required": required} if required else {})}


async def _elicited(question: Question, ctx: ServerRequestContext[Any, Any]) -> Answer:
    try:
        reply = await ctx.session.elicit_form(question.message, _form(question), related_request_id=ctx.request_id)
    except (MCPError, ValidationError):
        return Answer("failed", question.state)
    return _answer(reply, question.state)


def _reply(params: CallToolRequestParams) -> ElicitResult | None:
    reply = (params.input_responses or {}).get(_KEY)
    return reply if isinstance(reply, ElicitResult) else None


def _answer(reply: ElicitResult | None, state: str) -> Answer:
    if reply is None:
        return Answer("lost", state)
    return Answer(reply.action, state, {name: _text(value) for name, value in (reply.content or {}).items()})


def _text(value: object) -> str:
    """The value of a line of the form; some clients send the number that a choice looks like."""
    if value is None:
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)
