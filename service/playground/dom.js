// Elements without HTML: whatever a document says stays text.

export const byId = (id) => document.getElementById(id);

/** An element; `properties` are its own (className, onclick), but for `data` and `attributes`; children are nodes or strings. */
export function make(tag, { data = {}, attributes = {}, ...properties } = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  Object.assign(element.dataset, data);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

const NUMBER = new Intl.NumberFormat("en");

/** 12,345 */
export const count = (number) => NUMBER.format(number);

/** 1 document, 2 documents */
export const some = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** Milliseconds with as many digits as tell something. */
export const milliseconds = (ms) => `${ms < 10 ? ms.toFixed(1) : count(Math.round(ms))} ms`;

/** Copies a text, also on pages that are neither local nor on https and have no `navigator.clipboard`; false where the browser forbids it. */
export function copy(text) {
  const area = make("textarea", { value: text, className: "unseen" });
  const focused = document.activeElement;
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  focused?.focus();
  return copied;
}
