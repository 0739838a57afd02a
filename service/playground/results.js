// An answer as a page: how long it took, the order given beside the new one, the documents, and the request for a shell.

import { byId, copy, count, make, milliseconds, some } from "./dom.js";
import { cardOf, moveOf, openCard, scoreOf } from "./cards.js";
import { curlOf } from "./service.js";
import { lineOf, nothingOf, verdictOf } from "./threshold.js";
import { opening, wordsIn } from "./text.js";

const OPENED = 3; // cards whose text is shown at once
const SHOWN = 20_000; // characters of a long request or answer

const nameOf = ({ title, text }) => title || opening(text) || "(empty)";

/** A result with what the page knows of its document. */
function placedOf(request, answer) {
  return answer.results.map((result, place) => {
    const document = request.documents[result.index];
    return { ...result, place, text: document.text, name: nameOf(document), blocks: result.blocks ?? [], spans: result.relevant_spans ?? [] };
  });
}

const STAGES = ["parse", "prepare", "select", "queue", "model", "second_look", "upstream", "aggregate", "respond"];

function timingsOf({ timings_ms: { total, ...timings } }, elapsed) {
  const stages = Object.entries(timings).sort(([a], [b]) => STAGES.indexOf(a) - STAGES.indexOf(b));
  const term = (className, name, ms) => make("div", {}, make("dt", { className, textContent: name }), make("dd", { textContent: milliseconds(ms) }));
  const terms = [...stages.map(([name, ms]) => term("stage", name, ms)), term("total", "total", total), term("", "round trip", elapsed)];
  return make("dl", { className: "timings", attributes: { "aria-label": "Time by stage" } }, ...terms);
}

/** What was read, and what of it the model read. */
function summaryOf(request, answer) {
  const words = request.documents.reduce((sum, { text }) => sum + wordsIn(text), 0);
  const parts = [
    "Read ",
    make("strong", { textContent: some(words, "word") }),
    ` in ${some(request.documents.length, "document")}; the model read `,
    make("strong", { textContent: some(answer.usage.total_tokens, "token") }),
    make("span", { className: "model-name", textContent: answer.model }),
  ];
  return make("p", { className: "summary" }, ...parts);
}

function warningsOf({ degraded, warnings }) {
  if (!degraded && !warnings.length) return null;
  const head = degraded ? "Degraded: this order is cheaper than usual" : some(warnings.length, "warning");
  return make(
    "div",
    { className: `notice warn${degraded ? " degraded" : ""}` },
    make("strong", { textContent: head }),
    make("ul", {}, ...warnings.map((warning) => make("li", { textContent: warning }))),
  );
}

function ordersOf(request, placed) {
  const ranked = new Set(placed.map(({ index }) => index));
  const before = request.documents.map((document, index) =>
    make("li", { className: ranked.has(index) ? "" : "left-out" }, make("span", { className: "name", dir: "auto", textContent: nameOf(document) })),
  );
  const after = placed.map((result) =>
    make(
      "li",
      {},
      make("a", { href: `#result-${result.index}`, className: "name", dir: "auto", textContent: result.name, onclick: () => openCard(result.index) }),
      moveOf(result),
      make("span", { className: "score", textContent: scoreOf(result) }),
    ),
  );
  return make(
    "section",
    { className: "orders", attributes: { "aria-label": "The order given, and the new one" } },
    make("div", {}, make("h3", { textContent: "First stage" }), make("ol", { className: "before" }, ...before)),
    make("div", {}, make("h3", { textContent: "KeyBlock" }), make("ol", { className: "after" }, ...after)),
  );
}

function copyButton(text) {
  const button = make("button", { type: "button", className: "copy", textContent: "Copy" });
  button.addEventListener("click", () => {
    button.textContent = copy(text) ? "Copied" : "The browser forbids it";
    byId("status").textContent = button.textContent;
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
  return button;
}

/** Something to copy, folded away; of a long text the start is shown, and all of it copied. */
function folded(id, title, text) {
  const shown = text.length > SHOWN ? `${text.slice(0, SHOWN)}\n… ${count(text.length - SHOWN)} characters more: Copy has all` : text;
  const body = make("pre", { tabIndex: 0, attributes: { "aria-label": title, role: "region" } }, make("code", { textContent: shown }));
  return make("details", { id, className: "folded" }, make("summary", { textContent: title }), make("div", { className: "code" }, copyButton(text), body));
}

/** The cards, with the line of the threshold among them. */
function cardsOf(placed, verdict) {
  const cards = placed.flatMap((result) => {
    const card = cardOf(result, result.place < OPENED, verdict.reached[result.place] === false);
    return result.place === verdict.first ? [lineOf(verdict), card] : [card];
  });
  return make("div", { className: "cards" }, ...cards);
}

/** Shows an answer in place of the last; `info` is what /info says, null where it says nothing. */
export function show(request, answer, elapsed, keyed, info) {
  const placed = placedOf(request, answer);
  const verdict = verdictOf(placed, info, answer.model);
  const parts = [
    summaryOf(request, answer),
    timingsOf(answer.meta, elapsed),
    warningsOf(answer.meta),
    nothingOf(verdict),
    ordersOf(request, placed),
    cardsOf(placed, verdict),
    folded("curl", "The same with curl", curlOf(request, keyed)),
    folded("json", "The answer as JSON", JSON.stringify(answer, null, 1)),
  ];
  byId("results").replaceChildren(...parts.filter(Boolean));
  byId("results").hidden = false;
  byId("welcome").hidden = true;
  const first = placed.length ? `, first: ${placed[0].name}` : "";
  byId("status").textContent = `${some(request.documents.length, "document")} ranked in ${milliseconds(answer.meta.timings_ms.total)}${first}${verdict.nothing ? `. ${verdict.nothing}` : ""}`;
}
