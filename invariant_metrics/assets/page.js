"use strict";
(() => {
const number = text => {
  const said = text.trim().replace(/\u2212/g, "-");
  if (/^(∞|never)/.test(said)) return Infinity;
  if (said.startsWith("-∞")) return -Infinity;
  const found = said.match(/^[-+]?\d*\.?\d+(e[-+]?\d+)?/i);
  return found ? parseFloat(found[0]) : NaN;
};
const shown = cell => (cell && (cell.querySelector("b") || cell.firstChild) || { textContent: "" }).textContent;
const sort = (table, head, k, rows) => {
  const body = table.tBodies[0], was = head.getAttribute("aria-sort"), key = row => shown(row.cells[k]);
  const numbers = k > 0 && rows.some(row => !Number.isNaN(number(key(row))));
  const order = numbers ? ["descending", "ascending"] : ["ascending", "descending"], now = order[order.indexOf(was) + 1];
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  if (!now) return body.append(...rows);
  head.setAttribute("aria-sort", now);
  const sign = now === "ascending" ? 1 : -1, last = row => numbers && Number.isNaN(number(key(row)));
  const less = (a, b) => numbers ? number(key(a)) - number(key(b)) || 0 : key(a).localeCompare(key(b));
  body.append(...[...rows].sort((a, b) => last(a) - last(b) || (last(a) ? 0 : sign * less(a, b))));
};
for (const table of document.querySelectorAll("table.sortable")) {
  const rows = [...table.tBodies[0].rows];
  [...table.tHead.rows[0].cells].forEach((head, k) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sort(table, head, k, rows));
  });
}
const hint = () => { for (const box of document.querySelectorAll(".scroll")) box.classList.toggle("more", box.scrollWidth > box.clientWidth + 1); };
addEventListener("resize", hint);
document.addEventListener("toggle", hint, true);
hint();
const reveal = hash => {
  const goal = hash.length > 1 && document.getElementById(decodeURIComponent(hash.slice(1)));
  for (let e = goal; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true;
  if (goal) goal.scrollIntoView();
};
for (const link of document.querySelectorAll('a[href^="#"]')) link.addEventListener("click", () => reveal(link.hash));
addEventListener("hashchange", () => reveal(location.hash));
reveal(location.hash);
const every = document.createElement("button"), all = document.querySelectorAll("details");
every.type = "button";
every.textContent = "Unfold everything";
every.addEventListener("click", () => { const open = ![...all].every(e => e.open); for (const e of all) e.open = open; every.textContent = open ? "Fold everything" : "Unfold everything"; });
document.querySelector(".contents").append(every);
addEventListener("beforeprint", () => { for (const e of all) e.open = true; });
const dialog = document.createElement("dialog"), large = new Image(), named = document.createElement("p");
document.body.append(dialog);
dialog.addEventListener("close", () => dialog.replaceChildren());
dialog.addEventListener("click", () => dialog.close());
for (const small of document.querySelectorAll("main img")) {
  const open = () => {
    const fits = Math.min(0.92 * innerWidth / small.naturalWidth, 0.88 * innerHeight / small.naturalHeight), times = Math.max(1, Math.floor(fits));
    large.src = small.src;
    large.alt = small.alt;
    large.width = times * small.naturalWidth;
    named.textContent = `${small.alt}, each pixel ${times} wide; a click closes`;
    dialog.append(large, named);
    dialog.showModal();
  };
  small.tabIndex = 0;
  small.setAttribute("role", "button");
  small.title = "enlarge";
  small.addEventListener("click", open);
  small.addEventListener("keydown", event => { if (event.key === "Enter") open(); });
}
})();
