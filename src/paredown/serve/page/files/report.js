// The report of the model: what it is, how it runs, and what its compression cost. Figures come from
// verification.json, which lies beside the weights and may be anybody's: all of it is text here.

import { definitions, make } from "./dom.js";
import { bytes, change, count, decimal, parameters, percent } from "./numbers.js";

const NUM_WORST = 3;

export function showReport(place, report) {
  const { check = null, figures = null } = report.verification ?? {};
  place.replaceChildren(model(report), ...proof(check, figures), ...notes(report.checkpoint?.notes));
}

function model({ model: name, max_tokens: context, checkpoint, runs }) {
  const threads = runs && [runs.num_threads, runs.num_decode_threads].filter(Boolean);
  return definitions([
    ["Name", name],
    ["Family", checkpoint?.family],
    ["Parameters", parameters(checkpoint?.num_parameters)],
    ["Layers", checkpoint && `${count(checkpoint.num_layers)} of width ${count(checkpoint.hidden_size)}`],
    ["Weights", checkpoint?.linear_format],
    ["Bits per weight", decimal(2)(checkpoint?.bits_per_weight)],
    ["Files", bytes(checkpoint?.file_bytes)],
    ["Read for each token", bytes(runs?.weight_bytes)],
    ["Context", `${count(context)} tokens`],
    ["Keys and values", runs?.kv_format && `${runs.kv_format}, ${bytes(runs.kv_token_bytes)} a token`],
    ["Room for them", runs?.num_kv_tokens && `${count(runs.num_kv_tokens)} tokens`],
    ["Threads", threads && [...new Set(threads)].join(", decode ")],
  ]);
}

function proof(check, figures) {
  const isVerified = typeof check === "string" && check.startsWith("verified");
  const line = make(
    "p",
    { className: isVerified ? "check-line good" : "check-line" },
    check ?? "Not verified: the server found no verification.json, or was told not to look.",
  );
  const title = make("h3", {}, "What compression cost");
  if (!figures) return [title, line];
  const converted = figures.converted ?? null;
  const shown = converted ? (figures.source ?? {}) : figures;
  return [
    title,
    line,
    ...(converted ? [make("p", { className: "note" }, conversion(converted))] : []),
    comparison(shown.compressed ?? {}, shown.original ?? {}),
    ...layers(shown.layer_errors),
    definitions([
      ["Recipe", shown.recipe],
      ["Inputs", shown.activations],
      ["Original", shown.hub && `${shown.hub.repository} at ${shown.hub.commit}`],
    ]),
    ...details("How it was measured", [
      make("p", {}, String(shown.protocol ?? "")),
      definitions(Object.entries(shown.versions ?? {})),
    ]),
    ...notes(shown.notes),
  ];
}

function conversion({ source, same_logits: isSame }) {
  const result = isSame ? "its logits are the source's, bit for bit" : "its logits differ from the source's";
  return `Converted from ${source}: ${result}. The figures are the source's.`;
}

function comparison(ours, theirs) {
  const rows = [
    ["Files", bytes, "file_bytes"],
    ["Bits per weight", decimal(2), "bits_per_weight"],
    ["In memory", bytes, "held_bytes"],
    ["Perplexity", decimal(3), "perplexity"],
    ["Bits per byte", decimal(4), "bits_per_byte"],
  ];
  const body = make("tbody");
  for (const [label, write, field] of rows) {
    const [own, other] = [write(ours[field]), write(theirs[field])];
    if (!own) continue;
    body.append(tableRow(label, other, own, relative(ours[field], theirs[field])));
  }
  for (const [label, write, field] of [
    ["KL divergence, nats", decimal(5), "kl_divergence"],
    ["Same first choice", percent, "top1_agreement"],
    ["Cosine, mean", decimal(6), "cosine_mean"],
    ["Cosine, least", decimal(6), "cosine_least"],
    ["Rank agreement", decimal(6), "rank_agreement"],
    ["Label agreement", percent, "label_agreement"],
  ]) {
    const own = write(ours[field]);
    if (own) body.append(tableRow(label, "", own, ""));
  }
  const head = ["", "Original", "This model", ""].map((text) => make("th", { attributes: { scope: "col" } }, text));
  return make("table", { className: "comparison" }, make("thead", {}, make("tr", {}, ...head)), body);
}

function tableRow(label, ...cells) {
  const head = make("th", { attributes: { scope: "row" } }, label);
  return make("tr", {}, head, ...cells.map((text) => make("td", {}, text)));
}

const relative = (own, other) => (other > 0 ? change(own / other - 1) : "");

// The relative error of each layer's output, as bars; the worst are named.
function layers(errors) {
  const known = Array.isArray(errors) ? errors.filter((one) => one && percent(one.own)) : [];
  if (!known.length) return [];
  const most = Math.max(...known.map(({ own }) => own));
  const bars = known.map(({ own }) => {
    const bar = make("span", { className: "column" });
    bar.style.height = `${most > 0 ? Math.max(4, (100 * own) / most) : 4}%`;
    return bar;
  });
  const worst = [...known].sort((one, other) => other.own - one.own).slice(0, NUM_WORST);
  const named = worst.map(({ layer, own }) => `${layer} (${percent(own)})`).join(", ");
  const rows = known.map(({ layer, own, accumulated }) => tableRow(String(layer), percent(own), percent(accumulated)));
  const head = ["Layer", "Own", "Accumulated"].map((text) => make("th", { attributes: { scope: "col" } }, text));
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows));
  return [
    make("p", { className: "meter-label" }, `Error of each layer's output, largest in layers ${named}`),
    make("div", { className: "columns", attributes: { "aria-hidden": "true" } }, ...bars),
    ...details("All layers", [table]),
  ];
}

function notes(texts) {
  if (!Array.isArray(texts) || !texts.length) return [];
  const items = texts.map((text) => make("li", {}, String(text)));
  return details(`Notes (${texts.length})`, [make("ul", {}, ...items)]);
}

function details(title, children) {
  return [make("details", { className: "more" }, make("summary", {}, title), ...children)];
}
