// Documents from files. JSON and JSON lines hold any number, as strings, as {id, title, text}, or as a whole request; a text in UTF-8 is one, with the file's name as its title. The text of any other file is the service's to find.

import { textOf } from "./service.js";

const LINES = /\.(jsonl|ndjson)$/i;
const JSON_FILE = /\.json$/i;
const PAGE = /\.x?html?$/i;
const PERHAPS_NO_TEXT = /^\s*(<|%PDF-|\{\\rtf)|\0/; // the service knows whether it is a page, a PDF or rich text
const MOST_TOLD = 3;

/** A document as the form holds it, or null for what is none. */
function documentOf(value) {
  if (typeof value === "string") return { text: value };
  if (typeof value?.text !== "string") return null;
  const { id, title, text } = value;
  return { id, title: typeof title === "string" ? title : "", text };
}

/** `{query?, documents, wrong}` of one parsed value: a request, a list, or a document. */
function readValue(value) {
  const request = Array.isArray(value?.documents);
  const values = request ? value.documents : Array.isArray(value) ? value : [value];
  const documents = values.map(documentOf);
  return {
    query: request && typeof value.query === "string" ? value.query : undefined,
    documents: documents.filter(Boolean),
    wrong: documents.filter((document) => !document).length,
  };
}

function readLines(name, content) {
  const read = { documents: [], problems: [] };
  const bad = [];
  content.split("\n").forEach((line, number) => {
    if (!line.trim()) return;
    try {
      const { query, documents, wrong } = readValue(JSON.parse(line));
      read.query ??= query;
      for (const document of documents) read.documents.push(document); // not spread: a call has at most some 120,000 arguments
      if (wrong) bad.push(number + 1);
    } catch {
      bad.push(number + 1);
    }
  });
  const more = bad.length > MOST_TOLD ? ` and ${bad.length - MOST_TOLD} more` : "";
  if (bad.length) read.problems.push(`${name}: line ${bad.slice(0, MOST_TOLD).join(", ")}${more} is no document in JSON`);
  return read;
}

function readJson(name, content) {
  try {
    const { query, documents, wrong } = readValue(JSON.parse(content));
    return { query, documents, problems: wrong ? [`${name}: ${wrong} of its values have no text`] : [] };
  } catch (error) {
    return { documents: [], problems: [`${name}: not JSON (${error.message})`] };
  }
}

/** The text of a file that is certainly a text; null where the service has to look. */
async function plainText(file) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    return PAGE.test(file.name) || PERHAPS_NO_TEXT.test(text) ? null : text;
  } catch (error) {
    if (error instanceof TypeError) return null; // no UTF-8
    throw error;
  }
}

/** `{query?, documents, problems}` of a file. Raises what `textOf` does, and DOMException for a file that cannot be read. */
async function readFile(file, key) {
  const { name } = file;
  if (LINES.test(name)) return readLines(name, await file.text());
  if (JSON_FILE.test(name)) return readJson(name, await file.text());
  const plain = await plainText(file);
  if (plain !== null) return { documents: [{ id: name, title: name, text: plain }], problems: [] };
  const { text, title, problem } = await textOf(file, key);
  return { documents: [{ id: name, title: title || name, text }], problems: problem ? [`${name}: ${problem}`] : [] };
}

/** The same of several files together, in the order of their names as people count; `key` is for those that the service reads. */
export async function readFiles(files, key) {
  const sorted = [...files].sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
  const all = { documents: [], problems: [] };
  for (const file of sorted) {
    try {
      const { query, documents, problems } = await readFile(file, key);
      all.query ??= query;
      all.documents = all.documents.concat(documents);
      all.problems.push(...problems);
    } catch (error) {
      all.problems.push(`${file.name}: ${error instanceof DOMException ? "cannot be read: is it a folder, or gone?" : error.message}`);
    }
  }
  return all;
}
