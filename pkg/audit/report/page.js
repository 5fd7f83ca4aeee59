"use strict";
(() => {
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  for (const e of all(".needs-script")) e.hidden = false;

  // Findings: each choice narrows what is shown; numbers of the verdict preset them.
  const form = document.getElementById("filters");
  const items = all(".item");
  const fits = (item, f) =>
    (!f.state || f.state.split(" ").includes(item.dataset.state)) &&
    (!f.severity || item.dataset.severity === f.severity) &&
    (!f.group || item.dataset.group === f.group) &&
    (!f.tenant || item.dataset.tenants.includes("|" + f.tenant + "|")) &&
    (!f.text || f.text.toLowerCase().split(/\s+/).every((word) => item.dataset.words.includes(word)));
  const filter = () => {
    const f = Object.fromEntries(new FormData(form));
    const narrow = Object.values(f).some(Boolean);
    let shown = 0;
    for (const item of items) {
      item.hidden = !fits(item, f);
      shown += item.hidden ? 0 : 1;
      for (const one of all(".finding", item)) {
        one.hidden = Boolean(f.tenant) && !one.dataset.tenants.includes("|" + f.tenant + "|");
      }
    }
    for (const state of all(".state")) {
      const some = all(".item", state).some((item) => !item.hidden);
      state.hidden = !some;
      if (state.tagName === "DETAILS") state.open = narrow && some;
    }
    document.getElementById("shown").textContent = narrow ? `${shown} of ${items.length} shown` : "";
  };
  form.addEventListener("input", filter);
  form.addEventListener("submit", (e) => e.preventDefault());
  form.addEventListener("reset", () => queueMicrotask(filter));
  for (const a of all(".numbers a")) {
    a.addEventListener("click", () => {
      form.reset();
      form.elements.state.value = a.dataset.state;
      form.elements.severity.value = a.dataset.severity;
      filter();
    });
  }

  // Devices: one search.
  const find = document.getElementById("find");
  const devices = all(".device");
  find?.addEventListener("input", () => {
    const words = find.value.toLowerCase().split(/\s+/);
    let shown = 0;
    for (const d of devices) {
      d.hidden = !words.every((word) => d.textContent.toLowerCase().includes(word));
      shown += d.hidden ? 0 : 1;
    }
    document.getElementById("found").textContent = find.value ? `${shown} of ${devices.length} shown` : "";
  });

  // A link opens what it leads to, and all around it.
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let e = target; e; e = e.parentElement) {
      e.hidden = false;
      if (e.tagName === "DETAILS") e.open = true;
    }
    target?.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  if (location.hash) reveal();

  // Paper has nothing to click on.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = document.getElementById("print-full").checked ? all("details:not([open])") : [];
    for (const d of closed) d.open = true;
  });
  addEventListener("afterprint", () => {
    for (const d of closed) d.open = false;
  });
})();
