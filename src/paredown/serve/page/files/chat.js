// The page of a model that generates: a conversation, or a text that goes on where there is no chat
// template.

import { button, element } from "./dom.js";
import { count } from "./numbers.js";
import { Frame } from "./frame.js";
import { ServerError, postStream } from "./server.js";
import { Settings } from "./settings.js";
import { TokenCard } from "./token_card.js";
import { AnswerTurn, UserTurn } from "./turn.js";

// A reader who is this close to the end is taken along by an answer that grows.
const NEAR_END_PX = 80;
// Tokens may come faster than a browser can lay out a long answer.
const SHOW_EVERY_MS = 40;
// Completions end after 16 tokens where nothing is asked.
const TEXT_TOKENS = 256;

class Chat {
  constructor() {
    this.turns = [];
    this.running = null;
    this.showing = null;
    this.isChat = true;
    this.maxTokens = null;
    this.list = element("turns");
    this.scroller = element("conversation");
    this.message = element("message");
    this.problem = element("problem");
    this.settings = new Settings();
    this.card = new TokenCard((text) => this.announce(text));
    this.frame = new Frame((report) => this.fit(report));
    this.listen();
    this.message.focus();
  }

  listen() {
    element("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    this.message.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.send();
    });
    this.message.addEventListener("input", () => this.fitMessage());
    element("stop").addEventListener("click", () => this.stop());
    element("new-chat").addEventListener("click", () => this.startAgain());
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !event.defaultPrevented) this.stop();
    });
  }

  // Takes what the server says of its model.
  fit(report) {
    this.isChat = report.has_chat_template !== false;
    this.maxTokens = report.max_tokens;
    if (report.reads_last_turn) {
      element("empty-text").textContent =
        "This model has no chat template: it answers each message by itself, " +
        "and reads no earlier ones. Nothing is kept: a chat ends with its tab.";
    }
    if (this.isChat) return;
    this.settings.form.elements.system.closest("label").hidden = true;
    element("empty-title").textContent = "Begin a text.";
    element("empty-text").textContent =
      "This model has no chat template: it goes on with what you write. " +
      "Nothing is kept: a text ends with its tab.";
    this.message.placeholder = "Write the beginning";
    element("message-label").textContent = "Text to go on with";
    element("new-chat").textContent = "New text";
  }

  send() {
    const text = this.message.value;
    const isEmpty = !text.trim() && (this.isChat || !this.turns.length);
    if (this.running || isEmpty || !this.check()) return;
    if (text) this.add(new UserTurn(text));
    this.message.value = "";
    this.fitMessage();
    this.answer();
  }

  // Returns whether the settings can be sent; says so otherwise.
  check() {
    const wrong = this.settings.firstInvalid();
    if (wrong) this.tell(`The setting “${wrong}” is not in its range.`);
    else this.tell("");
    return !wrong;
  }

  async answer() {
    const turn = new AnswerTurn(this.card);
    const body = this.body();
    this.add(turn);
    this.setRunning(new AbortController());
    this.announce("The model is answering.");
    let failure = null;
    try {
      const path = this.isChat ? "v1/chat/completions" : "v1/completions";
      for await (const event of postStream(path, body, this.running.signal)) {
        turn.take(event);
        this.showing ??= setTimeout(() => this.show(turn), SHOW_EVERY_MS);
      }
    } catch (error) {
      failure = error;
    }
    this.finish(turn, failure);
  }

  show(turn) {
    this.showing = null;
    const follows = this.isNearEnd();
    turn.show();
    if (follows) this.goToEnd();
  }

  finish(turn, failure) {
    clearTimeout(this.showing);
    this.showing = null;
    const isStop = failure?.name === "AbortError";
    const follows = this.isNearEnd();
    turn.finish(failure ? (isStop ? "stopped" : "failed") : null);
    this.setRunning(null);
    if (failure && !isStop && !turn.text) this.remove(turn);
    this.showButtons();
    if (follows) this.goToEnd();
    this.showContext(turn);
    if (failure && !isStop) this.fail(failure);
    else this.announce(`${isStop ? "Stopped" : "Answer"}: ${turn.text || "empty"}`);
  }

  fail(failure) {
    const isOwn = !(failure instanceof ServerError);
    if (isOwn) console.error(failure);
    const when = failure.retryAfterS ? ` Try again in ${failure.retryAfterS} s.` : "";
    const said = isOwn ? "This page failed; the browser's console has the details." : failure.message;
    this.tell(said + when, button("Try again", () => this.again()));
    if (!isOwn) this.frame.noteFailure(failure);
  }

  body() {
    const fields = { ...this.settings.fields(this.isChat), stream: true, stream_options: { include_usage: true } };
    const texts = this.turns.filter((turn) => turn.text);
    if (!this.isChat) {
      return { prompt: texts.map((turn) => turn.text).join(""), max_tokens: TEXT_TOKENS, ...fields };
    }
    const messages = texts.map(({ role, text }) => ({ role, content: text }));
    if (this.settings.system) messages.unshift({ role: "system", content: this.settings.system });
    return { messages, ...fields };
  }

  // Answers the last message once more.
  again() {
    if (this.running || !this.check()) return;
    const last = this.turns.at(-1);
    if (last instanceof AnswerTurn) this.remove(last);
    if (this.turns.length) this.answer();
    this.message.focus();
  }

  // Puts the user's last text back into the field.
  edit() {
    if (this.running) return;
    while (this.turns.length) {
      const turn = this.turns.at(-1);
      this.remove(turn);
      if (turn instanceof UserTurn) {
        this.message.value = turn.text;
        break;
      }
    }
    this.showButtons();
    this.fitMessage();
    this.message.focus();
  }

  stop() {
    if (!this.running) return;
    this.running.abort();
    this.message.focus();
  }

  startAgain() {
    this.stop();
    for (const turn of [...this.turns]) this.remove(turn);
    this.tell("");
    element("context-use").textContent = "";
    this.announce("A new conversation.");
    this.message.focus();
  }

  add(turn) {
    this.turns.push(turn);
    this.list.append(turn.node);
    element("empty").hidden = true;
    this.showButtons();
    this.goToEnd();
  }

  remove(turn) {
    this.turns = this.turns.filter((one) => one !== turn);
    turn.node.remove();
    element("empty").hidden = this.turns.length > 0;
  }

  // The last answer may be given again and the last message edited; every answer may be copied.
  showButtons() {
    const isIdle = !this.running;
    const lastUser = this.turns.findLast((turn) => turn instanceof UserTurn);
    for (const turn of this.turns) {
      const own = turn instanceof AnswerTurn ? [turn.inspect] : [];
      if (isIdle && turn.text) own.push(copyButton(turn, (text) => this.announce(text)));
      if (isIdle && turn instanceof AnswerTurn && turn === this.turns.at(-1)) {
        own.push(button("Answer again", () => this.again()));
      }
      if (isIdle && turn === lastUser) own.push(button("Edit", () => this.edit()));
      turn.buttons.replaceChildren(...own);
    }
  }

  setRunning(controller) {
    this.running = controller;
    element("send").hidden = controller !== null;
    element("stop").hidden = controller === null;
  }

  showContext(turn) {
    if (!turn.usage) return;
    const { total_tokens: used } = turn.usage;
    const most = this.maxTokens ? ` of ${count(this.maxTokens)}` : "";
    element("context-use").textContent = `${count(used)}${most} tokens of context`;
  }

  tell(problem, ...more) {
    this.problem.replaceChildren(...(problem ? [problem, " ", ...more] : []));
    this.problem.hidden = !problem;
  }

  announce(text) {
    element("announcer").textContent = text;
  }

  fitMessage() {
    this.message.style.height = "auto";
    this.message.style.height = `${this.message.scrollHeight + 2}px`;
  }

  isNearEnd() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    return scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
  }

  goToEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }
}

function copyButton(turn, announce) {
  const made = button("Copy", async () => {
    try {
      await navigator.clipboard.writeText(turn.text);
      made.textContent = "Copied";
      announce("Copied.");
    } catch {
      // Without HTTPS a browser has no clipboard for pages of other machines.
      getSelection().selectAllChildren(turn.node.querySelector(":scope > .said"));
      made.textContent = "Selected";
      announce("The browser does not let this page copy; the text is selected.");
    }
    setTimeout(() => (made.textContent = "Copy"), 2000);
  });
  return made;
}

new Chat();
