// A document of the answer: its place, a map of where its blocks lie, and its text with the blocks and the spans highlighted.

import { byId, count, make, vary } from "./dom.js";
import { digits, goTo, highlighted } from "./highlights.js";
import { directionOf, unitsOf } from "./text.js";

const SCORED_BY = { selector: "ordered by its blocks, not by the model", order: "in the order given" };
const BY_POSITION = "blocks by position: none stood out";

const percent = (part, whole) => `${whole ? Math.round((100 * part) / whole) : 0} %`;
const share = (part, whole) => `${whole ? (100 * part) / whole : 0}%`;

/** Up 3, down 1, or nothing. */
export function moveOf({ index, place }) {
  const kind = place < index ? "up" : place > index ? "down" : "same";
  const sign = { up: "▲", down: "▼", same: "" }[kind];
  const moved = { up: `up ${index - place}`, down: `down ${place - index}`, same: "where it was" }[kind];
  const shown = kind === "same" ? "=" : `${sign}${Math.abs(index - place)}`;
  const sight = make("span", { textContent: shown, attributes: { "aria-hidden": "true" } });
  return make("span", { className: `move ${kind}`, title: moved }, sight, make("span", { className: "unseen", textContent: moved }));
}

/** A document's score to three digits. */
export const scoreOf = ({ relevance_score: score }) => (score > 0 && score < 0.001 ? "<0.001" : score.toFixed(3));

/** How strongly each block is shown, 0 to 1: by its score among those of its document. */
function strengthsOf(blocks) {
  const scores = blocks.map(({ score }) => score);
  const [low, high] = [Math.min(0, ...scores), Math.max(...scores)];
  return scores.map((score) => (high > low ? 0.35 + (0.65 * (score - low)) / (high - low) : 1));
}

const placeOf = (units, place) => ({ start: units[2 * place], end: units[2 * place + 1] });

/** The whole document as a bar: where the blocks lie, and about how far 512 tokens reach. */
function mapOf({ text, blocks, seen }, units, strengths) {
  const ticks = blocks.map((_, place) => {
    const { start, end } = placeOf(units, place);
    const tick = make("span", { className: place ? "tick" : "tick best", data: { block: place } });
    return vary(tick, { left: share(start, text.length), width: share(end - start, text.length), strength: strengths[place] });
  });
  const opening = vary(make("span", { className: "seen" }), { width: share(seen, text.length) });
  return make("span", { className: "map", attributes: { "aria-hidden": "true" } }, opening, ...ticks);
}

/** In words what the map shows. */
function whereOf({ text, blocks, seen }, units) {
  if (!blocks.length) return make("span", { className: "where", textContent: text.trim() ? "No block was read" : "There is nothing to read" });
  const best = make("span", {}, "Best block at ", make("strong", { textContent: percent(units[0], text.length) }), " of the document");
  const reach = seen < text.length ? `512 tokens end at about ${percent(seen, text.length)}` : "512 tokens hold all of it";
  return make("span", { className: "where" }, best, " ", make("span", { className: "reach", textContent: reach }));
}

/** A row of buttons that lead to the marks of one kind, behind the name of the kind. */
function leadsOf(card, kind, name, label, buttons) {
  buttons.forEach((button, place) => button.addEventListener("click", () => goTo(card, kind, place)));
  const items = buttons.map((button) => make("li", {}, button));
  const heading = make("span", { className: "kind", textContent: name, attributes: { "aria-hidden": "true" } });
  return make("div", { className: `leads ${kind}` }, heading, make("ol", { attributes: { "aria-label": label } }, ...items));
}

const extent = ({ start, end, score }) => `score ${score}, characters ${count(start)} to ${count(end)}`;

/** The blocks, best first, as buttons that lead to them. */
function blockList(card, { text, blocks }, units) {
  const buttons = blocks.map((block, place) => {
    const at = percent(units[2 * place], text.length);
    const button = make("button", { type: "button", className: "block", title: extent(block), data: { block: place } });
    button.append(make("b", { textContent: place + 1 }), make("span", { textContent: digits(block.score) }), make("i", { textContent: `at ${at}` }));
    button.setAttribute("aria-label", `Block ${place + 1}, score ${digits(block.score)}, at ${at} of the document: show it`);
    return button;
  });
  return leadsOf(card, "blocks", "What was read", "Blocks that were read, best first", buttons);
}

/** The spans, best first, as buttons that lead to them. */
function spanList(card, { text, spans }) {
  const units = unitsOf(text, spans.map(({ start }) => start));
  const buttons = spans.map((span, place) => {
    const at = percent(units[place], text.length);
    const button = make("button", { type: "button", className: "span", title: extent(span), data: { span: place } });
    button.append(make("b", { textContent: digits(span.score) }), make("i", { textContent: `at ${at}` }));
    button.setAttribute("aria-label", `Span that answers, score ${digits(span.score)}, at ${at} of the document: show it`);
    return button;
  });
  return leadsOf(card, "spans", "What answers", "Spans that answer, best first", buttons);
}

/** Makes a card's text when it is first looked at: with hundreds of long documents most never are. */
function unfold(card, result, units, strengths) {
  if (card.querySelector(".text")) return;
  const label = `Text of ${result.name}, what was read and what answers highlighted`;
  const text = make("div", { className: "text", dir: directionOf(result.text), tabIndex: 0, attributes: { role: "region", "aria-label": label } }, ...highlighted(result, strengths));
  const lists = [...(result.spans.length ? [spanList(card, result)] : []), ...(result.blocks.length ? [blockList(card, result, units)] : [])];
  card.querySelector("details").append(...lists, text);
}

function summaryOf(result, map, where) {
  const by = SCORED_BY[result.scored_by] ?? (result.selected_by === "position" ? BY_POSITION : undefined);
  const line = make(
    "span",
    { className: "line" },
    make("span", { className: "rank", textContent: result.place + 1 }),
    make("span", { className: "name", dir: "auto", textContent: result.name }),
    by ? make("span", { className: "by", textContent: by }) : null,
    moveOf(result),
    make("span", { className: "score", textContent: scoreOf(result), title: `relevance_score ${result.relevance_score}` }),
  );
  return make("summary", {}, line, map, where);
}

/** The card of a result; `below` the threshold it is a little fainter. */
export function cardOf(result, open, below) {
  const units = unitsOf(result.text, result.blocks.flatMap(({ start, end }) => [start, end]));
  const strengths = strengthsOf(result.blocks);
  const map = mapOf(result, units, strengths);
  const details = make("details", {}, summaryOf(result, map, whereOf(result, units)));
  const card = make("article", { id: `result-${result.index}`, className: below ? "card below" : "card", data: { index: result.index } }, details);
  details.addEventListener("toggle", () => {
    if (!details.open) return;
    unfold(card, result, units, strengths);
    if (!card.dataset.shown) goTo(card, result.spans.length ? "spans" : "blocks", 0, false);
    card.dataset.shown = "yes";
  });
  map.addEventListener("click", (event) => {
    const { block } = event.target.dataset;
    if (block === undefined) return;
    event.preventDefault(); // the summary around it would fold
    unfold(card, result, units, strengths);
    card.dataset.shown = "yes";
    details.open = true;
    goTo(card, "blocks", block);
  });
  details.open = open;
  return card;
}

/** Opens the card of the document that was sent as number `index`. */
export function openCard(index) {
  byId(`result-${index}`).querySelector("details").open = true;
}
