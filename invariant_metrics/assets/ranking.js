"use strict";
(async () => {
const $ = id => document.getElementById(id);
if (!$("finder")) return;
if (!window.DecompressionStream) { $("refused").hidden = false; $("found").hidden = $("finder").hidden = $("kinds").hidden = $("listed").hidden = true; return; }

// Columns. A block is base64 of gzip of: the length of a JSON head, the head, then arrays at the places the head names.
const KINDS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i2: Int16Array, i4: Int32Array, f4: Float32Array, f8: Float64Array };
const unpack = async text => {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let k = 0; k < raw.length; k++) bytes[k] = raw.charCodeAt(k);
  const buffer = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
  const size = new DataView(buffer).getUint32(0, true), head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, size)));
  const found = head.values;
  for (const [name, kind, start, length] of head.arrays) found[name] = new KINDS[kind](buffer, 8 + size + start, length);
  return found;
};
const parsed = new Promise(done => { if (document.readyState === "loading") addEventListener("DOMContentLoaded", done, { once: true }); else done(); });
const blocks = new Map();
const block = name => { // the first two stand before this script, all others behind it
  if (!blocks.has(name)) blocks.set(name, (async () => { if (name !== "list" && name !== "concepts") await parsed; return unpack($(`data-${name}`).textContent); })());
  return blocks.get(name);
};

const make = (tag, props, ...children) => { // everything from the data goes in as text
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(props || {})) if (k in e) e[k] = v; else e.setAttribute(k, v);
  e.append(...children.flat(2).filter(c => c !== null && c !== undefined));
  return e;
};
const draw = (tag, props, ...children) => {
  const e = document.createElementNS($("drawing").namespaceURI, tag);
  for (const [k, v] of Object.entries(props)) e.setAttribute(k, v);
  e.append(...children);
  return e;
};
const said = (v, digits) => Number.isFinite(v) ? v.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }) : "–";
const whole = v => said(v, 0), plain = c => c.replace(/\.[nvars]\.\d+$/, "").replaceAll("_", " ");

const L = await block("list"), F = L.rank.length, M = L.models.length, PAGE = 25;
const lower = L.queries.map(q => q.toLowerCase());
const S = { page: 0, open: -1, at: -1, concept: -1, classes: 0 };
let order = new Uint32Array(F), C = null;

// Order and filters: a kept permutation per order, one pass over it for all filters.
const orders = new Map();
const permutation = (name, down) => {
  const key = `${name} ${down}`;
  if (!orders.has(key)) {
    const values = L[name], sign = down ? -1 : 1, whole = Uint32Array.from(L.rank, (_, k) => k);
    const good = whole.filter(k => values[k] === values[k]), none = whole.filter(k => values[k] !== values[k]);
    good.sort((a, b) => sign * (values[a] - values[b]) || a - b);
    whole.set(good);
    whole.set(none, good.length);
    orders.set(key, whole);
  }
  return orders.get(key);
};
const withConcept = (concept, role) => {
  const has = new Uint8Array(F);
  for (let f = 0; f < F; f++) for (let k = C.start[f]; k < C.start[f + 1]; k++)
    if (C.entry[k] >> 2 === concept && (role < 0 || (C.entry[k] & 3) === role)) { has[f] = 1; break; }
  return has;
};
const withWords = text => {
  const words = text.toLowerCase().split(/\s+/).filter(w => w);
  return words.length ? Uint8Array.from(lower, q => words.every(w => q.includes(w))) : null;
};
const counts = new Uint32Array(L.classes.length);
const select = () => {
  const perm = permutation($("sort").value, S.down), model = Number($("model").value || 0), words = withWords($("words").value);
  const has = S.concept >= 0 && C ? withConcept(S.concept, Number($("role").value)) : null, kept = new Uint32Array(F);
  let n = 0;
  counts.fill(0);
  for (let i = 0; i < F; i++) {
    const f = perm[i], bits = L.bits[f];
    if ((model >= 0 && M > 1 && L.model[f] !== model) || (words && !words[L.query[f]]) || (has && !has[f])) continue;
    if ((bits & S.classes) !== S.classes) continue;
    for (let c = 0; c < counts.length; c++) counts[c] += bits >> c & 1;
    kept[n++] = f;
  }
  order = kept.subarray(0, n);
};

// The list
const tags = bits => L.classes.filter((_, c) => bits >> c & 1);
const facts = f => [make("span", null, "rank ", make("b", null, whole(L.rank[f]))), ...[["CA", L.ca, 2], ["NCS", L.ncs, 2], ["CE", L.ce, 0], ["SD", L.sd, 2]].map(([n, v, d]) => make("span", null, `${n} ${said(v[f], d)}`))];
const link = f => make("a", { href: `#failure-${f + 1}`, id: `row-${f + 1}` }, make("span", { className: "said", dir: "auto" }, L.queries[L.query[f]] || "(empty query)"),
  make("small", null, M > 1 ? make("span", null, L.models[L.model[f]]) : null, facts(f), make("span", null, tags(L.bits[f]).join(", "))));
const mark = () => { for (const a of $("rows").querySelectorAll("a")) if (a.id === `row-${S.open + 1}`) a.setAttribute("aria-current", "true"); else a.removeAttribute("aria-current"); };
const list = () => {
  const n = order.length, pages = Math.max(1, Math.ceil(n / PAGE)), from = S.page * PAGE, to = Math.min(n, from + PAGE);
  $("rows").replaceChildren(...Array.from(order.subarray(from, to), f => make("li", null, link(f))));
  $("rows").start = from + 1;
  $("place").textContent = n ? `${whole(from + 1)}–${whole(to)} of ${whole(n)}` : "";
  $("before").disabled = S.page === 0;
  $("after").disabled = S.page >= pages - 1;
  mark();
  clearTimeout(S.waiting);
  S.waiting = setTimeout(glance, 120); // after the list, which is not to wait for it
};
const show = () => {
  const chosen = Number($("model").value || 0), all = M > 1 && chosen >= 0 ? L.model.reduce((s, m) => s + (m === chosen), 0) : F;
  S.page = 0;
  select();
  for (const [c, e] of [...$("kinds").querySelectorAll("button")].entries()) {
    e.setAttribute("aria-pressed", String(S.classes >> c & 1 ? true : false));
    e.lastChild.textContent = ` ${whole(counts[c])}`;
  }
  const any = order.length < all;
  $("found").replaceChildren(order.length ? `${whole(order.length)}${any ? ` of ${whole(all)}` : ""} failures ` : "No failure fits all of this. ", any ? make("button", { type: "button", onclick: clear }, "Clear all filters") : "");
  list();
};
const clear = () => { $("words").value = $("concept").value = ""; $("role").value = "-1"; S.classes = 0; S.concept = -1; show(); };
const turned = () => { $("turn").textContent = S.down ? "↓" : "↑"; $("turn").title = S.down ? "highest first" : "lowest first"; $("turn").setAttribute("aria-label", `order: ${$("turn").title}`); };
for (const [c, name] of L.classes.entries()) $("kinds").append(make("button", { type: "button", className: "tool", onclick: () => { S.classes ^= 1 << c; show(); } }, name, make("small", null, "")));
$("finder").addEventListener("submit", event => event.preventDefault());
$("words").addEventListener("input", show);
$("model").addEventListener("change", show);
$("role").addEventListener("change", show);
$("sort").addEventListener("change", () => { S.down = $("sort").selectedOptions[0].dataset.first === "high"; turned(); show(); });
$("turn").addEventListener("click", () => { S.down = !S.down; turned(); show(); });
const leaf = step => { S.page += step; list(); $("listed").scrollIntoView({ block: "nearest" }); };
$("before").addEventListener("click", () => leaf(-1));
$("after").addEventListener("click", () => leaf(1));

// Concepts by type-ahead: those that begin with what is typed, then those that hold it, the most frequent first.
const offer = async () => {
  C = C || await block("concepts");
  const typed = $("concept").value.trim().toLowerCase().replaceAll(" ", "_"), box = $("offers");
  if (document.activeElement !== $("concept")) return;
  const hits = [];
  if (typed) for (const c of C.frequent) {
    const at = C.names[c].toLowerCase().indexOf(typed);
    if (at >= 0) hits.push([at ? 1 : 0, hits.length, c]);
  }
  hits.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  box.replaceChildren(...hits.slice(0, 12).map(([, , c], k) => {
    const e = make("li", { role: "option", id: `offer-${k}`, "aria-selected": "false", onmousedown: event => { event.preventDefault(); choose(c); } }, make("span", null, C.names[c]), make("small", null, whole(C.often[c])));
    e.dataset.concept = c;
    return e;
  }));
  if (typed && !hits.length) box.append(make("li", { role: "option", "aria-disabled": "true" }, "no such concept"));
  open(typed !== "");
};
const open = yes => { $("offers").hidden = !yes; $("concept").setAttribute("aria-expanded", String(yes)); if (!yes) $("concept").removeAttribute("aria-activedescendant"); };
const choose = c => { $("concept").value = c < 0 ? "" : C.names[c]; S.concept = c; open(false); show(); };
$("concept").addEventListener("input", () => { if (S.concept >= 0) { S.concept = -1; show(); } offer(); });
$("concept").addEventListener("blur", () => { open(false); if (S.concept < 0) $("concept").value = ""; });
$("concept").addEventListener("keydown", event => {
  const all = [...$("offers").querySelectorAll("[data-concept]")], now = all.findIndex(e => e.getAttribute("aria-selected") === "true");
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step && all.length && !$("offers").hidden) {
    event.preventDefault();
    const next = (now + step + all.length) % all.length;
    all.forEach((e, k) => e.setAttribute("aria-selected", String(k === next)));
    all[next].scrollIntoView({ block: "nearest" });
    $("concept").setAttribute("aria-activedescendant", all[next].id);
  } else if (event.key === "Enter" && all.length && !$("offers").hidden) { event.preventDefault(); choose(Number(all[Math.max(now, 0)].dataset.concept)); }
  else if (event.key === "Escape") { event.stopPropagation(); if ($("offers").hidden) choose(-1); else open(false); }
});

// One failure
const WORDS = { both: "in both", pair: "has a partner in the other picture", lost: "missing in the retrieved picture", extra: "only in the retrieved picture", none: "counts for nothing: no known concept" };
const span = (column, k) => [column[k], column[k + 1]];
const rowsOf = (part, name, k, columns) => { // the rows of failure k of a ragged table
  const [from, to] = span(part[`${name}_start`], k);
  return Array.from({ length: to - from }, (_, r) => columns.map(c => part[`${name}_${c}`][from + r]));
};
const pictureOf = async at => {
  const part = await block(`pictures-${Math.floor(at / L.pictures_per_block)}`), k = at % L.pictures_per_block, [from, to] = span(part.object_start, k);
  const objects = Array.from({ length: to - from }, (_, r) => {
    const o = from + r; // a concept of 0 is none
    return { name: part.names[part.object_name[o]], concept: part.object_concept[o] - 1, box: [...part.box.subarray(4 * o, 4 * o + 4)] };
  });
  return { id: part.ids[k], source: part.sources[k], captions: part.captions[k], width: part.width[k], height: part.height[k], objects };
};
const RANKED = ["none", "both", "pair", "extra", "lost"];
const marked = box => box.every(v => v > -32768) && box[2] > 0 && box[3] > 0;
const shownWidth = () => Math.max(120, (($("opened").clientWidth || $("glance").clientWidth || $("browser").clientWidth) - 20) / 2); // of a picture, in pixels of the screen
const sheet = (picture, roles, label) => {
  const boxes = picture.objects.filter(o => marked(o.box)).map(o => ({ ...o, role: roles.get(o.concept) || "none" })).sort((a, b) => RANKED.indexOf(a.role) - RANKED.indexOf(b.role));
  const W = picture.width || Math.max(4, ...boxes.map(o => o.box[0] + o.box[2])), H = picture.height || Math.max(3, ...boxes.map(o => o.box[1] + o.box[3]));
  const svg = draw("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": label }), size = 12 * W / shownWidth(), told = new Set();
  if (picture.source) svg.append(draw("image", { href: picture.source, width: W, height: H, preserveAspectRatio: "none", class: W < 160 ? "coarse" : "" }));
  for (const o of boxes) {
    const [x, y, w, h] = o.box, e = draw("rect", { x, y, width: w, height: h, class: `box ${o.role}` }, draw("title", {}, `${o.name}: ${WORDS[o.role]}`));
    e.dataset.concept = o.concept;
    svg.append(e);
  }
  for (const o of [...boxes].reverse()) { // names last, above all boxes, and one for each concept
    const key = o.concept < 0 ? o.name : o.concept, quiet = picture.source && (o.role === "both" || o.role === "none");
    if (quiet || told.has(key)) continue;
    told.add(key);
    const text = o.name.length > 22 ? `${o.name.slice(0, 20)}…` : o.name, wide = Math.min(W, (text.length + 1) * size * 0.56);
    const x = Math.max(0, Math.min(o.box[0], W - wide)), y = Math.max(0, Math.min(o.box[1], H - 1.2 * size));
    const e = draw("g", { class: "named" }, draw("rect", { x, y, width: wide, height: 1.2 * size, class: "plate" }), draw("text", { x: x + size * 0.25, y: y + size * 0.92, "font-size": size }, text));
    e.dataset.concept = o.concept;
    svg.append(e);
  }
  if (!boxes.length && !picture.source) svg.append(draw("text", { x: W / 2, y: H / 2, "font-size": size * 1.4, "text-anchor": "middle", fill: "currentColor" }, "no picture and no boxes"));
  return svg;
};
const table = (title, heads, rows) => make("div", null, make("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": title }, make("table", null, make("caption", null, make("span", null, title)),
  make("thead", null, make("tr", null, heads.map(h => make("th", { scope: "col" }, h)))),
  make("tbody", null, rows.map(r => make("tr", null, make("th", { scope: "row" }, r[0]), r.slice(1).map(c => make("td", null, c))))))));

const measured = (f, part, k) => { // the four measures, of all concepts and of those that the query mentions
  const of = [`${whole(L.common[f])} of ${whole(L.common[f] + L.only_truth[f])} concepts`, `${whole(L.matched[f])} pairs`, "too many or too few", `${whole(L.sizes[f])} pairs of boxes`];
  const rows = [["CA", "ca", 3], ["NCS", "ncs", 3], ["CE", "ce", 0], ["SD", "sd", 3]].map(([name, c, d], at) => [[name, make("small", null, of[at])], said(L[c][f], d), said(part[`${c}_query`][k], d)]);
  return table("What the concepts say", ["measure", "all concepts", "the query's"], [...rows, [["covered", make("small", null, "of the query's concepts")], "", said(part.coverage[k], 3)]]);
};
const ORDER = ["lost", "extra", "pair", "both"];
const side = (picture, roles, title, conceptName) => {
  const counts = new Map();
  for (const o of picture.objects) counts.set(o.concept, (counts.get(o.concept) || 0) + 1);
  const sorted = [...roles].filter(([c]) => counts.has(c)).sort((a, b) => ORDER.indexOf(a[1]) - ORDER.indexOf(b[1]) || conceptName(a[0]).localeCompare(conceptName(b[0])));
  const buttons = sorted.map(([c, role]) => {
    const e = make("button", { type: "button", className: `tag ${role}`, title: `${conceptName(c)}: ${WORDS[role]}; a click shows its boxes alone`, "aria-pressed": "false" }, plain(conceptName(c)), counts.get(c) > 1 ? ` ×${counts.get(c)}` : "");
    e.dataset.concept = c;
    return e;
  });
  const figure = make("figure", null, make("figcaption", null, title), picture.source || picture.objects.length ? sheet(picture, roles, `${title}: ${picture.captions[0] || picture.id}`) : null,
    make("ul", { className: "tags", "aria-label": `concepts of: ${title}` }, buttons.map(b => make("li", null, b))),
    make("blockquote", null, picture.captions.map(c => make("p", { dir: "auto" }, c)), make("p", { className: "soft", dir: "auto" }, picture.id)));
  return figure;
};
const only = event => { // a concept's boxes alone, in both pictures; once more: all
  const button = event.target.closest("button.tag");
  if (!button) return;
  const on = button.getAttribute("aria-pressed") !== "true", key = button.dataset.concept;
  const here = event.currentTarget;
  for (const b of here.querySelectorAll("button.tag")) b.setAttribute("aria-pressed", String(on && b.dataset.concept === button.dataset.concept));
  for (const svg of here.querySelectorAll(".two svg")) {
    svg.classList.toggle("chosen", on);
    for (const e of svg.querySelectorAll("[data-concept]")) e.classList.toggle("strong", on && e.dataset.concept === key);
  }
};
for (const id of ["opened", "glance"]) $(id).addEventListener("click", only);

const build = async f => {
  C = C || await block("concepts");
  const part = await block(`failures-${Math.floor(f / L.failures_per_block)}`), k = f % L.failures_per_block;
  const [truth, retrieved] = await Promise.all([pictureOf(L.truth[f]), pictureOf(L.retrieved[f])]);
  const name = c => C.names[c], pairs = rowsOf(part, "matches", k, ["truth_concept", "retrieved_concept", "similarity"]).sort((a, b) => b[2] - a[2]);
  const left = new Map(), right = new Map(), paired = new Set(pairs.flatMap(p => p.slice(0, 2)));
  for (let i = C.start[f]; i < C.start[f + 1]; i++) {
    const c = C.entry[i] >> 2, role = C.entry[i] & 3;
    if (role === 0) { left.set(c, "both"); right.set(c, "both"); }
    if (role === 1) left.set(c, paired.has(c) ? "pair" : "lost");
    if (role === 2) right.set(c, paired.has(c) ? "pair" : "extra");
  }
  const number = rowsOf(part, "counts", k, ["concept", "truth_count", "retrieved_count"]).sort((a, b) => Math.abs(b[1] - b[2]) - Math.abs(a[1] - a[2]));
  const sizes = rowsOf(part, "sizes", k, ["concept", "truth_area", "retrieved_area", "difference"]).sort((a, b) => b[3] - a[3]);
  const ranks = L.models.map((m, at) => [at, m, L.ranks[at * L.queries.length + L.query[f]]]).filter(([at, , r]) => r && at !== L.model[f]).map(([, m, r]) => `${m}: ${r === 1 ? "right" : whole(r)}`);
  const classes = L.classes.map((c, at) => L.bits[f] >> at & 1 ? make("li", null, make("span", { className: "tag lost" }, c)) : null);
  const unjudged = L.classes.filter((_, at) => L.unjudged[f] >> at & 1), wide = truth.objects.length + retrieved.objects.length > 0;
  return [
    make("p", { className: "soft" }, make("button", { type: "button", onclick: close }, "← Back to the list"), `  ·  failure ${whole(f + 1)}${M > 1 ? ` of ${L.models[L.model[f]]}` : ""}  ·  `, make("a", { href: `#failure-${f + 1}` }, "link to it")),
    make("h3", { tabIndex: -1, dir: "auto" }, L.queries[L.query[f]] || "(empty query)"),
    make("ul", { className: "tags", "aria-label": "what went wrong" }, classes, unjudged.length ? make("li", { className: "soft" }, `not judged: ${unjudged.join(", ")}`) : null),
    part.missing[k] ? make("p", { dir: "auto" }, make("b", null, "Of the query the retrieved picture lacks: "), part.missing[k]) : null,
    part.extra[k] ? make("p", { dir: "auto" }, make("b", null, "It has instead: "), part.extra[k]) : null,
    make("p", { className: "ranked" }, make("b", null, `Rank of the truth: ${whole(L.rank[f])}`), ` of ${whole(L.size[L.model[f]])}`, M > 1 && ranks.length ? ` (${ranks.join(", ")})` : ""),
    make("div", { className: "two" }, side(truth, left, `Right, ranked ${whole(L.rank[f])}`, name), side(retrieved, right, "Ranked first instead", name)),
    make("p", { className: "soft" }, ["lost", "extra", "pair", "both"].map(r => [make("span", { className: "nobr" }, make("span", { className: `key ${r}` }), ` ${WORDS[r]}`), " \u2003 "])),
    make("div", { className: "tables" },
      measured(f, part, k),
      pairs.length ? table("Pairs of concepts that stand in for one another", ["right picture", "retrieved", "similarity"], pairs.map(p => [name(p[0]), name(p[1]), said(p[2], 3)])) : null,
      number.length ? table("How many, of concepts in both", ["concept", "right picture", "retrieved", "difference"], number.map(r => [name(r[0]), whole(r[1]), whole(r[2]), said(r[2] - r[1], 0)])) : null,
      sizes.length ? table(`How large (${L.unit}), of concepts in both`, ["concept", "right picture", "retrieved", "relative difference"], sizes.map(r => [name(r[0]), said(r[1], L.digits), said(r[2], L.digits), said(r[3], 2)])) : null),
    wide ? null : make("p", { className: "soft" }, "Nothing is marked in these pictures, so there are no concepts to compare.")];
};

// While none is open, the first of the list stands beside it where there is room; the address and the focus stay as they are.
const roomy = matchMedia("(min-width: 64rem)");
const glance = async () => {
  const f = S.open < 0 && $("opened").hidden && roomy.matches && order.length ? order[S.page * PAGE] : -1;
  $("glance").hidden = f < 0;
  if (f === S.glanced) return;
  S.glanced = f;
  const parts = f < 0 ? [] : (await build(f)).slice(1);
  if (S.glanced !== f) return; // another one came first meanwhile
  $("glance").replaceChildren(...(f < 0 ? [] : [make("p", { className: "soft" }, "The first of the list  ·  ", make("a", { href: `#failure-${f + 1}` }, "open it"))]), ...parts.filter(p => p));
};
roomy.addEventListener("change", () => glance());

// Which failure is open is said by the fragment, so that a link leads to it and the back button works.
const place = f => { const at = order.indexOf(f); if (at >= 0 && Math.floor(at / PAGE) !== S.page) { S.page = Math.floor(at / PAGE); list(); } return at; };
const render = async focus => {
  const wanted = /^#failure-(\d+)$/.exec(location.hash), f = wanted ? Number(wanted[1]) - 1 : -1;
  S.open = f >= 0 && f < F ? f : -1;
  const isOpen = S.open >= 0 || wanted !== null;
  $("browser").classList.toggle("open", isOpen);
  $("failures").classList.toggle("open", isOpen);
  $("opened").hidden = !isOpen;
  glance();
  if (!isOpen) { mark(); return; }
  if (S.open < 0) { $("opened").replaceChildren(make("p", null, `There is no failure ${wanted[1]} here; there are ${whole(F)}. `, make("button", { type: "button", onclick: close }, "Show the list"))); return; }
  place(f);
  mark();
  S.at = f;
  const parts = await build(f);
  if (S.open !== f) return; // another one was opened meanwhile
  $("opened").replaceChildren(...parts.filter(p => p));
  $("opened").scrollTop = 0;
  const head = $("opened").querySelector("h3");
  if (focus) { head.focus({ preventScroll: true }); if (innerWidth < 1024 || $("opened").getBoundingClientRect().top < 0 || $("opened").getBoundingClientRect().top > innerHeight / 2) $("browser").scrollIntoView(); }
};
const row = f => $(`row-${f + 1}`);
const close = () => { const f = S.open; history.pushState(null, "", "#failures"); render(false); if (f >= 0 && row(f)) row(f).focus(); else $("failures").scrollIntoView(); };
const step = by => {
  if (!order.length) return;
  if (S.open >= 0) { // open: on to the next one, without a step for the back button
    const at = order.indexOf(S.open), next = at < 0 ? 0 : Math.min(order.length - 1, Math.max(0, at + by));
    history.replaceState(null, "", `#failure-${order[next] + 1}`);
    return render(true);
  }
  const now = document.activeElement && /^row-\d+$/.test(document.activeElement.id) ? order.indexOf(Number(document.activeElement.id.slice(4)) - 1) : -1;
  const last = S.at >= 0 ? order.indexOf(S.at) : -1, next = now < 0 ? (last >= 0 ? last : S.page * PAGE) : Math.min(order.length - 1, Math.max(0, now + by));
  place(order[next]);
  S.at = order[next];
  row(order[next]).focus();
};
addEventListener("keydown", event => {
  const at = event.target, typing = at.matches && at.matches("input, select, textarea"), here = at === document.body || $("failures").contains(at);
  if (event.ctrlKey || event.metaKey || event.altKey || !here) return;
  if (event.key === "Escape") { if (typing) at.blur(); else if (S.open >= 0) close(); return; }
  if (typing) return;
  const inside = at !== document.body && !at.closest(".scroll"), by = { j: 1, k: -1, ...(inside ? { ArrowDown: 1, ArrowUp: -1 } : {}) }[event.key];
  if (by) { event.preventDefault(); step(by); }
  if (event.key === "/") { event.preventDefault(); if (S.open >= 0 && innerWidth < 1024) close(); $("words").focus(); }
});
addEventListener("popstate", () => render(true));

S.down = $("sort").selectedOptions[0].dataset.first === "high";
turned();
show();
performance.mark("first-list");
await render(true);
C = C || await block("concepts");
performance.mark("ready");
})();
