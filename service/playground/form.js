// The form: its documents and options, read and filled, and the problem that stands at a field until the next request.

import { byId, count, make, some } from "./dom.js";
import { directionOf, wordsIn } from "./text.js";

const NUMBERS = ["max_tokens_per_doc", "deadline_ms", "top_n"];
const OPTIONS = [...NUMBERS, "model"];
const SHORT = { max_tokens_per_doc: "tokens", deadline_ms: "ms", top_n: "results", model: "" };
const documents = byId("documents");
const ids = new WeakMap(); // of the documents that came with one
let sent = []; // the boxes of the last request, in its order
const PROBLEM = "field-problem";

/** A problem of a field of this name. */
const fieldError = (message, name) => Object.assign(new Error(message), { path: [name] });

const field = (item, name) => item.querySelector(`.${name}`);

function renumber() {
  [...documents.children].forEach((item, place) => {
    const number = place + 1;
    field(item, "number").textContent = number;
    field(item, "title").setAttribute("aria-label", `Title of document ${number}, if it has one`);
    field(item, "text").setAttribute("aria-label", `Text of document ${number}`);
    field(item, "remove").setAttribute("aria-label", `Remove document ${number}`);
  });
  byId("count").textContent = count(documents.children.length);
  byId("clear").hidden = documents.children.length < 2;
}

const recount = (item) => {
  field(item, "text").dir = directionOf(field(item, "text").value);
  field(item, "words").textContent = some(wordsIn(field(item, "text").value), "word");
};

function remove(item) {
  const next = item.nextElementSibling ?? item.previousElementSibling;
  item.remove();
  renumber();
  (next ? field(next, "text") : byId("add")).focus();
}

function itemOf({ id, title = "", text = "" }) {
  const item = make(
    "li",
    {},
    make(
      "div",
      { className: "line" },
      make("span", { className: "number", attributes: { "aria-hidden": "true" } }),
      make("input", { className: "title", dir: "auto", value: title, placeholder: "Title, if any", autocomplete: "off" }),
      make("span", { className: "words" }),
      make("button", { type: "button", className: "remove quiet", textContent: "×", onclick: () => remove(item) }),
    ),
    make("textarea", { className: "text", rows: 3, value: text, spellcheck: false, placeholder: "Paste a document" }),
  );
  field(item, "text").addEventListener("input", () => recount(item));
  if (id !== undefined && id !== null) ids.set(item, id);
  recount(item);
  return item;
}

/** Puts documents behind those that are there; boxes that nobody has written in make room. */
export function addDocuments(added) {
  for (const item of [...documents.children]) {
    if (!field(item, "text").value && !field(item, "title").value) item.remove();
  }
  for (const one of added) documents.append(itemOf(one)); // not spread: a call has at most some 120,000 arguments
  renumber();
}

/** An empty box, ready to be pasted into. */
export function addEmpty() {
  const item = itemOf({});
  documents.append(item);
  renumber();
  field(item, "text").focus();
}

/** One empty box in place of all. */
export function clearDocuments() {
  documents.replaceChildren(itemOf({}));
  renumber();
  field(documents.firstElementChild, "text").focus();
}

/** Fills the form; what was in it goes. */
export function fill({ query, documents: given }) {
  byId("query").value = query;
  documents.replaceChildren(...given.map(itemOf));
  renumber();
}

const documentIn = (item) => ({ id: ids.get(item), title: field(item, "title").value.trim(), text: field(item, "text").value });

/** The field that a path into the request leads to, as in ["documents", 3, "text"]; undefined where there is none. */
export function fieldAt([name, place, part]) {
  if (name === "documents") return sent[place] ? field(sent[place], part === "title" ? part : "text") : (documents.querySelector(".text") ?? byId("add"));
  return ["query", "key", ...OPTIONS].includes(name) ? byId(name) : undefined;
}

/** The request in the form. Empty boxes are no documents. Raises Error for what is no number, or cannot be a key. */
export function read() {
  const key = byId("key").value.trim();
  if (/[^!-~]/.test(key)) throw fieldError("API key: it has a character that a header cannot carry", "key");
  sent = [...documents.children].filter((item) => field(item, "title").value.trim() || field(item, "text").value);
  return {
    query: byId("query").value,
    documents: sent.map(documentIn),
    options: Object.fromEntries(OPTIONS.map((name) => [name, optionIn(name)])),
    key,
  };
}

function optionIn(name) {
  const input = byId(name);
  if (input.validity.badInput) throw fieldError(`${name}: not a number`, name);
  return NUMBERS.includes(name) && input.value !== "" ? Number(input.value) : input.value.trim();
}

/** Says beside "Options" which are chosen, since they may be folded away. */
export function tellOptions() {
  const chosen = OPTIONS.filter((name) => byId(name).value).map((name) => `${byId(name).value} ${SHORT[name]}`.trim());
  byId("chosen").textContent = [...chosen, ...(byId("key").value ? ["key"] : [])].join(" · ");
}

/** Fits the form to what /info says is served. */
export function suit({ model, models = [], tokens_per_document: tokens }) {
  byId("models").replaceChildren(...models.map((one) => make("option", { value: one.model })));
  byId("model").placeholder = model ?? "";
  if (tokens) byId("max_tokens_per_doc").placeholder = `${tokens.default} (${tokens.least} to ${tokens.most})`;
}

/** Shows the problem at the field, and goes there. */
export function mark(field, message) {
  field.setAttribute("aria-invalid", "true");
  field.setAttribute("aria-errormessage", PROBLEM);
  field.after(make("span", { id: PROBLEM, className: PROBLEM, textContent: message }));
  const folded = field.closest("details");
  if (folded) folded.open = true;
  field.focus();
}

/** Takes the mark away. */
export function unmark() {
  byId(PROBLEM)?.remove();
  for (const field of document.querySelectorAll("[aria-invalid]")) {
    field.removeAttribute("aria-invalid");
    field.removeAttribute("aria-errormessage");
  }
}
