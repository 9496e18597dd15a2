"""Hostile inputs: values and lines that are fixed, and calls of every tool drawn from its input schema.

A value is what `json.dumps` takes, with `Raw` for JSON that Python cannot write (duplicate keys, 1e400, half a surrogate
pair). One seed gives one sequence of inputs.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class Raw:
    """JSON text that is written as it is."""

    text: str


@dataclass(frozen=True)
class Request:
    """A JSON-RPC request."""

    method: str
    params: Any


@dataclass(frozen=True)
class Line:
    """Bytes in place of a JSON-RPC message."""

    content: bytes
    is_answered: bool = True
    """Whether the server has to answer: not a notification, and not an answer."""


@dataclass(frozen=True)
class Address:
    """An HTTP request to the web page."""

    path: str
    method: str = "GET"
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


Input = Request | Line | Address


def encode(value: Any) -> str:
    """Return a value as JSON text."""
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{encode(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(encode, value)) + "]"
    return json.dumps(value)


def call(tool: str, arguments: Any) -> Request:
    """Return a call of a tool."""
    return Request("tools/call", {"name": tool, "arguments": arguments})


TEXTS: tuple[str, ...] = (
    "", " ", "\x00", "a\x00b", "\ufffe", "\u202egnp.exe", "\u2066\u2069", "\U000e0041\U000e0042", "\x1b[2J\x1b]0;x\x07",
    "\x1b]52;c;eA==\x07", "\x9b31m", "\r\n{}", "a\nb", "e\u0301" * 50, "\ufdfa" * 100, "%s%n%x%p", "{0.__class__}",
    "{{7*7}}", "${jndi:ldap://127.0.0.1/a}", "$(id)", "`id`", "; rm -rf .", "' OR '1'='1", "\"; DROP TABLE runs; --", "%",
    "_", "%_%\\", "*", "?[", "(a+)+$", "[", "\\", "__proto__", "constructor", "__class__", "__import__('os').system('id')",
    "os:system", "builtins.eval", "-rf", "--help", "--config=/etc/passwd", "../../etc/passwd", "/etc/passwd", "~", "~root",
    "/proc/self/environ", "/dev/zero", "\\\\host\\share", "C:\\Windows", "file:///etc/passwd", "http://169.254.169.254/",
    "http://127.1:9/", "s3://bucket/x", "hub:evil/model", "endpoint:none", "CON", "NaN", "Infinity", "null", "true", "1e400",
    "9" * 5000, "{", "[" * 500, '{"a":' * 300, "<script>alert(1)</script>", "]]>", "data:text/html,x", "\ufeff", "\ufffd",
    "agent:starter@1", "agent:@", "@", "a@999999999999999999999", "0001-01-01T00:00:00+05:00", "9999-12-31T23:59:60Z",
    "a" * 300, "a" * 20_000, "\U0001f600" * 5000,
)  # fmt: skip
"""Texts that mean something to some reader: a terminal, a shell, a query, a file system, a formatter, a page."""

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**300, 0.5, -0.0, 1e308, 5e-324,
    Raw("NaN"), Raw("Infinity"), Raw("-Infinity"), Raw("1e400"), Raw("9" * 4000), Raw("9" * 5000), Raw('"\\ud800"'),
    Raw('"\\udfff\\ud800"'), Raw('"cut \\ud83d"'), Raw('{"a":1,"a":2}'), Raw('{"\\ud800":1}'), Raw("[" * 150 + "]" * 150),
    Raw("[" * 250 + "]" * 250), Raw('{"a":' * 120 + "1" + "}" * 120), [], {}, [[]], [{}], [None], [0] * 1000, ["x"] * 300,
    {"": ""}, {"__proto__": {"a": 1}}, {"constructor": 1}, {"a\x00b": 1}, {"$ref": "#"}, {"type": {"type": []}},
    {f"key{i}": i for i in range(500)},
)  # fmt: skip
"""Values of every type, at the edges of what JSON, floats, SQLite and parsers carry."""

EXAMPLES: Mapping[str, Sequence[Any]] = {
    "messages": ([{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}],),
    "trajectory": (
        {
            "task": {"id": "t", "prompt": "2+2?"},
            "steps": [
                {"actor": "user", "message": "2+2?"},
                {"actor": "agent", "message": "4", "actions": [{"tool": "add", "args": {"a": 2}}], "observations": [{"content": "4"}]},
            ],
            "outcome": {"status": "success", "reward": 1.0, "scores": {"a": 1}},
        },
    ),
    "tools": ([{"name": "add", "description": "Add.", "parameters": {"type": "object", "properties": {}}}],),
    "outcome": ("success", {"status": "failure", "reward": 0.0}),
    "hyperparameters": ({"steps": 2}, {"learning_rate": 1e-4, "batch_size": 2, "lora": {"r": 4}}),
    "environment": ("quintain/inventory", {"quintain/inventory": 0.5, "quintain/math": 0.5}),
    "reward": ("outcome", {"outcome": 0.8, "length": 0.2}),
    "scorer": ("rules", "outcome", {"rules": 1.0}),
    "scores": ([{"item_id": "item-1", "scores": {"task_completion": 5}}, {"item_id": "1", "skip": "unclear"}],),
    "pairs": ([{"chosen": "traj-1", "rejected": "traj-2"}], "best_worst"),
    "columns": ({"prompt": "question", "completion": "answer"},),
    "curation": ({"near_duplicates": True},),
    "sampling": ({"temperature": 0.7, "max_tokens": 5},),
    "temperature": (0.7, [0.2, 1.0]),
    "rubric": ("default", {"criteria": [{"name": "a", "description": "b", "weight": 1}]}),
    "goal": ([{"metric": "success", "at_least": 0.5}],),
}  # fmt: skip
"""Argument -> values of the right shape, whose parts are then replaced; only where the schema leaves the shape open."""

WAITS: Mapping[tuple[str, str], Any] = {
    ("get_job", "wait_s"): 0,
    ("talk_to_agent", "wait_s"): 0,
    ("preview_dataset", "dataset_id"): "ds-none",
}
"""(tool, argument) -> the valid value drawn for it: others let a call wait for a job, and no job begins here."""


class Draws:
    """Inputs drawn for a catalog of tools.

    Args:
        schemas: Tool -> input schema.
        pool: Texts that look like what is stored: ids, names, cursors.
        seed: Of the sequence.
    """

    def __init__(self, schemas: Mapping[str, Schema], pool: Sequence[str], seed: int) -> None:
        self._schemas, self._pool, self._random = schemas, pool, random.Random(seed)

    def fixed_calls(self, per_argument: int = 2) -> Iterator[Request]:
        """Yield calls with one hostile value in each argument in turn; the values take turns too."""
        turn = 0
        every = [*VALUES, *TEXTS]
        wrong: tuple[Any, ...] = ([], "x", {"__proto__": 1})
        for tool, schema in self._schemas.items():
            yield from (call(tool, value) for value in wrong)
            for name in schema.get("properties", {}):
                for _ in range(per_argument):
                    yield call(tool, self._required(tool) | {name: every[turn * 7 % len(every)]})
                    turn += 1

    def tool_call(self) -> Request:
        """Draw a call of any tool, most of whose arguments are plausible."""
        tool = self._random.choice(list(self._schemas))
        properties = self._schemas[tool].get("properties", {})
        hostility = self._random.choice((0.0, 0.15, 0.5, 1.0))
        arguments = self._required(tool)
        for name, schema in properties.items():
            if name in arguments or self._random.random() < 0.35:
                arguments[name] = self._argument(tool, name, schema, hostility)
        if self._random.random() < 0.05:
            arguments[self._text()[:200]] = self._hostile()
        return call(tool, arguments)

    def request(self, methods: Sequence[str]) -> Request:
        """Draw a request of any method with plausible or hostile parameters."""
        method = self._random.choice((*methods, self._text()))
        params: Any = {"name": self._word(), "arguments": {self._word(): self._word()}}
        if method.startswith("resources/"):
            params = {"uri": self.uri()}
        elif method == "completion/complete":
            params = {
                "ref": {"type": "ref/prompt", "name": self._word()},
                "argument": {"name": self._word(), "value": self._word()},
            }
        elif method == "logging/setLevel":
            params = {"level": self._word()}
        if self._random.random() < 0.3:
            params = self._replaced(params)
        return Request(method, params)

    def line(self) -> Line:
        """Draw a broken line: a valid message with bytes cut, doubled, exchanged, or with a hostile id."""
        message = encode(
            {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": self.tool_call().params}
        ).encode()
        message = message[:4000] if len(message) > 4000 else message
        kind = self._random.randrange(5)
        if kind == 0:
            hostile = self._random.choice((*IDS, *map(encode, VALUES)))
            return Line(f'{{"jsonrpc":"2.0","id":{hostile},"method":"ping"}}'.encode())
        at = self._random.randrange(len(message))
        if kind == 1:
            return Line(message[:at] or b"{")
        if kind == 2:
            return Line(message[:at] + bytes([self._random.choice((0, 0x80, 0xFF, 0x1B))]) + message[at:])
        if kind == 3:
            return Line(
                message[:at] + self._random.choice((b'"', b"{", b"}", b"\\u d", b"\\ud800", b",,")) + message[at + 1 :]
            )
        version = encode(self._hostile())
        return Line(f'{{"jsonrpc":{version},"id":1,"method":"ping"}}'.encode("utf-8", "surrogatepass"))

    def address(self, routes: Sequence[str]) -> Address:
        """Draw a request to the web page; `{}` in a route is replaced by a hostile segment."""
        route = self._random.choice(routes)
        if "/api/tools/" in route:
            drawn = self.tool_call().params
            name = drawn["name"] if self._random.random() < 0.9 else quoted(self._text())
            return Address(route.format(name), "POST", encode(drawn["arguments"]).encode(), JSON_HEADERS)
        path = route.replace("{}", quoted(self._word(), raw=self._random.random() < 0.3))
        if self._random.random() < 0.3:
            path += f"?{quoted(self._word())}={quoted(self._word())}"
        method = self._random.choice(("GET", "GET", "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"))
        return Address(path, method)

    def uri(self) -> str:
        """Draw the URI of a resource."""
        kind = self._random.choice(
            ("job", "trajectory", "dataset", "agent", "lineage", "judging", "guide", "comparison", "x")
        )
        tail = self._random.choice(
            ("", "", "/log?tail=5", "/metrics", "/picture", "/figure", "/../..", "?tail=" + "9" * 5000)
        )
        return f"{kind}://{self._word()}{tail}"

    def _required(self, tool: str) -> dict[str, Any]:
        schema = self._schemas[tool]
        properties = schema.get("properties", {})
        required = {name: self._valid(name, properties[name]) for name in schema.get("required", ())}
        return required | {name: value for (of, name), value in WAITS.items() if of == tool}

    def _argument(self, tool: str, name: str, schema: Schema, hostility: float) -> Any:
        is_hostile = self._random.random() < hostility / 2
        value = self._hostile() if is_hostile else WAITS.get((tool, name), self._valid(name, schema))
        return self._replaced(value) if self._random.random() < hostility / 2 else value

    def _valid(self, name: str, schema: Schema) -> Any:
        if name in EXAMPLES:
            return self._random.choice(EXAMPLES[name])
        if "anyOf" in schema:
            return self._valid("", self._random.choice(schema["anyOf"]))
        if "enum" in schema:
            return self._random.choice(schema["enum"])
        kind = schema.get("type")
        if kind in ("integer", "number"):
            low, high = schema.get("minimum", 0), schema.get("maximum", 100)
            drawn = self._random.choice((low, high, low + (high - low) * self._random.random()))
            return int(drawn) if kind == "integer" else drawn
        if kind == "boolean":
            return self._random.random() < 0.5
        if kind == "array":
            return [self._valid(name, schema.get("items", {})) for _ in range(self._random.randrange(4))]
        if kind == "object":
            properties = schema.get("properties", {})
            return {key: self._valid(key, inner) for key, inner in properties.items() if self._random.random() < 0.3}
        return self._random.choice(self._pool)

    def _hostile(self) -> Any:
        return self._text() if self._random.random() < 0.5 else self._random.choice(VALUES)

    def _text(self) -> str:
        return self._random.choice(TEXTS)

    def _word(self) -> str:
        return self._random.choice((self._text(), self._random.choice(self._pool)))

    def _replaced(self, value: Any) -> Any:
        """Replace one part of a value by a hostile one, or add it."""
        if isinstance(value, dict) and value and self._random.random() < 0.85:
            key = self._random.choice(list(value))
            return {**value, key: self._replaced(value[key])}
        if isinstance(value, list) and value and self._random.random() < 0.85:
            at = self._random.randrange(len(value))
            return [*value[:at], self._replaced(value[at]), *value[at + 1 :]]
        return self._hostile()


JSON_HEADERS = (("Content-Type", "application/json"),)


def quoted(text: str, *, raw: bool = False) -> str:
    """Return a text as a part of a path; raw: only what would end the request line is escaped."""
    safe = "!-~\x80-\xff" if raw else "A-Za-z0-9._~-"
    return "".join(
        f"%{byte:02x}" if re.match(f"[^{safe}]", chr(byte)) else chr(byte)
        for byte in text.encode("utf-8", "surrogatepass")
    )


IDS = (
    '"\\ud800"', '"a\\udfff"', '"\\u0000"', "null", "true", "1.5", "1e400", "-1", "9" * 30, "9" * 5000, "[]", "{}", '""',
    '"' + "a" * 100_000 + '"', "NaN", "-0", "[" * 300 + "]" * 300, '"\\u202e"', "99999999999999999999",
)  # fmt: skip
"""JSON in the place of a request's id."""

LINES: tuple[Line, ...] = (
    *(Line(f'{{"jsonrpc":"2.0","id":{one},"method":"ping"}}'.encode()) for one in IDS),
    *(Line(content) for content in (
        b"{", b"}", b"[]", b"[1]", b"null", b"1", b'""', b"hello", b"\xff\xfe", b"\x00", b"\xef\xbb\xbf{}", b"{}", b"[" * 5000,
        b'{"a":' * 5000, b"9" * 5000, b"NaN", b'{"id":1}', b'{"method":"ping"', b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
        b'{"id":1,"method":"ping"}', b'{"jsonrpc":2.0,"id":1,"method":"ping"}', b'{"jsonrpc":"2.0","id":1,"method":7}',
        b'{"jsonrpc":"2.0","id":1,"method":null}', b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":"x"}', b'{"jsonrpc":"2.0","id":1,"id":"\\ud800","method":"ping"}',
        b'{"jsonrpc":"2.0","method":"ping","params":{},"id":"\\udc00"}',
        b'[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]', b"Content-Length: 5\r",
        b"GET / HTTP/1.1\r", b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_job","arguments":{"job_id":"' + b"a" * 17 * 2**20 + b'"}}}',
    )),
    *(Line(content, is_answered=False) for content in (
        b'{"jsonrpc":"2.0","id":1,"result":{}}', b'{"jsonrpc":"2.0","id":1,"result":{"a":"\\ud800"}}',
        b'{"jsonrpc":"2.0","id":99,"error":{"code":1,"message":"x"}}', b'{"jsonrpc":"2.0","id":99,"error":{}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"none"}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled"}', b'{"jsonrpc":"2.0","method":"notifications/none"}',
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":"x"}}', b"   ",
    )),
)  # fmt: skip
"""Lines that are not valid requests."""

METHODS = (
    "resources/read", "resources/read", "resources/subscribe", "resources/unsubscribe", "prompts/get", "completion/complete",
    "logging/setLevel", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "tasks/get",
    "tasks/cancel", "tasks/update", "server/discover", "ping", "initialize", "sampling/createMessage", "tools/none",
)  # fmt: skip

ROUTES = (
    "/api/tools/{}", "/api/tools/{}", "/api/tools/{}", "/api/jobs/{}", "/api/resource?uri={}", "/api/resource?{}", "/api/session",
    "/api/overview", "/api/{}", "/static/{}", "/static/views/{}", "/{}", "/jobs/{}", "/runs/{}", "/datasets/{}", "/agents/{}",
    "/comparisons/{}", "/lineage/{}", "/judging", "/leaderboard", "/healthz/{}", "/.well-known/{}", "/jobs/{}/{}",
)  # fmt: skip

ADDRESSES: tuple[Address, ...] = (
    *(Address(path) for path in (
        "/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd", "/static/views",
        "/api/jobs/..%2f..%2fquintain.db", "/api/jobs/%00", "/api/jobs/" + "a" * 9000, "/api/resource", "/%ff%fe", "/api",
        "/api/resource?uri=file:///etc/passwd", "/api/resource?uri=job://%00", "/api/resource?uri=job://%ed%a0%80",
        "/api/tools/list_jobs", "/jobs/../../etc/passwd%00", "/.git/config", "/http-token", "/quintain.db", "//evil.example/",
        "/?#", "/api/resource?uri=" + "a" * 8000, "/api/resource?uri=guide://methods/..%2f..", "/api/resource?uri=job://a/log?tail=-1",
        "http://evil.example/", "*", "/api/overview?limit=1e400", "/favicon.ico", "/api/jobs/%2e%2e", "/static/%00",
    )),
    *(Address("/api/tools/list_jobs", "POST", body, JSON_HEADERS) for body in (
        b"", b"{", b"[1]", b"\xff", b"[" * 100_000, b'{"a":' * 100_000, b"null", b'"x"', b'{"limit":1e400}', b'{"limit":NaN}',
        b'{"limit":' + b"9" * 5000 + b"}", b'{"status":"\\ud800"}', b'{"limit":1,"limit":"x"}', b'{"\\ud800":1}',
        b'{"cursor":"' + b"a" * 2_000_000 + b'"}',
    )),
    *(
        Address("/api/tools/list_jobs", "POST", b"{}", (("Content-Type", kind),))
        for kind in ("text/plain", "", "application/jsonx", "multipart/form-data")
    ),
    *(
        Address(path, method)
        for path in ("/", "/api/session", "/static/app.js", "/api/tools/list_jobs")
        for method in ("PUT", "TRACE", "PATCH")
    ),
)  # fmt: skip
"""Requests to the web page."""
