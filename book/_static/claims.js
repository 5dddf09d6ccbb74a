// Filters the page of claims by chapter, verdict and origin. Without it the page is a plain list.
(() => {
  const form = document.querySelector("form.rl-filter");
  const claims = [...document.querySelectorAll("li.rl-claim")];
  const folds = [...document.querySelectorAll("details.rl-folded")];
  const count = form.querySelector("output");
  const fields = ["chapter", "verdict", "origin"];
  const chosen = () => fields.map((name) => form.elements[name].value).filter(Boolean);

  const update = () => {
    const wanted = chosen();
    for (const claim of claims) claim.hidden = !wanted.every((name) => claim.classList.contains(name));
    for (const fold of folds) fold.hidden = !fold.querySelector("li.rl-claim:not([hidden])");
    for (const list of document.querySelectorAll("section > .rl-claim-list"))
      list.parentElement.hidden = !list.querySelector("li.rl-claim:not([hidden])");
    const shown = claims.filter((claim) => !claim.hidden);
    const folded = shown.filter((claim) => claim.closest("details.rl-folded")).length;
    count.textContent = `${shown.length - folded} claims of the articles, ${folded} of the extensions (folded below)`;
    const address = new URL(location);
    for (const name of fields) {
      const value = form.elements[name].value;
      if (value) address.searchParams.set(name, value.replace(/^rl-[a-z]+-/, ""));
      else address.searchParams.delete(name);
    }
    history.replaceState(null, "", address);
  };

  // A link to one claim shows it, whatever is folded or filtered.
  const show = () => {
    const claim = location.hash && document.getElementById(location.hash.slice(1));
    if (!claim || !claims.includes(claim)) return;
    if (claim.hidden) {
      form.reset();
      update();
    }
    const fold = claim.closest("details");
    if (fold) fold.open = true;
    claim.scrollIntoView();
  };

  const given = new URL(location).searchParams;
  for (const name of fields) {
    const value = given.get(name) && `rl-${name}-${given.get(name)}`;
    if (value && form.elements[name].querySelector(`option[value="${CSS.escape(value)}"]`)) form.elements[name].value = value;
  }
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", update);
  form.addEventListener("reset", () => setTimeout(update)); // after the fields are reset
  window.addEventListener("hashchange", show);
  update();
  show();
})();
