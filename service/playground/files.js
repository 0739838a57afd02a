// Documents from files: a text is one, with the file's name as its title; JSON and JSON lines hold any number, as strings, as {id, title, text}, or as a whole request. The text of a PDF, DOCX, EPUB or HTML file is the service's to find.

import { decode, holdsText, NotTextError } from "./decoding.js";
import { ServiceError, textOf } from "./service.js";

const LISTS = /\.(jsonl|ndjson)$/i;
const MOST_TOLD = 3;

/** A document as the form holds it, or null for what is none. */
export function documentOf(value) {
  if (typeof value === "string") return { text: value };
  if (typeof value?.text !== "string") return null;
  const { id, title, text } = value;
  return { id, title: typeof title === "string" ? title : "", text };
}

/** `{query?, documents, wrong}` of one parsed value: a request, a list, or a document. */
export function readValue(value) {
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
      read.documents.push(...documents);
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

/** `{query?, documents, problems}` of a text. */
export function readContent(name, content) {
  if (LISTS.test(name)) return readLines(name, content);
  if (/\.json$/i.test(name)) return readJson(name, content);
  return { documents: [{ id: name, title: name, text: content }], problems: [] };
}

async function readFile(file, key) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  if (holdsText(bytes, file.name)) {
    const { text, title, problem } = await textOf(file, key);
    return { documents: [{ id: file.name, title: title || file.name, text }], problems: problem ? [`${file.name}: ${problem}`] : [] };
  }
  const { text, problem } = decode(bytes, file.type);
  const read = readContent(file.name, text);
  return { ...read, problems: [...(problem ? [`${file.name}: ${problem}`] : []), ...read.problems] };
}

/** The same of several files together, in the order of their names as people count; `key` is for those that the service reads. */
export async function readFiles(files, key) {
  const sorted = [...files].sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
  const all = { documents: [], problems: [] };
  for (const file of sorted) {
    try {
      const { query, documents, problems } = await readFile(file, key);
      all.query ??= query;
      all.documents.push(...documents);
      all.problems.push(...problems);
    } catch (error) {
      const known = error instanceof NotTextError || error instanceof ServiceError;
      all.problems.push(`${file.name}: ${known ? error.message : "cannot be read: is it a folder, or gone?"}`);
    }
  }
  return all;
}
