// A worker in a hidden frame, for pages opened from the disk: browsers start no worker from file:// addresses.
// The search of the site's theme uses `postMessage`, `onmessage`, message events and `importScripts`, and no more.
(() => {
  if (location.protocol !== "file:") return;

  class FrameWorker extends EventTarget {
    #frame = document.createElement("iframe");
    #ready;

    constructor(url) {
      super();
      this.#frame.hidden = true;
      document.body.appendChild(this.#frame);
      const inner = this.#frame.contentWindow;
      inner.postMessage = (data) => this.#answer(data);
      inner.importScripts = (...sources) =>
        sources.reduce((earlier, source) => earlier.then(() => this.#load(source)), Promise.resolve());
      this.#ready = this.#load(`${url}`);
    }

    postMessage(data) {
      this.#ready.then(() => this.#frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.#frame.remove();
    }

    #load(source) {
      return new Promise((resolve, reject) => {
        const script = this.#frame.contentDocument.createElement("script");
        script.onload = resolve;
        script.onerror = reject;
        script.src = source;
        this.#frame.contentDocument.body.appendChild(script);
      });
    }

    #answer(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      this.onmessage?.(event);
    }
  }

  window.Worker = FrameWorker;
})();
