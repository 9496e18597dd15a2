"""A page of the real browser that records what a reader would not see: errors, requests elsewhere, violations, long tasks."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Literal, Self

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request

Mode = Literal["light", "dark", "narrow"]
SIZES: dict[Mode, tuple[int, int]] = {"light": (1280, 900), "dark": (1280, 900), "narrow": (390, 844)}

_WATCH = """
window.violations = [];
window.longTasks = [];
document.addEventListener("securitypolicyviolation", (event) => window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
new PerformanceObserver((list) => list.getEntries().forEach((entry) => window.longTasks.push(Math.round(entry.duration))))
  .observe({ type: "longtask", buffered: true });
"""
"""Runs before each document. A task longer than 50 ms is a long one (W3C Long Tasks)."""

_SERIOUS = {"serious", "critical"}
_STREAM = "/api/events"


class Visitor:
    """A reader of one web page; leaving it checks that nothing went wrong unseen."""

    def __init__(self, browser: Browser, url: str, token: str | None, mode: Mode = "light") -> None:
        width, height = SIZES[mode]
        self.url = url
        self.faults: list[str] = []
        self._pending: set[Request] = set()
        scheme: Literal["dark", "light"] = "dark" if mode == "dark" else "light"
        self._context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self._context.set_default_timeout(60_000)
        self.page: Page = self._context.new_page()
        self.page.add_init_script(_WATCH)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.faults.append(f"exception: {error}"))
        self.page.on("request", self._on_request)
        self.page.on("requestfinished", lambda request: self._pending.discard(request))
        self.page.on("requestfailed", lambda request: self._pending.discard(request))
        if token is not None:
            self.open(f"/#token={token}")

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.faults.append(f"console: {message.text} {message.location.get('url', '')}")

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((f"{self.url}/", "data:", "blob:")):
            self.faults.append(f"request elsewhere: {request.url}")
        if _STREAM not in request.url:
            self._pending.add(request)

    def open(self, path: str) -> Page:
        """Go to a path and wait until its view has all its data."""
        self._pending.clear()
        self.page.goto(f"{self.url}{path}")
        self.settle()
        return self.page

    def settle(self) -> None:
        """Wait until the view is complete: not busy, and no request under way."""
        self.page.wait_for_selector("main .view:not([aria-busy])")
        quiet = 0
        while quiet < 3:
            self.page.wait_for_timeout(30)
            quiet = 0 if self._pending else quiet + 1

    def findings(self) -> list[str]:
        """Return the serious and critical findings of axe-core on the page."""
        violations: list[dict[str, Any]] = Axe().run(self.page).response["violations"]
        return [
            f"{one['id']}: {node['html'][:160]} {node.get('failureSummary', '')}"
            for one in violations
            if one["impact"] in _SERIOUS
            for node in one["nodes"]
        ]

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool as the page does."""
        script = "([name, args]) => import('/static/api.js').then(({ connect }) => connect()).then((api) => api.call(name, args))"
        result: dict[str, Any] = self.page.evaluate(script, [tool, arguments])
        return result

    def close(self) -> None:
        """Close the page without a look at its faults."""
        self._context.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        violations = self.page.evaluate("window.violations") if error is None else []
        self.close()
        if error is None:
            assert not self.faults, self.faults
            assert not violations, violations
