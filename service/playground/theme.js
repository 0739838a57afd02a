// The colours: the system's, until the button says otherwise. Loaded before the page is drawn, so that nothing flashes.
(() => {
  const NAME = "keyblock-theme";
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);

  function remembered() {
    try {
      return localStorage.getItem(NAME);
    } catch {
      return null; // no storage in this browser: the choice lasts as long as the page
    }
  }

  function choose(theme) {
    root.dataset.theme = theme;
    try {
      localStorage.setItem(NAME, theme);
    } catch {
      // as above
    }
  }

  const theme = remembered();
  if (theme === "dark" || theme === "light") root.dataset.theme = theme;
  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const tell = () => button.setAttribute("aria-pressed", String(dark()));
    button.addEventListener("click", () => {
      choose(dark() ? "light" : "dark");
      tell();
    });
    system.addEventListener("change", tell);
    tell();
  });
})();
