// The service: what is sent to it, what comes back, and the same for a shell. Addresses are relative to the page, which may have a prefix.

const REMEDY = "Is it still running? Start it again (make serve, or keyblock-serve) and press Rank; this page keeps what you have written.";

const address = (path) => new URL(path, document.baseURI).href;

/** What the service answers instead of an order; `path` leads to the field at fault where there is one. */
export class ServiceError extends Error {
  constructor(status, { message, path }) {
    super(message);
    this.status = status;
    this.path = [401, 403].includes(status) ? ["key"] : path;
  }
}

/** The body of POST /rerank; options that are not given are left out. */
export function requestOf({ query, documents, options }) {
  const given = Object.entries(options).filter(([, value]) => value !== "");
  const bodies = documents.map(({ id, title, text }) => ({ ...(id !== undefined && { id }), ...(title && { title }), text }));
  return { query, documents: bodies, return_blocks: true, relevant_spans: { mode: "enabled" }, ...Object.fromEntries(given) };
}

async function problemOf(response) {
  const text = await response.text();
  try {
    const { message, detail, error } = JSON.parse(text);
    const path = Array.isArray(detail?.[0]?.loc) ? detail[0].loc.slice(1) : undefined; // its first part is "body"
    return { message: [message, detail, error?.message].find((one) => typeof one === "string") ?? text, path };
  } catch {
    return { message: text.slice(0, 500) || response.statusText || "no answer" }; // a proxy's page, perhaps
  }
}

async function reach(path, options) {
  try {
    return await fetch(address(path), { ...options, credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error; // by a newer request
    throw new Error(`The service at ${location.origin} cannot be reached (${error.message}). ${REMEDY}`);
  }
}

/** The answer as an object. Raises ServiceError, or Error where there is none. */
async function ask(path, key, options) {
  const headers = key ? { ...options.headers, authorization: `Bearer ${key}` } : options.headers;
  const response = await reach(path, { ...options, headers });
  if (!response.ok) throw new ServiceError(response.status, await problemOf(response));
  return response.json();
}

/** The order of `request`, and how long it took to come. */
export async function rank(request, key, signal) {
  const began = performance.now();
  const headers = { "content-type": "application/json" };
  const answer = await ask("rerank", key, { method: "POST", body: JSON.stringify(request), headers, signal });
  return { answer, elapsed: performance.now() - began };
}

/** `{text, title, problem}` of a file. */
export const textOf = (file, key) => ask(`playground/text?name=${encodeURIComponent(file.name)}`, key, { method: "POST", body: file });

/** What is served: see /info. */
export const about = (key) => ask("info", key, {});

/** The sample request. */
export const sample = () => ask("playground/sample.json", "", {});

/**
 * The same request for a shell. The body is a here-document: it needs no quoting, and has no limit (an argument has, of 128 KiB).
 * A key is taken from the environment, so that it gets into no history.
 */
export function curlOf(request, keyed) {
  const lines = [`curl -sS '${address("rerank").replaceAll("'", "%27")}' \\`, "  -H 'Content-Type: application/json' \\"];
  if (keyed) lines.push('  -H "Authorization: Bearer $KEYBLOCK_API_KEY" \\');
  return [...lines, "  --data-binary @- <<'KEYBLOCK'", JSON.stringify(request, null, 1), "KEYBLOCK", ""].join("\n");
}
