"""A Hub of this machine: what `huggingface_hub` asks for when it creates a repository and commits files to it."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any

TOKEN = "hf_tokenOfThisTestAlone"


@dataclass
class Hub:
    """State of the Hub. Repositories are named `models/owner/name` or `datasets/owner/name`."""

    url: str = ""
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    visibility: dict[str, str | None] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    commits: list[str] = field(default_factory=list)
    refuses: str = ""
    """Part of a path whose requests fail from now on."""


@contextmanager
def local_hub() -> Iterator[Hub]:
    """Serve a Hub while the body runs."""
    hub = Hub()

    class Handler(_Handler):
        state = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    state: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path, repositories = self.path.partition("?")[0], self.state.repositories
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._answer(401, {"error": "Invalid credentials in Authorization header"})
        if path.endswith("/tree/main"):
            files = repositories[path.removeprefix("/api/").removesuffix("/tree/main")]
            return self._answer(200, [{"type": "file", "path": n, "size": len(b), "oid": n} for n, b in files.items()])
        repository, _, name = path[1:].partition("/resolve/main/")
        kept = repositories.get(repository if repository.startswith("datasets/") else f"models/{repository}", {})
        if (found := kept.get(name)) is None:
            return self._answer(404, {"error": "not found"})
        return self._answer(200, found, {"X-Repo-Commit": "0" * 40, "ETag": f'"{hashlib.sha256(found).hexdigest()}"'})

    def do_PUT(self) -> None:
        body, oid = self._body(), self.path.rpartition("/")[2]
        if hashlib.sha256(body).hexdigest() != oid:
            return self._answer(400, {"error": "wrong hash"})
        self.state.blobs[oid] = body
        return self._answer(200, {})

    def do_POST(self) -> None:
        body, path, hub = self._body(), self.path.partition("?")[0], self.state
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._answer(401, {"error": "Invalid credentials in Authorization header"})
        if hub.refuses and hub.refuses in path:
            return self._answer(400, {"error": "refused"})
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if path == "/api/validate-yaml":
            return self._answer(200, {"errors": [], "warnings": []})
        if path.endswith(".git/info/lfs/objects/batch"):
            objects = [
                {**one, "actions": {"upload": {"href": f"{hub.url}/lfs/{one['oid']}"}}}
                for one in json.loads(body)["objects"]
            ]
            return self._answer(200, {"transfer": "basic", "objects": objects})
        repository = path.removeprefix("/api/").rpartition("/")[0]
        if repository.endswith("/preupload"):
            modes = {True: "lfs", False: "regular"}
            files = [
                {
                    "path": one["path"],
                    "uploadMode": modes[one["path"].endswith((".safetensors", ".parquet"))],
                    "shouldIgnore": False,
                }
                for one in json.loads(body)["files"]
            ]
            return self._answer(200, {"files": files})
        return self._commit(repository.removesuffix("/commit"), [json.loads(line) for line in body.splitlines()])

    def _create(self, wanted: dict[str, Any]) -> None:
        name = f"{wanted.get('type', 'model')}s/{wanted['organization']}/{wanted['name']}"
        where = {"url": f"{self.state.url}/{name.removeprefix('models/')}"}
        if name in self.state.repositories:
            return self._answer(409, {**where, "error": "You already created this repo"})
        self.state.repositories[name] = {}
        self.state.visibility[name] = wanted.get("visibility")
        return self._answer(200, where)

    def _commit(self, repository: str, lines: list[dict[str, Any]]) -> None:
        files: dict[str, bytes] = {}
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.state.blobs[value["oid"]]
            elif line["key"] == "deletedFile":
                del self.state.repositories[repository][value["path"]]
        self.state.repositories[repository] |= files
        self.state.commits.append(repository)
        oid = hashlib.sha1(str(len(self.state.commits)).encode()).hexdigest()
        url = f"{self.state.url}/{repository.removeprefix('models/')}/commit/{oid}"
        return self._answer(200, {"success": True, "commitOid": oid, "commitUrl": url, "hookOutput": ""})

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _answer(self, status: int, content: Any, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
