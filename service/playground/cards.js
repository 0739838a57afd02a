// A document of the answer: its place, where its best block lies, and its text with the blocks and the spans highlighted.

import { byId, count, make } from "./dom.js";
import { digits, goTo, highlighted } from "./highlights.js";
import { directionOf, unitsOf } from "./text.js";

const SCORED_BY = { selector: "ordered by its blocks, not by the model", order: "in the order given" };
const BY_POSITION = "blocks by position: none stood out";

const percent = (part, whole) => `${whole ? Math.round((100 * part) / whole) : 0} %`;

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

/** Where the best block stands, in words. */
function whereOf({ text, blocks }) {
  if (!blocks.length) return make("span", { className: "where", textContent: text.trim() ? "No block was read" : "There is nothing to read" });
  const [best] = unitsOf(text, [blocks[0].start]);
  return make("span", { className: "where" }, "Best block at ", make("strong", { textContent: percent(best, text.length) }), " of the document");
}

const extent = ({ start, end, score }) => `score ${score}, characters ${count(start)} to ${count(end)}`;

/** The blocks or the spans, best first, as buttons that lead to their marks. */
function leadsOf(card, text, kind, ranges) {
  const { name, list, one } = {
    blocks: { name: "What was read", list: "Blocks that were read, best first", one: (place) => `Block ${place + 1}` },
    spans: { name: "What answers", list: "Spans that answer, best first", one: () => "Span that answers" },
  }[kind];
  const units = unitsOf(text, ranges.map(({ start }) => start));
  const items = ranges.map((range, place) => {
    const [score, at] = [digits(range.score), percent(units[place], text.length)];
    const button = make("button", { type: "button", className: kind.slice(0, -1), title: extent(range), onclick: () => goTo(card, kind, place) });
    button.append(make("b", { textContent: score }), make("i", { textContent: `at ${at}` }));
    button.setAttribute("aria-label", `${one(place)}, score ${score}, at ${at} of the document: show it`);
    return make("li", {}, button);
  });
  const heading = make("span", { className: "kind", textContent: name, attributes: { "aria-hidden": "true" } });
  return make("div", { className: `leads ${kind}` }, heading, make("ol", { attributes: { "aria-label": list } }, ...items));
}

/** Makes a card's text when it is first looked at: with hundreds of long documents most never are. */
function unfold(card, result) {
  const label = `Text of ${result.name}, what was read and what answers highlighted`;
  const text = make("div", { className: "text", dir: directionOf(result.text), tabIndex: 0, attributes: { role: "region", "aria-label": label } }, ...highlighted(result));
  const kinds = ["spans", "blocks"].filter((kind) => result[kind].length);
  card.querySelector("details").append(...kinds.map((kind) => leadsOf(card, result.text, kind, result[kind])), text);
  if (kinds.length) goTo(card, kinds[0], 0, false);
}

function summaryOf(result) {
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
  return make("summary", {}, line, whereOf(result));
}

/** The card of a result; `below` the threshold it is a little fainter. */
export function cardOf(result, open, below) {
  const details = make("details", {}, summaryOf(result));
  const card = make("article", { id: `result-${result.index}`, className: below ? "card below" : "card", data: { index: result.index } }, details);
  details.addEventListener("toggle", () => {
    if (details.open && !card.querySelector(".text")) unfold(card, result);
  });
  details.open = open;
  return card;
}

/** Opens the card of the document that was sent as number `index`. */
export function openCard(index) {
  byId(`result-${index}`).querySelector("details").open = true;
}
