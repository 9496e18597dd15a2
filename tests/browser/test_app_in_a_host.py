"""The MCP App in a host's frame: a page that speaks the host's side of the protocol, and the real server behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from mcp import Client
from mcp.client import advertise

from browser.conftest import BUILD
from evaluation.test_comparison import evaluated
from quintain.records.agent import Agent, ModelRef
from quintain.records.jobs.job import SelftestSpec
from quintain.server.app import create_server
from quintain.server.apps import EXTENSION, MIME_TYPE, PAGE
from quintain.settings import Settings
from quintain.tools.services import Services, open_services
from server.talks import serve

HOST = """<!doctype html><title>host</title><iframe id="view" sandbox="allow-scripts" width="900" height="700"></iframe><script>
window.received = [];
const frame = document.getElementById("view");
window.tell = (method, params) => frame.contentWindow.postMessage({ jsonrpc: "2.0", method, params }, "*");
window.addEventListener("message", async ({ source, data: { id, method, params } }) => {
  if (source !== frame.contentWindow || !method) return;
  window.received.push({ method, params });
  const answer = (result) => id !== undefined && frame.contentWindow.postMessage({ jsonrpc: "2.0", id, result }, "*");
  const about = { protocolVersion: "2026-01-26", hostInfo: { name: "host", version: "1" }, hostCapabilities: {} };
  if (method === "ui/initialize") answer({ ...about, hostContext: { theme: "dark" } });
  else if (method === "resources/read") answer(JSON.parse(await window.readResource(params.uri)));
  else answer({});
});
</script>"""


@pytest.fixture
def services(settings: Settings) -> Iterator[Services]:
    opened = open_services(settings)
    yield opened
    opened.close()


class HostOfTheServer:
    """The host's client: what the server answers, as JSON of the protocol."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def ask(self, kind: str, *arguments: Any) -> dict[str, Any]:
        async def talk(client: Client) -> Any:
            found = await (client.read_resource if kind == "read" else client.call_tool)(*arguments)
            return found.model_dump(mode="json", by_alias=True, exclude_none=True)

        host = [advertise(EXTENSION, {"mimeTypes": [MIME_TYPE]})]
        with ThreadPoolExecutor(1) as thread:  # the browser's driver has this thread's event loop
            answer: dict[str, Any] = thread.submit(
                serve, create_server(self.settings), "auto", talk, extensions=host
            ).result()
        return answer


def test_a_host_shows_a_running_job_live_and_then_a_comparison(
    browser: Any, settings: Settings, services: Services
) -> None:
    server, faults, elsewhere = HostOfTheServer(settings), list[str](), list[str]()
    job_id = services.jobs.start(SelftestSpec(steps=40, step_s=0.1)).job.id
    page = browser.new_context(viewport={"width": 940, "height": 740}).new_page()
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type in {"error", "warning"} else None)
    page.on("request", lambda request: elsewhere.append(request.url))
    page.expose_function("readResource", lambda uri: json.dumps(server.ask("read", uri)))
    page.set_content(HOST)
    html = server.ask("read", PAGE)["contents"][0]["text"]
    page.evaluate("(html) => { document.getElementById('view').srcdoc = html; }", html)
    page.wait_for_function("window.received.some((one) => one.method === 'ui/notifications/initialized')")

    shown = server.ask("call", "show_training_dashboard", {"job_id": job_id})
    assert shown["_meta"]["quintain/job"]["status"] in {"queued", "running"}
    page.evaluate("(result) => window.tell('ui/notifications/tool-result', result)", shown)
    view = page.frame_locator("#view")
    view.locator(".badge", has_text="succeeded").wait_for(timeout=60_000)
    assert view.locator("canvas").count() == 1
    assert view.locator("h2").inner_text() == "selftest"
    methods = page.evaluate("window.received.map((one) => one.method)")
    assert "resources/read" in methods, "it asks again while the job runs"
    assert methods.count("ui/update-model-context") == 1, "the model learns of the end once"
    assert "ui/notifications/size-changed" in methods
    assert view.locator("html").evaluate("(root) => getComputedStyle(root).colorScheme") == "dark"
    BUILD.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(BUILD / "app-job.png"))

    for name, outcomes in (("a", "0001"), ("b", "0111")):
        services.store.agents.add(Agent(name=name, model=ModelRef(source="folder", path="/m")), services.clock())
        services.store.evaluations.add(evaluated(name, outcomes), services.clock())
    compared = server.ask("call", "compare_agents", {"agents": ["a", "b"]})
    page.evaluate("(result) => window.tell('ui/notifications/tool-result', result)", compared)
    view.locator("table.forest").first.wait_for()
    page.evaluate("window.tell('ui/notifications/host-context-changed', { theme: 'light' })")
    assert view.locator("table.forest").first.locator("tbody tr").count() == 1
    page.screenshot(path=str(BUILD / "app-comparison.png"))
    assert (faults, elsewhere) == ([], ["about:srcdoc"][: len(elsewhere)])


def test_without_a_host_the_page_names_the_other_way(browser: Any, settings: Settings) -> None:
    html = HostOfTheServer(settings).ask("read", PAGE)["contents"][0]["text"]
    page = browser.new_context().new_page()
    page.set_content(html)
    page.get_by_text("Without one, use quintain ui.").wait_for(timeout=20_000)
