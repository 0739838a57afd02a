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

const CHARACTERS = new Intl.Segmenter(undefined, { granularity: "grapheme" });
const NEAR = 64; // UTF-16 units around a place that are looked at: no character that is seen is longer

/** Where the character that a reader sees at this UTF-16 index begins: an accent, a vowel sign or a joined emoji belongs to what is before it. */
export function characterStart(text, at) {
  if (at <= 0 || at >= text.length) return at;
  const from = Math.max(0, at - NEAR);
  return from + CHARACTERS.segment(text.slice(from, at + NEAR)).containing(at - from).index;
}

const over = (places, from, to) => places.flatMap(({ start, end }, at) => (start < to && end > from ? [at] : []));

/** `text` cut where a block or a span begins or ends: pieces `{start, end, blocks, spans}` in UTF-16 units, with the places of those over each. */
export function piecesOf(text, blocks, spans = []) {
  const both = [...blocks, ...spans];
  const units = unitsOf(text, both.flatMap(({ start, end }) => [start, end])).map((unit) => characterStart(text, unit));
  const places = both.map((_, at) => ({ start: units[2 * at], end: units[2 * at + 1] }));
  const [ofBlocks, ofSpans] = [places.slice(0, blocks.length), places.slice(blocks.length)];
  const cuts = [...new Set([0, ...units, text.length])].sort((a, b) => a - b);
  return cuts.slice(1).map((end, at) => ({ start: cuts[at], end, blocks: over(ofBlocks, cuts[at], end), spans: over(ofSpans, cuts[at], end) }));
}

const WORDS = /\p{Script=Han}|\p{Script=Hiragana}|\p{Script=Katakana}|[\p{L}\p{M}\p{N}]+|[^\s\p{L}\p{M}\p{N}]/gu;
const LATIN = /^[\p{Script=Latin}\p{Script=Common}\p{Script=Inherited}]+$/u;
const PLAIN = 7; // letters up to which most words are one token
const PIECE = 8; // letters of a longer one for each further token, on the average of English

/** About how many tokens a word is in the vocabulary of BERT's English models, which most rerankers share. */
function tokensOf(word) {
  if (!LATIN.test(word)) return word.length; // hardly more than its letters are in the vocabulary
  return word.length <= PLAIN ? 1 : 1 + (word.length - PLAIN) / PIECE;
}

/** About how many tokens `text` is. */
export const tokensAbout = (text) => Math.round([...text.matchAll(WORDS)].reduce((sum, [word]) => sum + tokensOf(word), 0));

/** The UTF-16 index where about `tokens` of them end, or the length of a text that has fewer. */
export function indexAfter(text, tokens) {
  let sum = 0;
  for (const match of text.matchAll(WORDS)) {
    sum += tokensOf(match[0]);
    if (sum > tokens) return match.index;
  }
  return text.length;
}

/** The number of words. */
export function wordsIn(text) {
  let words = 0;
  for (const _ of text.matchAll(/\S+/g)) words += 1;
  return words;
}

/** The opening of a text in a line. */
export function opening(text, length = 70) {
  const line = text.slice(0, 4 * length).replace(/\s+/gu, " ").trim();
  return line.length > length ? `${line.slice(0, characterStart(line, length))} …` : line;
}
