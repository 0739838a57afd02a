// A problem stands at the field that it is about, until the next request.

import { make } from "./dom.js";

const ID = "field-problem";

/** A problem of a field; `path` as the service names it, as in ["documents", 3, "text"]. */
export class FieldError extends Error {
  constructor(message, path) {
    super(message);
    this.path = path;
  }
}

/** Shows the problem at the field, and goes there. */
export function mark(field, message) {
  field.setAttribute("aria-invalid", "true");
  field.setAttribute("aria-errormessage", ID);
  field.after(make("span", { id: ID, className: "field-problem", textContent: message }));
  const folded = field.closest("details");
  if (folded) folded.open = true;
  field.focus();
}

/** Takes the mark away. */
export function unmark() {
  document.getElementById(ID)?.remove();
  for (const field of document.querySelectorAll("[aria-invalid]")) {
    field.removeAttribute("aria-invalid");
    field.removeAttribute("aria-errormessage");
  }
}
