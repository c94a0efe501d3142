// The card beside a token: its probability, and what else could have come there. It is shown for the
// token under the pointer, the tapped one, and the one that the arrow keys are on.

import { element, make } from "./dom.js";
import { probability } from "./numbers.js";
import { spoken, visible } from "./tokens.js";

const HIDE_AFTER_MS = 150;
const MARGIN = 8;

export class TokenCard {
  // `announce` says a text to screen readers.
  constructor(announce) {
    this.card = element("token-card");
    this.announce = announce;
    this.timer = null;
    this.span = null;
    this.card.addEventListener("pointerenter", () => clearTimeout(this.timer));
    this.card.addEventListener("pointerleave", () => this.hideSoon());
    addEventListener("resize", () => this.hide());
    document.addEventListener("scroll", () => this.follow(), { capture: true, passive: true });
    document.addEventListener("pointerdown", (event) => {
      if (!event.target.closest(".token, .card")) this.hide();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.hide();
    });
  }

  // Lets the tokens of `text` (a TokenText) be pointed at, tapped, and walked with the keyboard;
  // Escape goes back to `origin`.
  serve(text, origin) {
    const { place, tokensOf } = text;
    const spanOf = (event) => event.target.closest(".token");
    place.addEventListener("pointerover", (event) => {
      const span = spanOf(event);
      if (span) this.show(span, tokensOf.get(span), event);
    });
    place.addEventListener("pointerout", () => this.hideSoon());
    place.addEventListener("click", (event) => {
      const span = spanOf(event);
      if (span) this.show(span, tokensOf.get(span), event);
    });
    place.addEventListener("focusin", (event) => {
      const span = spanOf(event);
      if (!span) return;
      this.show(span, tokensOf.get(span), null);
      this.announce(spoken(tokensOf.get(span), probability));
    });
    place.addEventListener("keydown", (event) => this.walk(event, [...tokensOf.keys()], origin));
  }

  walk(event, spans, origin) {
    const here = spans.indexOf(document.activeElement);
    if (here < 0) return;
    const steps = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: spans.length - 1 };
    if (event.key === "Escape") {
      this.hide();
      origin().focus();
    } else if (event.key in steps) {
      const next = Math.max(0, Math.min(spans.length - 1, steps[event.key]));
      spans[next].focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  show(span, tokens, pointer) {
    clearTimeout(this.timer);
    this.card.replaceChildren(...tokens.map(describe));
    this.card.hidden = false;
    this.span?.classList.remove("pointed");
    this.span = span;
    span.classList.add("pointed");
    this.putBeside(boxAt(span, pointer));
  }

  // Stays with its token when the text moves.
  follow() {
    if (!this.card.hidden) this.putBeside(boxAt(this.span, null));
  }

  // Puts the card below the box, or above it where there is no room.
  putBeside(box) {
    const { offsetWidth: width, offsetHeight: height } = this.card;
    const left = Math.min(box.left, innerWidth - width - MARGIN);
    const below = box.bottom + MARGIN;
    const fits = below + height + MARGIN <= innerHeight;
    this.card.style.left = `${Math.max(MARGIN, left)}px`;
    this.card.style.top = `${fits ? below : Math.max(MARGIN, box.top - height - MARGIN)}px`;
  }

  hideSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.hide(), HIDE_AFTER_MS);
  }

  hide() {
    clearTimeout(this.timer);
    this.span?.classList.remove("pointed");
    this.card.hidden = true;
  }
}

// A token that is broken over two lines has two boxes.
function boxAt(span, pointer) {
  const boxes = [...span.getClientRects()];
  const isUnder = (box) => pointer && pointer.clientY >= box.top && pointer.clientY <= box.bottom;
  return boxes.find(isUnder) ?? boxes[0] ?? span.getBoundingClientRect();
}

function describe(token) {
  const others = token.top.some((other) => other.text === token.text) ? token.top : [token, ...token.top];
  const rows = others.map((other) => row(other, other.text === token.text));
  const title = make("p", { className: "card-title" }, make("code", {}, visible(token)));
  title.append(make("span", {}, probability(Math.exp(token.logprob))));
  return make("section", {}, title, make("div", { className: "bars" }, ...rows));
}

function row(token, isChosen) {
  const share = Math.exp(token.logprob);
  const fill = make("span", { className: "fill" });
  fill.style.width = `${(100 * share).toFixed(1)}%`;
  return make(
    "div",
    { className: isChosen ? "bar chosen" : "bar" },
    make("code", {}, visible(token)),
    make("span", { className: "track" }, fill),
    make("span", { className: "figure" }, probability(share)),
  );
}
