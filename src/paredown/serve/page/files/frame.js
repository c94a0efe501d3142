// What both pages have around their own part: the server's state, the key, the panel, its load and
// the report of the model.

import { element } from "./dom.js";
import { Live } from "./live.js";
import { showReport } from "./report.js";
import { ServerError, getJson, health, keepKey, readKey } from "./server.js";

const WAIT_MS = 1000;
const STATES = {
  ready: "ready",
  loading: "loading the model",
  stalled: "a step hangs",
  stopped: "stopping",
  dead: "the model failed",
  locked: "needs a key",
  unreachable: "unreachable",
};

export class Frame {
  // `onReport` takes the report of the model once it is there.
  constructor(onReport) {
    this.onReport = onReport;
    this.live = new Live(element("live"), (failure) => this.noteFailure(failure));
    this.connecting = false;
    this.listen();
    this.connect();
  }

  listen() {
    const key = element("key");
    key.value = readKey();
    element("key-form").addEventListener("submit", (event) => {
      event.preventDefault();
      if (!key.reportValidity()) return;
      keepKey(key.value);
      this.openPanel(false);
      this.connect();
    });
    element("panel-button").addEventListener("click", () => {
      this.openPanel(!document.body.classList.contains("panel-open"));
    });
  }

  // On a narrow screen the panel covers the rest while it is open.
  openPanel(isOpen) {
    document.body.classList.toggle("panel-open", isOpen);
    element("panel-button").setAttribute("aria-expanded", String(isOpen));
  }

  // Waits until the server is ready, then asks what it serves.
  async connect() {
    if (this.connecting) return;
    this.connecting = true;
    this.live.stop();
    try {
      for (let state = ""; state !== "ready"; ) {
        state = await health();
        this.show(state);
        if (state !== "ready") await wait(WAIT_MS);
      }
      const report = await getJson("report");
      this.take(report);
    } catch (failure) {
      this.connecting = false;
      this.noteFailure(failure);
      return;
    }
    this.connecting = false;
    this.live.start();
  }

  take(report) {
    const name = String(report.model);
    element("model-name").textContent = name;
    document.title = `${name} – Paredown`;
    showReport(element("report"), report);
    this.onReport(report);
  }

  // Shows what a failed request says of the server, and tries again where that may help.
  noteFailure(failure) {
    if (!(failure instanceof ServerError)) throw failure;
    if (failure.status === 401) {
      this.live.stop();
      this.show("locked");
      element("key-details").open = true;
      this.openPanel(true);
      element("key").focus();
      return;
    }
    if (failure.status !== 0 && failure.status !== 503) return;
    this.show("unreachable");
    this.live.stop();
    setTimeout(() => this.connect(), WAIT_MS);
  }

  show(state) {
    const shown = element("state");
    shown.dataset.state = state;
    shown.textContent = STATES[state] ?? state;
  }
}

function wait(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
