// Small repairs that CSS cannot make. Nothing is loaded from elsewhere.
(() => {
  // A formula wider than its column scrolls in its own box, and the keyboard can scroll it.
  const mark = () => {
    for (const formula of document.querySelectorAll("mjx-container")) {
      const column = formula.parentElement.closest("p, li, td, dd, div, figcaption");
      const width = formula.querySelector("mjx-math").getBoundingClientRect().width;
      formula.classList.toggle("rl-wide", column.clientWidth > 0 && width > column.clientWidth + 1);
      if (formula.clientWidth > 0 && width > formula.clientWidth + 1) formula.tabIndex = 0;
      else formula.removeAttribute("tabindex");
    }
  };
  const start = async () => {
    if (!window.MathJax || !MathJax.startup) return;
    await MathJax.startup.promise;
    mark();
    window.addEventListener("resize", mark);
    document.addEventListener("toggle", mark, true); // a folded part has no width before it is opened
  };
  window.addEventListener("load", start);
})();

// Opened as a file, the search may not read the pages that it found: it lists them without their beginnings.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
