// How answers are drawn: the fields of the form are named as those of the API.

import { element } from "./dom.js";

const KEPT = "paredown-settings";
const NUM_ALTERNATIVES = 5;
const OWN = new Set(["system", "stop"]);

export class Settings {
  constructor() {
    this.form = element("settings");
    this.wantsTokens = element("wants-tokens");
    this.shade = element("shade");
    this.restore();
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("input", () => this.keep());
    this.form.addEventListener("reset", () => setTimeout(() => this.keep()));
    this.wantsTokens.addEventListener("change", () => this.keep());
    this.shade.addEventListener("change", () => {
      this.keep();
      this.showShades();
    });
    this.showShades();
  }

  get system() {
    return this.form.elements.system.value.trim();
  }

  // Returns the name of the first field that cannot be sent, and goes there; null where all can.
  firstInvalid() {
    const field = [...this.form.elements].find((one) => one.willValidate && !one.checkValidity());
    if (!field) return null;
    for (let at = field.closest("details"); at; at = at.parentElement.closest("details")) at.open = true;
    field.reportValidity();
    return field.labels[0].textContent.trim();
  }

  // Returns the fields of a request; `isChat` says how log-probabilities are asked for.
  fields(isChat) {
    const found = {};
    for (const field of this.form.elements) {
      if (field.name && !OWN.has(field.name) && field.value !== "") found[field.name] = Number(field.value);
    }
    const stop = this.form.elements.stop.value.split("\n").filter((line) => line);
    if (stop.length) found.stop = stop;
    if (!this.wantsTokens.checked) return found;
    const asked = isChat ? { logprobs: true, top_logprobs: NUM_ALTERNATIVES } : { logprobs: NUM_ALTERNATIVES };
    return { ...found, ...asked };
  }

  showShades() {
    document.body.classList.toggle("shaded", this.shade.checked);
    element("legend").hidden = !this.shade.checked;
  }

  keep() {
    const fields = [...this.form.elements].filter((field) => field.name);
    const values = Object.fromEntries(fields.map((field) => [field.name, field.value]));
    const kept = { values, wantsTokens: this.wantsTokens.checked, shade: this.shade.checked };
    try {
      localStorage.setItem(KEPT, JSON.stringify(kept));
    } catch {
      // They hold until the page is left.
    }
  }

  restore() {
    try {
      const kept = JSON.parse(localStorage.getItem(KEPT));
      if (!kept) return;
      for (const [name, value] of Object.entries(kept.values)) {
        if (this.form.elements[name]) this.form.elements[name].value = String(value);
      }
      this.wantsTokens.checked = Boolean(kept.wantsTokens);
      this.shade.checked = Boolean(kept.shade);
    } catch {
      // Nothing was kept, or nothing that can be read.
    }
  }
}
