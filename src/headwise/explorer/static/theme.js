// @ts-check
/** Sets the theme before the page is first painted; not a module, so that it runs at once. */
(() => {
  let stored = null;
  try {
    stored = localStorage.getItem("headwise-theme");
  } catch {
    /* the browser stores nothing */
  }
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = stored ?? (isDark ? "dark" : "light");
})();
