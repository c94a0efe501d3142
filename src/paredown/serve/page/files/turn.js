// A turn of the conversation, as the page shows it.

import { button, make } from "./dom.js";
import { count, rate, seconds } from "./numbers.js";
import { TokenText, readTokens } from "./tokens.js";

// Why an answer ended, where that is not its own end.
const ENDINGS = {
  length: "cut at its greatest length",
  stopped: "stopped",
  content_filter: "filtered",
};

export class UserTurn {
  constructor(text) {
    this.role = "user";
    this.text = text;
    this.buttons = make("span", { className: "buttons" });
    this.node = make(
      "li",
      { className: "turn user" },
      make("p", { className: "who unseen" }, "You:"),
      make("div", { className: "said" }, text),
      make("div", { className: "below" }, this.buttons),
    );
  }
}

export class AnswerTurn {
  // `card` shows the tokens' probabilities.
  constructor(card) {
    this.role = "assistant";
    this.said = make("div", { className: "said", attributes: { "aria-busy": "true" } });
    this.thought = make("div", { className: "said" });
    this.thoughts = make("details", { className: "thoughts" }, make("summary", {}, "Thoughts"), this.thought);
    this.thoughts.hidden = true;
    this.words = new TokenText(this.said);
    this.thoughtWords = new TokenText(this.thought);
    this.figures = make("span", { className: "figures" });
    this.inspect = button("Inspect tokens", () => this.goToTokens());
    this.inspect.hidden = true;
    this.buttons = make("span", { className: "buttons" }, this.inspect);
    for (const text of [this.words, this.thoughtWords]) card.serve(text, () => this.inspect);
    this.node = make(
      "li",
      { className: "turn answer busy" },
      make("p", { className: "who unseen" }, "Model:"),
      this.thoughts,
      this.said,
      make("div", { className: "below" }, this.figures, this.buttons),
    );
    this.startedMs = performance.now();
    this.firstMs = null;
    this.lastMs = null;
    this.numTokens = 0;
    this.usage = null;
    this.ending = null;
    // What came and is not shown yet.
    this.waiting = [];
  }

  get text() {
    return this.words.text;
  }

  // Takes an event of the stream, of chat or of completions; `show` shows it.
  take(event) {
    if (event.usage) this.usage = event.usage;
    const choice = event.choices?.[0];
    if (!choice) return;
    const thought = choice.delta?.reasoning_content ?? choice.delta?.reasoning ?? "";
    const text = choice.delta ? (choice.delta.content ?? "") : (choice.text ?? "");
    const tokens = readTokens(choice.logprobs);
    if (text || thought || tokens.length) {
      this.lastMs = performance.now();
      this.firstMs ??= this.lastMs;
      this.numTokens += tokens.length || 1;
      this.waiting.push({ thought, text, tokens });
    }
    if (choice.finish_reason) this.ending = choice.finish_reason;
  }

  show() {
    for (const { thought, text, tokens } of this.waiting) {
      if (thought) {
        this.thoughts.hidden = false;
        this.thoughtWords.add(thought, text ? [] : tokens);
      }
      if (text || !thought) this.words.add(text, tokens);
    }
    this.waiting = [];
    this.figures.textContent = this.numbers().join(" · ");
  }

  // `ending` is the reason of a stop or of a failure, where there was one.
  finish(ending) {
    this.ending = ending ?? this.ending;
    this.show();
    this.thoughtWords.finish({ atEnd: false });
    const knowsTokens = this.words.finish({ atEnd: this.ending === "stop" });
    this.inspect.hidden = !knowsTokens;
    this.said.removeAttribute("aria-busy");
    this.node.classList.remove("busy");
    if (!this.text && this.ending !== "failed") this.said.append(make("em", {}, "(an empty answer)"));
    this.figures.textContent = this.numbers().join(" · ");
  }

  numbers() {
    const numTokens = this.usage?.completion_tokens ?? this.numTokens;
    if (!numTokens) return [ENDINGS[this.ending] ?? ""].filter(Boolean);
    const streamS = (this.lastMs - this.firstMs) / 1000;
    const perS = numTokens > 1 && streamS > 0 ? (numTokens - 1) / streamS : null;
    return [
      `${count(numTokens)} ${numTokens === 1 ? "token" : "tokens"}`,
      perS ? `${rate(perS)} tokens/s` : "",
      `first after ${seconds((this.firstMs - this.startedMs) / 1000)}`,
      ENDINGS[this.ending] ?? "",
    ].filter(Boolean);
  }

  goToTokens() {
    const [first] = this.words.tokensOf.keys();
    first?.focus();
  }
}
