// Elements. Texts of a server, a model or a user become text nodes and never markup.

export function element(id) {
  return document.getElementById(id);
}

// Returns <tag class=...> with attributes and children; strings become text.
export function make(tag, { className = "", attributes = {} } = {}, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

export function makeSvg(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export function button(label, onClick, className = "plain") {
  const made = make("button", { className, attributes: { type: "button" } }, label);
  made.addEventListener("click", onClick);
  return made;
}

// A list of names with their values; entries without a value are left out.
export function definitions(entries) {
  const list = make("dl", { className: "facts" });
  for (const [name, value] of entries) {
    if (value === null || value === undefined || value === "") continue;
    list.append(make("dt", {}, name), make("dd", {}, value instanceof Node ? value : String(value)));
  }
  return list;
}
