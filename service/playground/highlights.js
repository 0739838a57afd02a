// A document's text with two kinds of marks in it: the blocks, which are what was read, and in them the spans, which are what answers.

import { count, make } from "./dom.js";
import { piecesOf, rangesOf } from "./text.js";

const LONGEST_STRETCH = 20_000; // characters shown between two blocks; of more, the middle is left out
const AROUND = 4_000; // characters that are then shown on either side

/** The score of a block or a span to two digits. */
export const digits = (score) => score.toFixed(2);

/** A stretch of text outside of all blocks; the middle of a very long one is left out, to keep the page quick. */
function stretch(text) {
  if (text.length <= LONGEST_STRETCH) return [text];
  const gap = make("span", { className: "gap", textContent: `⋯ ${count(text.length - 2 * AROUND)} characters not shown ⋯` });
  return [text.slice(0, AROUND), gap, text.slice(-AROUND)];
}

/** A function that labels each of `ranges` where it is first met: the label of those in `covering` that are new, or "". */
function labeller(ranges, labelOf) {
  const named = new Set();
  return (covering) => {
    const fresh = covering.filter((place) => !named.has(place));
    for (const place of fresh) named.add(place);
    return fresh.map((place) => labelOf(ranges[place], place)).join(", ");
  };
}

/** A piece of a text that a span covers. */
function answerOf(content, covering, spans, label) {
  const title = covering.map((place) => `This answers: score ${spans[place].score}`).join(", ");
  return make("mark", { tabIndex: -1, className: "answer", title, textContent: content, data: { spans: covering.join(" "), ...(label && { label }) } });
}

/** The nodes of a text: strings, and a mark for each block that holds one for each span. */
export function highlighted({ text, blocks, spans }) {
  const blockLabel = labeller(blocks, ({ score }, place) => `${place + 1} · ${digits(score)}`);
  const spanLabel = labeller(spans, ({ score }) => `answers ${digits(score)}`);
  const [ofBlocks, ofSpans] = [rangesOf(text, blocks), rangesOf(text, spans)];
  const nodesOf = (part, plain) =>
    piecesOf(part, ofSpans).flatMap(({ start, end, over }) => {
      const content = text.slice(start, end);
      return over.length ? [answerOf(content, over, spans, spanLabel(over))] : plain(content);
    });
  return piecesOf({ start: 0, end: text.length }, ofBlocks).flatMap((part) => {
    if (!part.over.length) return nodesOf(part, stretch);
    const label = blockLabel(part.over);
    const data = { blocks: part.over.join(" "), ...(label && { label }) };
    const inside = nodesOf(part, (content) => [content]);
    return [make("mark", { tabIndex: -1, className: part.over.includes(0) ? "best" : "", data }, ...inside)];
  });
}

const markOf = (card, kind, place) => [...card.querySelectorAll(`mark[data-${kind}]`)].find((mark) => mark.dataset[kind].split(" ").includes(String(place)));

/** Scrolls the text, and it alone, to one of its "blocks" or "spans". */
export function goTo(card, kind, place, smooth = true) {
  const [mark, body] = [markOf(card, kind, place), card.querySelector(".text")];
  if (!mark) return;
  const top = mark.getBoundingClientRect().top - body.getBoundingClientRect().top + body.scrollTop - body.clientHeight / 4;
  body.scrollTo({ top, behavior: smooth ? "smooth" : "instant" });
  for (const other of card.querySelectorAll(".found")) other.classList.remove("found");
  if (smooth) mark.classList.add("found");
}
