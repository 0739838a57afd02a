// The form, kept in this tab for when the page is loaded again. The API key is not.

const NAME = "keyblock-form";
const AGAIN = ["reload", "back_forward"];

/** Keeps what the form holds. */
export function keep(state) {
  try {
    sessionStorage.setItem(NAME, JSON.stringify(state));
  } catch {
    // more than the browser keeps, or a browser that keeps nothing: the form begins empty
  }
}

/** What was kept, where this page was loaded again; null otherwise. */
export function kept() {
  const [{ type } = {}] = performance.getEntriesByType("navigation");
  try {
    return AGAIN.includes(type) ? JSON.parse(sessionStorage.getItem(NAME)) : null;
  } catch {
    return null;
  }
}
