// A document of the answer: its place, a map of where its blocks lie, and its text with the blocks highlighted.

import { byId, count, make, vary } from "./dom.js";
import { characterStart, directionOf, piecesOf, unitsOf } from "./text.js";

const LONGEST_STRETCH = 20_000; // characters shown between two blocks; of more, the middle is left out
const AROUND = 4_000; // characters that are then shown on either side
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

const DIGITS = 2; // of a block's score

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
  const reach = seen < text.length ? `512 tokens end at about ${percent(seen, text.length)}` : "512 tokens would do";
  return make("span", { className: "where" }, best, " ", make("span", { className: "reach", textContent: reach }));
}

/** A stretch of text outside of all blocks; the middle of a very long one is left out, to keep the page quick. */
function stretch(text) {
  if (text.length <= LONGEST_STRETCH) return [text];
  const [head, tail] = [characterStart(text, AROUND), characterStart(text, text.length - AROUND)];
  const left = tail - head;
  const gap = make("span", { className: "gap", textContent: `⋯ ${count(left)} characters not shown ⋯` });
  return [text.slice(0, head), gap, text.slice(tail)];
}

function highlighted({ text, blocks }, strengths) {
  const named = new Set();
  return piecesOf(text, blocks).flatMap(({ start, end, blocks: covering }) => {
    const content = text.slice(start, end);
    if (!covering.length) return stretch(content);
    const fresh = covering.filter((place) => !named.has(place));
    for (const place of fresh) named.add(place);
    const label = fresh.map((place) => `${place + 1} · ${blocks[place].score.toFixed(DIGITS)}`).join(", ");
    const data = { blocks: covering.join(" "), ...(label && { label }) };
    const mark = make("mark", { tabIndex: -1, className: covering.includes(0) ? "best" : "", textContent: content, data });
    return [vary(mark, { strength: Math.max(...covering.map((place) => strengths[place])) })];
  });
}

const markOf = (card, place) => [...card.querySelectorAll("mark")].find((mark) => mark.dataset.blocks.split(" ").includes(String(place)));

/** Scrolls the text, and it alone, to a block. */
function goTo(card, place, smooth = true) {
  const [mark, body] = [markOf(card, place), card.querySelector(".text")];
  if (!mark) return;
  const top = mark.getBoundingClientRect().top - body.getBoundingClientRect().top + body.scrollTop - body.clientHeight / 4;
  body.scrollTo({ top, behavior: smooth ? "smooth" : "instant" });
  for (const other of card.querySelectorAll(".found")) other.classList.remove("found");
  if (smooth) mark.classList.add("found");
}

/** The blocks, best first, as buttons that lead to them. */
function blockList(card, { text, blocks }, units) {
  const buttons = blocks.map(({ start, end, score }, place) => {
    const at = percent(units[2 * place], text.length);
    const button = make("button", { type: "button", className: "block", title: `score ${score}, characters ${count(start)} to ${count(end)}`, data: { block: place } });
    button.append(make("b", { textContent: place + 1 }), make("span", { textContent: score.toFixed(DIGITS) }), make("i", { textContent: `at ${at}` }));
    button.setAttribute("aria-label", `Block ${place + 1}, score ${score.toFixed(DIGITS)}, at ${at} of the document: show it`);
    button.addEventListener("click", () => goTo(card, place));
    return make("li", {}, button);
  });
  return make("ol", { className: "blocks", attributes: { "aria-label": "Blocks, best first" } }, ...buttons);
}

/** Makes a card's text when it is first looked at: with hundreds of long documents most never are. */
function unfold(card, result, units, strengths) {
  if (card.querySelector(".text")) return;
  const label = `Text of ${result.name}, its blocks highlighted`;
  const text = make("div", { className: "text", dir: directionOf(result.text), tabIndex: 0, attributes: { role: "region", "aria-label": label } }, ...highlighted(result, strengths));
  card.querySelector("details").append(...(result.blocks.length ? [blockList(card, result, units)] : []), text);
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

/** The card of a result. */
export function cardOf(result, open) {
  const units = unitsOf(result.text, result.blocks.flatMap(({ start, end }) => [start, end]));
  const strengths = strengthsOf(result.blocks);
  const map = mapOf(result, units, strengths);
  const details = make("details", {}, summaryOf(result, map, whereOf(result, units)));
  const card = make("article", { id: `result-${result.index}`, className: "card", data: { index: result.index } }, details);
  details.addEventListener("toggle", () => {
    if (!details.open) return;
    unfold(card, result, units, strengths);
    if (!card.dataset.shown) goTo(card, 0, false);
    card.dataset.shown = "yes";
  });
  map.addEventListener("click", (event) => {
    const { block } = event.target.dataset;
    if (block === undefined) return;
    event.preventDefault(); // the summary around it would fold
    unfold(card, result, units, strengths);
    card.dataset.shown = "yes";
    details.open = true;
    goTo(card, Number(block));
  });
  details.open = open;
  return card;
}

/** Opens the card of the document that was sent as number `index`. */
export function openCard(index) {
  byId(`result-${index}`).querySelector("details").open = true;
}
