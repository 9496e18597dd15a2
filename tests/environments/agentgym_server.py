"""A server that speaks the HTTP protocol of AgentGym (`agentenv-textcraft/agentenv_textcraft/server.py`), as a process of its own.

Its environment: count from 1 to 2 or 3. The action `wait` never answers, `quit` ends the process, `long` and
`flood` answer with 30 thousand and 17 million characters, and `redirect` with another address.
"""

from __future__ import annotations

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

environments: dict[int, list[int]] = {}
"""Environment -> the last number, and that to count to."""


def answer(path: str, body: dict[str, Any]) -> Any:
    if path == "/create":
        environments[len(environments)] = []
        return {"id": len(environments) - 1, "observation": "", "done": False, "reward": 0}
    if body["id"] not in environments:
        return {"error": f"The id {body['id']} is not valid."}
    count = environments[body["id"]]
    if path == "/close":
        del environments[body["id"]]
        return True
    if path == "/reset":
        count[:] = [0, 2 + body["data_idx"] % 2]
        return {"id": body["id"], "observation": f"Count to {count[1]}.", "done": False, "reward": 0}
    match body["action"]:
        case "quit":
            os._exit(1)
        case "wait":
            time.sleep(3600)
        case "long" | "flood" as size:
            return {"observation": "x" * (30_000 if size == "long" else 17_000_000), "reward": 0, "done": False}
        case action if action == str(count[0] + 1):
            count[0] += 1
            done = count[0] == count[1]
            return {"observation": f"after {action}", "reward": int(done), "done": done}
    return {"observation": f"Could not execute {body['action']}", "reward": 0, "done": False}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        content = json.dumps(answer(self.path, body)).encode()
        moved = body.get("action") == "redirect"
        self.send_response(302 if moved else 200)
        if moved:
            self.send_header("Location", "/create")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        pass


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
