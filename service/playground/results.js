// An answer as a page: how long it took, the order given beside the new one, the documents, and the request for a shell.

import { byId, copy, count, draw, make, milliseconds, some, vary } from "./dom.js";
import { cardOf, moveOf, openCard, scoreOf } from "./cards.js";
import { curlOf } from "./service.js";
import { lineOf, nothingOf, verdictOf } from "./threshold.js";
import { indexAfter, opening, tokensAbout, unitsOf, wordsIn } from "./text.js";

const OPENED = 3; // cards whose text is shown at once
const OTHER_READS = 512; // tokens of the query, the document and three marks between them
const MARKS = 3;
const SHOWN = 20_000; // characters of a long request or answer

/** A result with what the page knows of its document. */
function placedOf(request, answer) {
  const room = Math.max(0, OTHER_READS - MARKS - tokensAbout(request.query));
  return answer.results.map((result, place) => {
    const { title = "", text } = request.documents[result.index];
    return { ...result, place, text, name: title || opening(text) || "(empty)", blocks: result.blocks ?? [], spans: result.relevant_spans ?? [], seen: indexAfter(text, room) };
  });
}

const STAGES = ["parse", "prepare", "select", "queue", "model", "upstream", "aggregate", "respond"];

function timingsOf({ timings_ms: timings }, elapsed) {
  const stages = Object.entries(timings).filter(([name]) => name !== "total");
  stages.sort(([a], [b]) => STAGES.indexOf(a) - STAGES.indexOf(b));
  const bar = stages.map(([name, ms]) => vary(make("span", { className: `stage ${name}`, title: `${name} ${milliseconds(ms)}` }), { ms }));
  const terms = stages.map(([name, ms]) =>
    make("div", {}, make("dt", { className: `stage ${name}`, textContent: name }), make("dd", { textContent: milliseconds(ms) })),
  );
  terms.push(
    make("div", { className: "total" }, make("dt", { textContent: "total" }), make("dd", { textContent: milliseconds(timings.total) })),
    make("div", {}, make("dt", { textContent: "round trip" }), make("dd", { textContent: milliseconds(elapsed) })),
  );
  return make(
    "div",
    { className: "timings", attributes: { role: "group", "aria-label": "Time by stage" } },
    make("div", { className: "bar", attributes: { "aria-hidden": "true" } }, ...bar),
    make("dl", {}, ...terms),
  );
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

/** "In 3 of 5 documents the best block ..." */
function beyondOf(placed) {
  const read = placed.filter(({ blocks }) => blocks.length);
  const beyond = read.filter(isBeyond);
  if (!beyond.length) return null;
  return make(
    "p",
    { className: "beyond" },
    "In ",
    make("strong", { textContent: `${beyond.length} of ${read.length}` }),
    " documents the best block lies beyond token 512 (estimated), where most rerankers stop reading.",
  );
}

const isBeyond = ({ blocks, text, seen }) => blocks.length > 0 && unitsOf(text, [blocks[0].start])[0] >= seen;

const STEP = 28; // as --step in the style sheet
const WIDTH = 100;

function linesOf(placed, rows) {
  const paths = placed.map(({ index, place }) => {
    const [from, to] = [index, place].map((row) => (row + 0.5) * STEP);
    const kind = place < index ? "up" : place > index ? "down" : "same";
    const d = `M0 ${from}C${WIDTH / 2} ${from} ${WIDTH / 2} ${to} ${WIDTH} ${to}`;
    return draw("path", { d, class: kind, "data-index": index, "vector-effect": "non-scaling-stroke" });
  });
  const box = { viewBox: `0 0 ${WIDTH} ${rows * STEP}`, preserveAspectRatio: "none", "aria-hidden": "true", height: rows * STEP };
  return draw("svg", box, ...paths);
}

function ordersOf(request, placed) {
  const byIndex = new Map(placed.map((result) => [result.index, result]));
  const before = request.documents.map(({ title, text }, index) =>
    make("li", { data: { index }, className: byIndex.has(index) ? "" : "left-out" }, make("span", { className: "name", dir: "auto", textContent: title || opening(text) || "(empty)" })),
  );
  const after = placed.map((result) =>
    make(
      "li",
      { data: { index: result.index } },
      make("a", { href: `#result-${result.index}`, className: "name", dir: "auto", textContent: result.name, onclick: () => openCard(result.index) }),
      moveOf(result),
      make("span", { className: "score", textContent: scoreOf(result) }),
    ),
  );
  const rows = Math.max(before.length, after.length);
  const section = make(
    "section",
    { className: "orders", attributes: { "aria-label": "The order given, and the new one" } },
    make("div", { className: "order" }, make("h3", { textContent: "First stage" }), make("ol", { className: "before" }, ...before)),
    make("div", { className: "slopes" }, linesOf(placed, rows)),
    make("div", { className: "order" }, make("h3", { textContent: "KeyBlock" }), make("ol", { className: "after" }, ...after)),
  );
  section.addEventListener("pointerover", ({ target }) => pickOut(section, target.closest("[data-index]")?.dataset.index));
  section.addEventListener("pointerleave", () => pickOut(section, undefined));
  return make("div", { className: "panel" }, section);
}

function pickOut(section, index) {
  for (const element of section.querySelectorAll("[data-index]")) element.classList.toggle("picked", element.dataset.index === index);
}

function copyButton(text) {
  const button = make("button", { type: "button", className: "copy", textContent: "Copy" });
  button.addEventListener("click", async () => {
    button.textContent = (await copy(text)) ? "Copied" : "The browser forbids it";
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
    beyondOf(placed),
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
