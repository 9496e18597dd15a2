from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from fake_endpoint import Answer, Asked, FakeEndpoint, claude_says, fails, says, serving
from quintain.endpoints import client as client_module
from quintain.endpoints.client import Clock, EndpointClient, read_key
from quintain.endpoints.completion import Ask, Spent
from quintain.endpoints.faults import UNANSWERED, KeyMask
from quintain.errors import InvalidInput, QuintainError, Refused, Unavailable
from quintain.records.labels.judging import Endpoint
from quintain.records.protocols import Message, Stop
from quintain.records.trajectory import Action

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
HELLO = Ask(messages=(Message(role="system", content="be brief"), Message(role="user", content="hello")))
KEY = "sk-verysecret-0123456789"


class Waits:
    """A clock that notes how long it should wait, and is there at once."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.at = 0.0

    def pause(self, stop: threading.Event, seconds: float) -> bool:
        self.seconds.append(seconds)
        self.at += seconds
        return stop.is_set()

    def clock(self) -> Clock:
        return Clock(now=lambda: NOW, monotonic=lambda: self.at, pause=self.pause)


_OPEN: list[EndpointClient] = []


@pytest.fixture(autouse=True)
def _closing() -> Iterator[None]:
    yield
    while _OPEN:
        _OPEN.pop().close()


def opened(profile: Endpoint, clock: Clock, key: str | None = None, seed: int = 0) -> EndpointClient:
    _OPEN.append(EndpointClient(profile, clock, key, seed))
    return _OPEN[-1]


def client_of(fake: FakeEndpoint, waits: Waits | None = None, key: str | None = None, **fields: Any) -> EndpointClient:
    return opened(fake.profile(**fields), (waits or Waits()).clock(), key)


def in_turn(*answers: Answer) -> Any:
    return lambda asked, before: answers[min(before, len(answers) - 1)]


def test_an_openai_endpoint_gets_messages_tools_and_key_and_gives_text_and_usage() -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    with serving(in_turn(says("hi", tokens=(7, 3)))) as fake:
        client = client_of(fake, key=KEY, api_key_env="A_KEY", extra={"seed": 1}, omit=("temperature",))
        answer = client.complete(
            Ask(messages=HELLO.messages, max_tokens=5, tools=(tool,), top_p=0.9, top_k=40, min_p=0.05)
        )
    (asked,) = fake.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["Authorization"] == f"Bearer {KEY}"
    assert asked.body == {
        "model": "fake-1",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}],
        "max_tokens": 5,
        "tools": [tool],
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.05,
        "seed": 1,
    }
    assert (answer.text, answer.usage.input_tokens, answer.usage.output_tokens, answer.stop) == ("hi", 7, 3, Stop.END)


def test_an_anthropic_endpoint_gets_the_system_text_apart_and_neighbours_of_a_role_as_one() -> None:
    call = Action(tool="look", args={"at": "a"}, call_id="c1")
    messages = (
        *HELLO.messages,
        Message(role="assistant", content="I look", actions=(call,)),
        Message(role="tool", content="seen", call_id="c1"),
        Message(role="user", content="and?"),
    )
    with serving(in_turn(claude_says("done"))) as fake:
        client = client_of(fake, key=KEY, api_key_env="A_KEY", protocol="anthropic")
        assert client.complete(Ask(messages=messages, top_k=40)).text == "done"
    (asked,) = fake.asked
    assert (asked.path, asked.headers["x-api-key"]) == ("/v1/messages", KEY)
    assert asked.headers["anthropic-version"] == "2023-06-01"
    assert asked.body["system"] == "be brief"
    assert (asked.body["temperature"], asked.body["top_k"]) == (0, 40)
    assert [(m["role"], [part["type"] for part in m["content"]]) for m in asked.body["messages"]] == [
        ("user", ["text"]),
        ("assistant", ["text", "tool_use"]),
        ("user", ["tool_result", "text"]),
    ]


def test_tool_calls_come_back_as_actions_and_arguments_that_are_no_json_as_they_were_written() -> None:
    calls = [
        {"id": "1", "function": {"name": "look", "arguments": '{"at": "a"}'}},
        {"id": "2", "function": {"name": "look", "arguments": '{"at": '}},
    ]
    body = json.dumps({"choices": [{"message": {"content": None, "tool_calls": calls}}]}).encode()
    with serving(in_turn(Answer(body=body))) as fake:
        client = client_of(fake)
        answer = client.complete(HELLO)
    assert [(call.args, call.raw_args) for call in answer.actions] == [({"at": "a"}, '{"at": "a"}'), (None, '{"at": ')]
    assert client.spent.unmetered == 1


def test_a_busy_endpoint_is_asked_again_after_the_time_that_it_asks_for() -> None:
    waits = Waits()
    busy = (fails(429, Retry_After="7"), fails(500), fails(503, Retry_After="Fri, 20 Nov 2026 12:00:30 GMT"))
    with serving(in_turn(*busy, says("ollama runs at last"))) as fake:
        client = client_of(fake, waits, key="ollama", api_key_env="A_KEY")
        assert client.complete(HELLO).text == "ollama runs at last", "a placeholder for a key is a word like any other"
    assert client.spent == Spent(requests=4, retries=3, input_tokens=100, output_tokens=10)
    assert 7 <= waits.seconds[0] <= 7.2
    assert 1 <= waits.seconds[1] <= 2, "the second pause is 2 s, half of it by chance"
    assert 30 <= waits.seconds[2] <= 30.4, "with a tenth of the third pause, at most 4 s"


def test_pauses_double_are_spread_by_the_seed_and_end() -> None:
    def pauses(seed: int) -> list[float]:
        waits = Waits()
        with serving(in_turn(fails(529))) as fake:
            client = opened(fake.profile(max_attempts=5), waits.clock(), seed=seed)
            with pytest.raises(Unavailable, match="tried 5 times") as raised:
                client.complete(HELLO)
        assert raised.value.code in UNANSWERED
        return waits.seconds

    found = pauses(1)
    assert found == pauses(1)
    assert found != pauses(2)
    for n, seconds in enumerate(found):
        assert 0.5 * 2**n <= seconds <= 2**n
    assert len(found) == 4


@pytest.mark.parametrize(
    ("status", "message", "kind", "says"),
    [
        (401, "bad key", Refused, "api_key_env"),
        (403, "not yours", Refused, "api_key_env"),
        (404, "no such model", InvalidInput, "base_url and model"),
        (400, "temperature is not supported", InvalidInput, "omit"),
        (307, "", InvalidInput, "redirects are not followed"),
        (429, "insufficient_quota: pay", Refused, "credit"),
    ],
)
def test_a_request_that_cannot_succeed_is_not_repeated(
    status: int, message: str, kind: type[QuintainError], says: str
) -> None:
    answer = fails(status, message, Location="http://127.0.0.1:1/elsewhere")
    with serving(in_turn(answer)) as fake, pytest.raises(kind, match=says) as raised:
        client_of(fake).complete(HELLO)
    assert len(fake.asked) == 1
    assert raised.value.code not in UNANSWERED, "no other request can succeed either"


@pytest.mark.parametrize(
    ("status", "message"), [(400, "maximum context length is 4096"), (413, "too large"), (400, "prompt is too long: 9")]
)
def test_a_request_that_is_too_long_concerns_itself_alone(status: int, message: str) -> None:
    with serving(in_turn(fails(status, message))) as fake, pytest.raises(InvalidInput) as raised:
        client_of(fake).complete(HELLO)
    assert raised.value.code == "too_long"


def test_a_server_that_hangs_is_given_up_in_time() -> None:
    let_go = threading.Event()
    with serving(lambda asked, before: Answer(hang=let_go)) as fake:
        client = client_of(fake, timeout_s=0.2, max_attempts=2)
        with pytest.raises(Unavailable, match=r"did not answer within 0.2 s; tried 2 times"):
            client.complete(HELLO)
        let_go.set()
    assert client.spent == Spent(requests=2, retries=1, unmetered=2), "it was sent: what it cost is not known"


@pytest.mark.parametrize("body", [b'{"choices": [{"message": {"cont', b"<html>busy</html>", b"[]", b'{"choices": []}'])
def test_a_body_that_is_no_answer_is_asked_for_again_and_then_told(body: bytes) -> None:
    with serving(in_turn(Answer(body=body))) as fake:
        client = client_of(fake, max_attempts=2)
        with pytest.raises(Unavailable, match="cannot be parsed") as raised:
            client.complete(HELLO)
    assert (raised.value.code, len(fake.asked)) == ("endpoint_answer", 2)


def test_nothing_listens() -> None:
    with serving(in_turn(says("never"))) as fake:
        gone = fake.profile(max_attempts=1)
    client = opened(gone, Waits().clock())
    with pytest.raises(Unavailable, match="cannot be reached"):
        client.complete(HELLO)
    assert client.spent == Spent(requests=1), "what was never sent costs nothing"


def test_the_key_is_in_no_error_and_no_text_of_the_client() -> None:
    with serving(in_turn(fails(401, f"Incorrect API key provided: {KEY}"))) as fake:
        client = client_of(fake, key=KEY, api_key_env="A_KEY")
        with pytest.raises(Refused) as raised:
            client.complete(HELLO)
    assert "[the key]" in str(raised.value)
    assert KEY not in str(raised.value) + repr(client) + repr(raised.value.__cause__)


@pytest.mark.parametrize("before", range(120, 200, 7))
def test_an_error_that_is_cut_holds_no_part_of_the_key(before: int) -> None:
    answer = fails(401, "y" * before + f" Incorrect API key provided: {KEY}")
    with serving(in_turn(answer)) as fake, pytest.raises(Refused) as raised:
        client_of(fake, key=KEY, api_key_env="A_KEY").complete(HELLO)
    assert KEY[:8] not in str(raised.value)


def test_parts_and_escapes_of_the_key_are_masked_in_an_error() -> None:
    mask = KeyMask(KEY)
    assert mask.in_error(f"bad {KEY[:9]}***{KEY[-8:]}; {KEY[:7]}") == f"bad [the key]***[the key]; {KEY[:7]}"
    assert mask.in_error(KEY.replace("-", "\\u002D")) == "[the key]"
    assert KeyMask('a"b/c\\d!').in_error(json.dumps(json.dumps('key a"b/c\\d!'))) == '"\\"key [the key]\\""'
    assert KeyMask(None).in_error("as it is") == "as it is"
    assert KeyMask("abc").in_error("no abc") == "no [the key]"


ECHO_OPENAI = {
    "model": f"m-{KEY}",
    "choices": [
        {
            "message": {
                "content": f"Your key is {KEY}.",
                "reasoning_content": f"think {KEY}",
                "tool_calls": [
                    {
                        "id": KEY,
                        "function": {"name": KEY, "arguments": json.dumps({KEY: [KEY]}).replace("-", "\\u002d")},
                    }
                ],
            }
        }
    ],
}
ECHO_ANTHROPIC = {
    "model": f"m-{KEY}",
    "content": [
        {"type": "thinking", "thinking": f"think {KEY}", "signature": KEY},
        {"type": "text", "text": f"Your key is {KEY}."},
        {"type": "tool_use", "id": KEY, "name": KEY, "input": {KEY: [KEY]}},
        {"type": []},
    ],
    "stop_reason": [],
}


@pytest.mark.parametrize("charset", ["utf-8", "utf-16"])
@pytest.mark.parametrize(("protocol", "document"), [("openai", ECHO_OPENAI), ("anthropic", ECHO_ANTHROPIC)])
def test_an_answer_that_repeats_the_key_brings_a_mask(protocol: str, document: dict[str, Any], charset: str) -> None:
    with serving(in_turn(Answer(body=json.dumps(document).encode(charset)))) as fake:
        found = client_of(fake, key=KEY, api_key_env="A_KEY", protocol=protocol).complete(HELLO)
    assert KEY not in repr(found) + found.model_dump_json()
    assert (found.text, found.thought, found.model) == ("Your key is [the key].", "think [the key]", "m-[the key]")
    (call,) = found.actions
    assert (call.tool, call.args, call.call_id) == ("[the key]", {"[the key]": ["[the key]"]}, "[the key]")


@contextmanager
def saying(reply: bytes) -> Iterator[Endpoint]:
    """A server that sends just these bytes and hangs up."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            length = next(int(line[15:]) for line in self.rfile if line.lower().startswith(b"content-length:"))
            while self.rfile.readline().strip():
                pass
            self.rfile.read(length)
            self.wfile.write(reply)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        yield Endpoint(name="fake", protocol="openai", base_url=url, model="m", max_attempts=1, api_key_env="A_KEY")
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "reply",
    [
        b'HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n{"choices":',
        b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + b" " * 2000,
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope",
        f"HTTP/1.1 nothing {KEY}\r\n\r\n".encode(),
        b"",
    ],
    ids=["breaks off", "too large", "no gzip", "no status", "nothing"],
)
def test_what_an_answer_that_cannot_be_read_cost_is_not_known(reply: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_ANSWER_BYTES", 1000)
    with saying(reply) as profile:
        client = opened(profile, Waits().clock(), KEY)
        with pytest.raises(Unavailable) as raised:
            client.complete(HELLO)
    assert client.spent == Spent(requests=1, unmetered=1)
    assert KEY[:8] not in str(raised.value)


def test_a_variable_that_is_not_set_is_named_and_a_key_with_a_line_break_refused() -> None:
    with serving(in_turn(says("hi"))) as fake:
        profile = fake.profile(api_key_env="NOT_SET_ANYWHERE")
        with pytest.raises(InvalidInput, match="NOT_SET_ANYWHERE is not set"):
            read_key(profile, lambda name: None)
        with pytest.raises(InvalidInput, match="NOT_SET_ANYWHERE has characters") as raised:
            EndpointClient(profile, Waits().clock(), "two\nlines")
    assert "two" not in str(raised.value)


def test_told_to_stop_it_waits_no_longer() -> None:
    with serving(in_turn(fails(503))) as fake:
        client = opened(fake.profile(), Clock(now=lambda: NOW))
        threading.Timer(0.2, client.stop).start()
        with pytest.raises(Unavailable) as raised:
            client.complete(HELLO)
    assert raised.value.code == "stopped"
    assert len(fake.asked) == 1


def test_cost_is_counted_by_the_prices_and_unknown_where_prices_or_tokens_are() -> None:
    """100 tokens at 3 USD and 10 at 15 USD a million: 0.0003 + 0.00015."""
    priced = {"input_usd_per_mtok": 3.0, "output_usd_per_mtok": 15.0}

    def answer(asked: Asked, before: int) -> Answer:
        return says("hi") if before == 0 else says("hi", tokens=None)

    with serving(answer) as fake:
        client = client_of(fake, **priced)
        client.complete(HELLO)
        assert client.spent.usd(client.endpoint) == pytest.approx(0.00045)
        assert client.spent.usd(fake.profile()) is None
        client.complete(HELLO)
        assert client.spent.usd(client.endpoint) is None


def test_a_profile_with_a_limit_of_costs_is_asked_until_requests_have_cost_it() -> None:
    """100 tokens at 1 USD a million and 10 at 2 cost 0.00012: two requests pass a limit of 0.0002, earlier ones count."""
    prices = {"input_usd_per_mtok": 1.0, "output_usd_per_mtok": 2.0}
    with serving(in_turn(says("hi", tokens=(100, 10)), says("hi", tokens=(100, 10)), says("hi", tokens=None))) as fake:
        limited = client_of(fake, max_usd=0.0002, **prices)
        limited.complete(HELLO)
        limited.complete(HELLO)
        with pytest.raises(Refused, match=r"cost_limit\].*has cost this job 0.00024 USD, and max_usd .* is 0.0002"):
            limited.complete(HELLO)
        resumed = EndpointClient(limited.endpoint, Waits().clock(), before=Spent(input_tokens=200))
        _OPEN.append(resumed)
        with pytest.raises(Refused, match="cost_limit"):
            resumed.complete(HELLO)
        assert len(fake.asked) == 2
        with pytest.raises(InvalidInput, match=r"unmetered\].*reports no tokens, so that max_usd cannot be kept"):
            client_of(fake, max_usd=1.0, **prices).complete(HELLO)
    with pytest.raises(ValidationError, match="expected input_usd_per_mtok and output_usd_per_mtok beside max_usd"):
        fake.profile(max_usd=1.0)
