// What the server does now, from /metrics: speed, requests, and the room for keys and values.

import { definitions, make, makeSvg } from "./dom.js";
import { count, percent, rate } from "./numbers.js";
import { getText } from "./server.js";

const EVERY_MS = 1000;
const KEPT_S = 60;
// Over how long a rate is measured.
const RATE_S = 3;
const WIDTH = 240;
const HEIGHT = 48;

export class Live {
  constructor(place, onFailure) {
    this.onFailure = onFailure;
    this.samples = [];
    this.timer = null;
    this.line = makeSvg("polyline", { class: "line" });
    this.area = makeSvg("polygon", { class: "area" });
    const size = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" };
    this.chart = makeSvg("svg", { class: "chart", ...size }, this.area, this.line);
    this.speed = make("b", { className: "speed" }, "–");
    this.unit = make("span", { className: "unit" }, "tokens/s");
    this.most = make("span", { className: "most" });
    this.facts = make("div");
    const head = make("p", { className: "rate" }, this.speed, " ", this.unit, this.most);
    place.append(head, this.chart, this.facts);
    document.addEventListener("visibilitychange", () => this.look());
  }

  start() {
    this.isOn = true;
    this.look();
  }

  stop() {
    this.isOn = false;
    clearTimeout(this.timer);
  }

  // Asks while the page is seen; a hidden one asks nothing.
  async look() {
    clearTimeout(this.timer);
    if (!this.isOn || document.hidden || this.asking) return;
    this.asking = true;
    try {
      this.take(readMetrics(await getText("metrics")), performance.now() / 1000);
    } catch (failure) {
      this.onFailure(failure);
    } finally {
      this.asking = false;
    }
    if (this.isOn) this.timer = setTimeout(() => this.look(), EVERY_MS);
  }

  take(metrics, nowS) {
    const [unit, total] = totalOf(metrics);
    const perS = total === null ? null : this.rateOf(total, nowS);
    this.samples.push({ atS: nowS, total, perS });
    this.samples = this.samples.filter(({ atS }) => atS > nowS - KEPT_S - RATE_S);
    this.speed.textContent = perS === null ? "–" : rate(perS);
    this.unit.textContent = unit;
    this.draw(nowS);
    this.facts.replaceChildren(definitions(factsOf(metrics)), ...meterOf(metrics));
  }

  rateOf(total, nowS) {
    const since = this.samples.find(({ atS }) => atS >= nowS - RATE_S - 0.5);
    if (!since || since.total === null || since.total > total) return null;
    return (total - since.total) / (nowS - since.atS);
  }

  draw(nowS) {
    const known = this.samples.filter(({ perS, atS }) => perS !== null && atS > nowS - KEPT_S);
    const most = Math.max(0, ...known.map(({ perS }) => perS));
    this.most.textContent = most > 0 ? `most in a minute: ${rate(most)}` : "";
    const at = ({ atS, perS }) => {
      const x = WIDTH * (1 - (nowS - atS) / KEPT_S);
      const y = HEIGHT - 2 - (most > 0 ? ((HEIGHT - 4) * perS) / most : 0);
      return `${x.toFixed(1)},${y.toFixed(1)}`;
    };
    const points = known.map(at);
    this.line.setAttribute("points", points.join(" "));
    const [first] = points;
    const ground = first ? [`${WIDTH},${HEIGHT}`, `${first.split(",")[0]},${HEIGHT}`] : [];
    this.area.setAttribute("points", [...points, ...ground].join(" "));
  }
}

// Returns the values by name; those of a metric with labels are added up.
export function readMetrics(text) {
  const found = new Map();
  for (const line of text.split("\n")) {
    const parts = /^([a-zA-Z_:][\w:]*)(\{.*\})? ([^ ]+)/.exec(line);
    if (parts) found.set(parts[1], (found.get(parts[1]) ?? 0) + Number(parts[3]));
  }
  return found;
}

function first(metrics, ...names) {
  const name = names.find((one) => metrics.has(one));
  return name === undefined ? null : metrics.get(name);
}

// What is counted as speed: tokens of answers, or texts of an encoder.
function totalOf(metrics) {
  const texts = first(metrics, "paredown_encoder_texts_total");
  return texts === null ? ["tokens/s", first(metrics, "paredown_generated_tokens_total")] : ["texts/s", texts];
}

function factsOf(metrics) {
  const preemptions = first(metrics, "paredown_preemptions_total");
  const asked = first(metrics, "paredown_prefix_cache_query_tokens_total");
  const hits = first(metrics, "paredown_prefix_cache_hit_tokens_total");
  return [
    ["Running", count(first(metrics, "paredown_requests_running"))],
    ["Waiting", count(first(metrics, "paredown_requests_waiting", "paredown_texts_waiting"))],
    ["Sent back to wait", preemptions ? count(preemptions) : null],
    ["Prompts from the cache", asked ? percent(hits / asked) : null],
  ];
}

function meterOf(metrics) {
  const [num, used] = [first(metrics, "paredown_pages"), first(metrics, "paredown_pages_used")];
  if (!num) return [];
  const idle = first(metrics, "paredown_pages_idle") ?? 0;
  const fill = make("span", { className: "fill" });
  fill.style.width = `${(100 * used) / num}%`;
  const kept = make("span", { className: "fill kept" });
  kept.style.width = `${(100 * Math.min(idle, num - used)) / num}%`;
  const label = `Keys and values: ${percent(used / num)} of ${count(num)} pages in use`;
  const more = idle ? `, ${percent(Math.min(idle, num - used) / num)} kept for prompts that begin alike` : "";
  return [
    make("p", { className: "meter-label" }, label + more),
    make("div", { className: "track wide", attributes: { "aria-hidden": "true" } }, fill, kept),
  ];
}
