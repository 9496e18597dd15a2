// The transport. In a host's frame tools are called by postMessage (MCP Apps), else by fetch; views see one object.
//   api.call(tool, args)      the tool's result, or an ApiError with code, problem and remedy
//   api.read(uri)             a resource such as job://ID: its JSON, or { text }
//   api.subscribe(callback)   states of jobs as they change; returns the function that ends it
//   api.mayChange             whether actions are allowed: this page has the token
import { address } from "./routes.js";

export class ApiError extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
    const cut = message.indexOf("; ");
    this.problem = cut < 0 ? message : message.slice(0, cut);
    this.remedy = cut < 0 ? "" : message.slice(cut + 2);
  }
}

const HOST_ANSWER_MS = 500;

export async function connect() {
  if (window.parent !== window) {
    const host = await connectToHost();
    if (host) return host;
  }
  return connectToServer();
}

// --- this page's own server ---

function takeToken() {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  try {
    if (found) sessionStorage.setItem("token", found);
    if (found) history.replaceState(history.state, "", location.pathname + location.search);
    return found ?? sessionStorage.getItem("token");
  } catch {
    return found;
  }
}

async function connectToServer() {
  let token = takeToken();
  let headers = token ? { Authorization: `Bearer ${token}` } : {};

  // A token of an earlier server: without it this page still reads.
  function forgetToken() {
    [token, headers] = [null, {}];
    try { sessionStorage.removeItem("token"); } catch { /* not kept */ }
  }

  async function ask(url, options = {}) {
    let answer, body;
    try {
      answer = await fetch(address(url), { ...options, headers: { ...headers, ...options.headers } });
      body = await answer.json();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError("offline", "expected an answer of the server, got none; start it again with quintain ui");
    }
    if (answer.status === 401 && token && body.error?.code === "unauthorized") forgetToken();
    if (!answer.ok) throw new ApiError(body.error?.code ?? String(answer.status), body.error?.message ?? "unexpected answer");
    return body;
  }

  const session = await ask("/api/session").catch(() => ask("/api/session")).catch(() => ({ may_change: false }));
  return {
    inHost: false,
    mayChange: session.may_change,
    call: (tool, args = {}, signal) => ask(`/api/tools/${encodeURIComponent(tool)}`, {
      method: "POST", body: JSON.stringify(args), headers: { "Content-Type": "application/json" }, signal,
    }),
    read: (uri) => ask(`/api/resource?uri=${encodeURIComponent(uri)}`),
    // Data of the page itself, such as /api/overview.
    get: (path) => ask(path),
    post: (path) => ask(path, { method: "POST" }),
    subscribe: sharedStream(() => fetch(address("/api/events"), { headers })),
  };
}

// One stream for all subscribers, opened by the first and closed after the last; reopened when the connection is lost.
function sharedStream(open) {
  const callbacks = new Set();
  let current = null;

  async function follow(mine) {
    for (let failures = 0; current === mine; failures++) {
      try {
        const answer = await open();
        if (!answer.ok) throw new Error(String(answer.status));
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        mine.cancel = () => reader.cancel().catch(() => {});
        connection(true);
        let text = "";
        for (;;) {
          const { value, done } = await reader.read();
          if (done || current !== mine) break;
          failures = 0;
          text += value;
          const events = text.split("\n\n");
          text = events.pop();
          events.forEach(deliver);
        }
      } catch { /* opened again below */ }
      if (current !== mine) return;
      connection(false);
      await new Promise((resume) => setTimeout(resume, Math.min(500 * 2 ** failures, 8000)));
    }
  }

  function deliver(event) {
    const lines = Object.fromEntries(event.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]));
    if (lines.event === "job") {
      const state = JSON.parse(lines.data);
      callbacks.forEach((callback) => callback(state));
    }
  }

  return (callback) => {
    callbacks.add(callback);
    if (!current) {
      current = {};
      follow(current);
    }
    return () => {
      callbacks.delete(callback);
      if (!callbacks.size && current) {
        current.cancel?.();
        current = null;
      }
    };
  };
}

function connection(isLive) {
  const place = document.getElementById("connection");
  if (place) {
    place.className = `connection ${isLive ? "live" : "lost"}`;
    place.textContent = isLive ? "live" : "connection lost";
  }
}

// --- a host of MCP Apps ---

async function connectToHost() {
  const waiting = new Map();
  const listeners = new Set();
  let last = 0;

  function send(method, params, timeout) {
    const id = ++last;
    return new Promise((resolve, reject) => {
      waiting.set(id, { resolve, reject });
      if (timeout) setTimeout(() => reject(new ApiError("no_host", "the frame's host does not answer")), timeout);
      window.parent.postMessage({ jsonrpc: "2.0", id, method, params }, "*");
    });
  }

  window.addEventListener("message", (event) => {
    if (event.source !== window.parent || event.data?.jsonrpc !== "2.0") return;
    const { id, method, params, result, error } = event.data;
    if (method) {
      listeners.forEach((listener) => listener(method, params ?? {}));
      // A request, such as ping or ui/resource-teardown, wants an answer.
      if (id !== undefined) window.parent.postMessage({ jsonrpc: "2.0", id, result: {} }, "*");
    }
    else if (waiting.has(id)) {
      const { resolve, reject } = waiting.get(id);
      waiting.delete(id);
      if (error) reject(new ApiError("host", error.message ?? "the host refused"));
      else resolve(result);
    }
  });

  let host;
  try {
    host = await send("ui/initialize", {
      protocolVersion: "2026-01-26", appInfo: { name: "quintain", version: "1" }, appCapabilities: {},
    }, HOST_ANSWER_MS);
  } catch {
    return null;
  }
  window.parent.postMessage({ jsonrpc: "2.0", method: "ui/notifications/initialized", params: {} }, "*");

  async function call(name, args = {}) {
    const result = await send("tools/call", { name, arguments: args });
    const text = (result.content ?? []).filter((part) => part.type === "text").map((part) => part.text).join("");
    if (result.isError) {
      const end = text.indexOf("] ");
      throw new ApiError(text.slice(1, Math.max(end, 1)), text.slice(end + 2));
    }
    return result.structuredContent ?? { text, png: (result.content ?? []).find((part) => part.type === "image")?.data ?? null };
  }

  return {
    inHost: true,
    mayChange: true,
    hostContext: host?.hostContext ?? {},
    call,
    read: async (uri) => {
      const { contents } = await send("resources/read", { uri });
      const [{ text, mimeType }] = contents;
      return mimeType === "application/json" ? JSON.parse(text) : { text };
    },
    get: async (path) => { throw new ApiError("no_server", `expected this page's own server for ${path}, got a host's frame`); },
    // A host has no stream of the server: views ask again.
    subscribe: () => () => {},
    // Notifications of the host: (method, params), such as ui/notifications/tool-result.
    onHost: (listener) => { listeners.add(listener); return () => listeners.delete(listener); },
    notifyHost: (method, params) => window.parent.postMessage({ jsonrpc: "2.0", method, params }, "*"),
    askHost: send,
  };
}
