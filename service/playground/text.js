// What is reckoned of a text. The service counts Unicode code points, JavaScript UTF-16 units: an emoji is one of those and two of these.

const isPair = (text, at) => {
  const [high, low] = [text.charCodeAt(at), text.charCodeAt(at + 1)];
  return high >= 0xd800 && high < 0xdc00 && low >= 0xdc00 && low < 0xe000;
};

/** The UTF-16 index of each of `offsets`, which are code points into `text`; a lone surrogate is one of either. */
export function unitsOf(text, offsets) {
  const sorted = [...new Set(offsets)].sort((a, b) => a - b);
  const found = new Map();
  let [unit, point] = [0, 0];
  for (const offset of sorted) {
    for (; point < offset && unit < text.length; point += 1) unit += isPair(text, unit) ? 2 : 1;
    found.set(offset, unit);
  }
  return offsets.map((offset) => found.get(offset));
}

const LETTER = /\p{L}/u;
const LEFTWARDS = /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Adlam}]/u;
const OPENING = 1000; // UTF-16 units in which the first letter is looked for

/** The `dir` of an element that shows this text. Never "auto": a browser lays megabytes out anew to find it, which takes minutes. */
export const directionOf = (text) => (LEFTWARDS.test(LETTER.exec(text.slice(0, OPENING))?.[0] ?? "") ? "rtl" : "ltr");

/** Blocks or spans, which are in code points, as `{start, end}` in UTF-16 units. */
export function rangesOf(text, places) {
  const units = unitsOf(text, places.flatMap(({ start, end }) => [start, end]));
  return places.map((_, at) => ({ start: units[2 * at], end: units[2 * at + 1] }));
}

/** A piece of a text cut where a range begins or ends: pieces `{start, end, over}`, with the numbers of the ranges over each. */
export function piecesOf({ start: from, end: to }, ranges) {
  const within = ranges.flatMap(({ start, end }) => [start, end]).filter((at) => at > from && at < to);
  const cuts = [...new Set([from, ...within, to])].sort((a, b) => a - b);
  const over = (start, end) => ranges.flatMap((range, at) => (range.start < end && range.end > start ? [at] : []));
  return cuts.slice(1).map((end, at) => ({ start: cuts[at], end, over: over(cuts[at], end) }));
}

/** The number of words. */
export function wordsIn(text) {
  let words = 0;
  for (const _ of text.matchAll(/\S+/g)) words += 1;
  return words;
}

/** The opening of a text in a line. */
export function opening(text, length = 70) {
  const line = [...text.slice(0, 4 * length).replace(/\s+/gu, " ").trim()];
  return line.length > length ? `${line.slice(0, length).join("")} …` : line.join("");
}
