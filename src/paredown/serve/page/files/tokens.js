// The tokens of an answer: where each one stands in the text, and how likely it was.

import { make } from "./dom.js";

// A token as { text, logprob, bytes, top: [{ text, logprob, bytes }] }, of chat's or of completions'
// log-probabilities.
export function readTokens(logprobs) {
  if (!logprobs) return [];
  if (Array.isArray(logprobs.content)) return logprobs.content.map(ofChat);
  const { tokens = [], token_logprobs: own = [], top_logprobs: top = [] } = logprobs;
  return tokens.map((text, i) => ({
    text,
    bytes: null,
    logprob: own[i],
    top: Object.entries(top[i] ?? {}).map(([other, logprob]) => ({ text: other, logprob, bytes: null })),
  }));
}

function ofChat(row) {
  return { ...alone(row), top: (row.top_logprobs ?? []).map(alone) };
}

function alone({ token, logprob, bytes }) {
  return { text: token, logprob, bytes };
}

// Text that grows inside `place`, each token a span of its own. Several tokens that make one
// character share a span. Text whose tokens are not known is there all the same.
export class TokenText {
  constructor(place) {
    this.place = place;
    this.text = "";
    this.tokensOf = new Map();
    this.last = null;
    this.decoder = new TextDecoder();
    this.waitingText = "";
    this.waitingTokens = [];
    // Tokens that have given no text yet: parts of a character, or special ones.
    this.parts = [];
  }

  // Adds text, and tokens that come with it or shortly before it. A token whose text does not come
  // next was not shown: a marker of thoughts, or a stop text.
  add(text, tokens) {
    this.text += text;
    this.waitingText += text;
    for (const token of tokens) this.waitingTokens.push([token, this.textOf(token)]);
    while (this.waitingText) {
      if (!this.waitingTokens.length) {
        this.addPlain();
        return;
      }
      const [token, own] = this.waitingTokens[0];
      if (own && own !== this.waitingText && own.startsWith(this.waitingText)) return;
      this.waitingTokens.shift();
      if (!own) this.parts.push(token);
      else if (this.waitingText.startsWith(own)) this.addSpan(own, [...this.takeParts(), token]);
      else this.takeParts();
    }
  }

  // Shows what waited for more. Returns whether any token of the text is known.
  finish({ atEnd }) {
    this.addPlain();
    const end = this.waitingTokens.find(([, own]) => !own)?.[0] ?? this.parts.at(-1);
    if (atEnd && end && end.text === "") this.addSpan("", [end], "end");
    this.waitingTokens = [];
    return this.tokensOf.size > 0;
  }

  textOf(token) {
    if (!token.bytes) return token.text.startsWith("bytes:") ? "" : token.text;
    return this.decoder.decode(Uint8Array.from(token.bytes), { stream: true });
  }

  takeParts() {
    const parts = this.parts;
    this.parts = [];
    return parts;
  }

  addPlain() {
    if (this.waitingText) this.place.append(this.waitingText);
    this.waitingText = "";
  }

  addSpan(text, tokens, kind = "") {
    const span = make("span", { className: `token ${kind}`.trim(), attributes: { tabindex: "-1" } }, text);
    span.dataset.share = String(shareOf(Math.min(...tokens.map((token) => Math.exp(token.logprob)))));
    this.tokensOf.set(span, tokens);
    this.place.append(span);
    this.waitingText = this.waitingText.slice(text.length);
  }
}

// The shade of a probability, 4 for none.
function shareOf(probability) {
  return [0.05, 0.2, 0.5, 0.9].filter((bound) => probability >= bound).length;
}

// A token's text with signs for what cannot be seen.
export function visible({ text, bytes }) {
  if (text === "") return "(end or another special token)";
  if (text.includes("\ufffd") && bytes) {
    return `bytes ${bytes.map((byte) => byte.toString(16).padStart(2, "0")).join(" ")}`;
  }
  return text
    .replaceAll(" ", "\u00b7")
    .replaceAll("\n", "\u21b5")
    .replaceAll("\t", "\u21e5");
}

// What a screen reader says of the tokens of a span.
export function spoken(tokens, write) {
  return tokens.map((token) => {
    const others = token.top.filter((other) => other.text !== token.text).slice(0, 3);
    const told = others.map((other) => `${other.text.trim() || visible(other)} ${write(Math.exp(other.logprob))}`);
    const rest = told.length ? `; else ${told.join(", ")}` : "";
    return `${token.text.trim() || visible(token)}: ${write(Math.exp(token.logprob))}${rest}.`;
  }).join(" ");
}
