// The page of an encoder: two texts are compared by what the model makes of them, or a text is
// labelled.

import { element, make } from "./dom.js";
import { count, decimal, percent, seconds } from "./numbers.js";
import { Frame } from "./frame.js";
import { ServerError, postJson } from "./server.js";

// By what the model makes: the title, what the figure means, the labels of the two fields.
const WORDS = {
  embedding: [
    "How alike are two texts?",
    "The cosine of their vectors: 1 for the same direction, about 0 for unrelated ones.",
    "First text",
    "Second text",
  ],
  token_vectors: [
    "How well does a document fit a query?",
    "The sum, over the query's tokens, of the best match among the document's tokens (late interaction).",
    "Query",
    "Document",
  ],
  sparse: [
    "How well does a document fit a query?",
    "The product of the weights that the model gives to words of its vocabulary.",
    "Query",
    "Document",
  ],
  rerank: ["How well does a document fit a query?", "The score of the reranker.", "Query", "Document"],
  classification: [
    "Which label has a text?",
    "The probability of each label. The second text makes a pair with the first; it may be left empty.",
    "Text",
    "Second text of a pair",
  ],
};

class Comparison {
  constructor() {
    this.kind = null;
    this.isRunning = false;
    this.frame = new Frame((report) => this.fit(report));
    element("compare").addEventListener("submit", (event) => {
      event.preventDefault();
      this.run();
    });
    element("first").focus();
  }

  fit({ makes, num_labels: numLabels }) {
    this.kind = makes === "classification" && numLabels === 1 ? "rerank" : makes;
    const [title, text, first, second] = WORDS[this.kind];
    element("compare-title").textContent = title;
    element("compare-text").textContent = text;
    element("first-label").textContent = first;
    element("second-label").textContent = second;
    const isLabels = this.kind === "classification";
    element("second").required = !isLabels;
    element("send").textContent = isLabels ? "Label" : "Compare";
  }

  async run() {
    if (this.isRunning || this.kind === null) return;
    this.isRunning = true;
    this.tell("");
    const startedMs = performance.now();
    try {
      const [nodes, usage] = await this.ask(element("first").value, element("second").value);
      const took = `${count(usage?.prompt_tokens)} tokens in ${seconds((performance.now() - startedMs) / 1000)}`;
      element("result").replaceChildren(...nodes, make("p", { className: "note" }, took));
    } catch (failure) {
      if (!(failure instanceof ServerError)) throw failure;
      element("result").replaceChildren();
      this.tell(failure.message);
      this.frame.noteFailure(failure);
    } finally {
      this.isRunning = false;
    }
  }

  async ask(first, second) {
    if (this.kind === "embedding") {
      const found = await postJson("v1/embeddings", { input: [first, second] });
      const [one, other] = found.data.map(({ embedding }) => embedding);
      return [[...figure("Cosine", cosine(one, other), 1), size(one)], found.usage];
    }
    if (this.kind === "classification") {
      const input = second ? [{ text: first, text_pair: second }] : first;
      const found = await postJson("v1/classify", { input });
      return [labels(found.data[0]), found.usage];
    }
    const found = await postJson("v1/score", { text_1: first, text_2: second });
    return [figure("Score", found.data[0].score, null), found.usage];
  }

  tell(problem) {
    element("problem").textContent = problem;
    element("problem").hidden = !problem;
  }
}

function cosine(one, other) {
  const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
  return dot(one, other) / Math.sqrt(dot(one, one) * dot(other, other));
}

function figure(label, value, most) {
  const head = make("p", { className: "rate" }, make("span", {}, label), " ");
  head.append(make("b", { className: "speed" }, decimal(4)(value)));
  return most === null ? [head] : [head, track(Math.max(0, value) / most)];
}

function size(vector) {
  return make("p", { className: "note" }, `Vectors of ${count(vector.length)} numbers`);
}

function labels({ label, probs }) {
  const best = make("p", { className: "rate" }, make("b", { className: "speed" }, String(label)));
  const rows = probs.map((share, number) =>
    make("div", { className: "label-row" }, make("span", {}, `${number}: ${percent(share)}`), track(share)),
  );
  return [best, ...rows];
}

function track(share) {
  const fill = make("span", { className: "fill" });
  fill.style.width = `${(100 * Math.min(1, share)).toFixed(1)}%`;
  return make("div", { className: "track wide", attributes: { "aria-hidden": "true" } }, fill);
}

new Comparison();
