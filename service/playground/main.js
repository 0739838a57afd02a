// The page: what its buttons and keys do.

import { byId } from "./dom.js";
import { readFiles } from "./files.js";
import { addDocuments, addEmpty, clearDocuments, fieldAt, fill, mark, read, suit, tellOptions, unmark } from "./form.js";
import { show } from "./results.js";
import { about, rank, requestOf, sample, ServiceError } from "./service.js";

const form = byId("request");
const NARROW = matchMedia("(max-width: 60rem)"); // as in the style sheet: the answer is below the form
let running = null; // the request in flight

function complain(message) {
  unmark();
  byId("problem").textContent = message;
  byId("problem").hidden = !message;
  if (message && NARROW.matches) byId("problem").scrollIntoView({ block: "center" });
}

/** The message for a request that failed: the service's own words where there are any. */
const messageOf = (error) => (error instanceof ServiceError ? `${error.status}: ${error.message}` : error.message);

function refuse(error) {
  complain(messageOf(error));
  byId("results").classList.add("old");
  const field = error.path && fieldAt(error.path);
  if (field) mark(field, error.message);
}

async function send() {
  running?.abort();
  const mine = (running = new AbortController());
  byId("answer").setAttribute("aria-busy", "true");
  try {
    const { key, ...asked } = read();
    const request = requestOf(asked);
    const { answer, elapsed } = await rank(request, key, mine.signal);
    const info = await introduce(key);
    if (running !== mine) return;
    complain("");
    show(request, answer, elapsed, Boolean(key), info);
    byId("results").classList.remove("old");
    if (NARROW.matches) byId("answer").scrollIntoView();
  } catch (error) {
    if (running === mine) refuse(error);
  } finally {
    if (running === mine) byId("answer").setAttribute("aria-busy", "false");
  }
}

async function load() {
  try {
    fill(await sample());
  } catch (error) {
    complain(messageOf(error));
  }
}

async function take(files) {
  byId("drop").setAttribute("aria-busy", "true");
  const { query, documents, problems } = await readFiles(files, byId("key").value.trim());
  byId("drop").setAttribute("aria-busy", "false");
  if (query !== undefined) byId("query").value = query;
  if (documents.length) addDocuments(documents);
  byId("file-problems").textContent = problems.join("\n");
  byId("file-problems").hidden = !problems.length;
}

function listenToFiles() {
  byId("open").addEventListener("click", () => byId("files").click());
  byId("files").addEventListener("change", async ({ target }) => {
    await take(target.files);
    target.value = ""; // the same file may be opened again
  });
  const carriesFiles = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragover", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    byId("drop").classList.add("over");
  });
  addEventListener("dragleave", ({ relatedTarget }) => relatedTarget ?? byId("drop").classList.remove("over"));
  addEventListener("drop", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    byId("drop").classList.remove("over");
    take(event.dataTransfer.files);
  });
}

/** Says in the header what is served, and returns it; null from a service that does not tell: it is no less usable. */
async function introduce(key) {
  try {
    const info = await about(key);
    suit(info);
    byId("serving").textContent = [info.model, info.provider?.chosen, info.provider?.arithmetic].filter(Boolean).join(" · ");
    return info;
  } catch {
    byId("serving").textContent = "";
    return null;
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  send();
});
byId("load").addEventListener("click", load);
byId("try").addEventListener("click", async () => {
  await load();
  await send();
});
byId("add").addEventListener("click", addEmpty);
byId("clear").addEventListener("click", clearDocuments);
byId("options").addEventListener("input", tellOptions);
byId("key").addEventListener("change", () => introduce(byId("key").value.trim()));
listenToFiles();
addDocuments([{}, {}]);
introduce(byId("key").value.trim());
