// Requests to the server that this page came from. Paths are relative, so that it works behind a
// proxy that serves it beneath a folder.

const KEY = "paredown-key";

// What the server, or the connection, said in place of an answer. Status 0: there was no answer.
export class ServerError extends Error {
  constructor(status, message, retryAfterS = null) {
    super(message);
    this.status = status;
    this.retryAfterS = retryAfterS;
  }
}

export function readKey() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return memory.key;
  }
}

// Keeps the key until the tab is closed; where the browser keeps nothing, until the page is left.
export function keepKey(key) {
  memory.key = key;
  try {
    if (key) sessionStorage.setItem(KEY, key);
    else sessionStorage.removeItem(KEY);
  } catch {
    // It is in memory.
  }
}

const memory = { key: "" };

// Returns "ready", "loading", "stalled" and so on, or "unreachable".
export async function health() {
  try {
    const response = await fetch("health", { cache: "no-store", credentials: "omit" });
    return String((await response.json()).status);
  } catch {
    return "unreachable";
  }
}

export async function getJson(path) {
  return (await ask(path, {})).json();
}

export async function getText(path) {
  return (await ask(path, {})).text();
}

export async function postJson(path, body) {
  return (await post(path, body)).json();
}

// Yields the objects of an event stream. Ends with [DONE], and throws ServerError without it.
export async function* postStream(path, body, signal) {
  const response = await post(path, body, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (true) {
    const { value, done } = await read(reader);
    if (done) throw new ServerError(0, "The connection broke before the answer was complete.");
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = dataOf(event);
      if (data === "[DONE]") return;
      if (!data) continue;
      const found = JSON.parse(data);
      if (found.error) throw new ServerError(Number(found.error.status) || 500, messageOf(found));
      yield found;
    }
  }
}

async function read(reader) {
  try {
    return await reader.read();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError(0, "The connection broke before the answer was complete.");
  }
}

function dataOf(event) {
  const lines = event.split("\n").filter((line) => line.startsWith("data:"));
  return lines.map((line) => line.slice(5).trimStart()).join("\n");
}

function post(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return ask(path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

async function ask(path, options) {
  const key = readKey();
  const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  let response;
  try {
    response = await fetch(path, { cache: "no-store", credentials: "omit", ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError(0, "The server does not answer.");
  }
  if (response.ok) return response;
  const retryAfterS = Number(response.headers.get("Retry-After")) || null;
  const found = await response.json().catch(() => null);
  throw new ServerError(response.status, messageOf(found) || `Status ${response.status}.`, retryAfterS);
}

function messageOf(body) {
  const message = body?.error?.message;
  return typeof message === "string" ? message : "";
}
