// What a page of the console does in the browser: signing in by a link, live updates, charts, and the
// check of the book. Everything works without it except live updates, charts and that check.

import { $, column, element, extent, known, legend, linear, linearY, listenToMarks, logarithmic, logTicks, missing, number, open, path, shorten, spread, ticks, xAxis, yAxis } from "./charts.js";

// ---- signing in: the token stands behind #, where no server and no other page sees it
function signInByLink() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!$("sign-in") || !token) return;
  history.replaceState(null, "", location.pathname);
  $("token").value = token;
  $("sign-in").submit();
}

// ---- live updates: one event per change of the book; htmx then fetches what the page shows of it
function listenToBook() {
  const page = document.querySelector("[data-events]");
  if (!page) return;
  const events = new EventSource(page.dataset.events);
  const mark = (on) => $("live-mark")?.classList.toggle("on", on);
  let seen = page.dataset.version, focused = false; // seen: what the page shows
  const grew = () => document.body.dispatchEvent(new CustomEvent("book"));
  events.addEventListener("open", (event) => {
    mark(true);
    if (event.data && event.data !== seen) grew(); // what happened while no stream was open
    seen = event.data ?? seen;
  });
  events.addEventListener("book", (event) => { seen = event.lastEventId; grew(); });
  events.addEventListener("error", () => mark(false));
  const problem = (shown) => { $("live-problem").hidden = !shown; };
  document.body.addEventListener("htmx:responseError", () => problem(true));
  document.body.addEventListener("htmx:sendError", () => problem(true));
  document.body.addEventListener("htmx:beforeSwap", () => { focused = $("live").contains(document.activeElement); });
  document.body.addEventListener("htmx:afterSettle", () => {
    problem(false);
    mark(events.readyState === EventSource.OPEN);
    $("live-news").textContent = $("live").dataset.news;
    // htmx keeps the focus on what has an id; what is gone leaves it to the heading.
    if (focused && document.activeElement === document.body) $("live").querySelector("h1").focus();
    $("live-mark")?.classList.add("new");
    drawCharts();
    // A round that came while this one was fetched: htmx forgets it with the part that it replaced.
    if (parseInt($("live").dataset.records) < parseInt(seen)) grew();
  });
}

// ---- charts
const kinds = ["k0", "k1", "k2", "k3", "k4"];

function roundAxis(box, count, label) {
  const x = linear([0, Math.max(count - 1, 1)], [box.left + 6, box.right - 6]);
  const whole = ticks([0, Math.max(count - 1, 1)], (box.right - box.left) / 90).filter(([k]) => Number.isInteger(k) && k < count);
  xAxis(box, x, whole.map(([k]) => [k, label(k)]), "round");
  return x;
}

// Squared norms of all members over the last rounds, with the band that was audited.
function drawNorms(id, data) {
  const values = data.members.flatMap((m) => m.norms).filter((v) => v > 0);
  if (!values.length) return missing(id, "No squared norms to show.");
  const bands = data.band.filter((b) => b && b[0] > 0), [low, high] = extent([...values, ...bands.flat()]);
  const box = open(id, "Squared norms of the last rounds by member"), domain = [low / 1.3, high * 1.3];
  const y = logarithmic(domain, [box.bottom, box.top]);
  yAxis(box, y, logTicks(domain, 5), "squared norm");
  const x = roundAxis(box, data.rounds.length, (k) => String(data.rounds[k].round));
  data.band.forEach((b, k) => {
    if (!b || !(b[0] > 0)) return;
    const from = k === 0 ? box.left : (x(k - 1) + x(k)) / 2, to = k === data.band.length - 1 ? box.right : (x(k) + x(k + 1)) / 2;
    element(box.plot, "rect", { class: "window", x: from, y: y(b[1]), width: to - from, height: y(b[0]) - y(b[1]) });
  });
  const many = data.members.length > kinds.length, kind = (i) => (many ? "other" : kinds[i]);
  data.members.forEach((m, i) => path(box.plot, kind(i), m.norms.map((v, k) => [x(k), v > 0 ? y(v) : null])));
  const stride = Math.ceil(data.rounds.length / 60), width = Math.max((box.right - box.left) / Math.ceil(data.rounds.length / stride), 2);
  for (let k = 0; k < data.rounds.length; k += stride) {
    const top = data.members.map((m) => [m.label, m.norms[k]]).filter(([, v]) => known(v)).sort((a, b) => b[1] - a[1]).slice(0, 6);
    column(box, x(k) - width / 2, width, [`round ${data.rounds[k].round} of ${data.rounds[k].run}`, ...top.map(([name, v]) => `${shorten(name, 24)}: ${number(v)}`)]);
  }
  const items = many ? [["other", `${data.members.length} members`]] : data.members.map((m, i) => [kinds[i], shorten(m.label, 24)]);
  legend(id, [...items, ...(bands.length ? [["green area", "audited band"]] : [])]);
}

function drawSeries(id, points, label, scaleY, words) {
  const box = open(id, label), y = scaleY(box), sequences = points.map(([s]) => s);
  const domain = sequences.length > 1 ? extent(sequences) : [sequences[0] - 1, sequences[0] + 1];
  const x = linear(domain, [box.left + 4, box.right - 4]);
  xAxis(box, x, ticks(domain, (box.right - box.left) / 90).filter(([s]) => Number.isInteger(s)), "record");
  path(box.plot, "k0 main", points.map(([s, v]) => [x(s), y(v)]));
  if (points.length === 1) element(box.plot, "circle", { class: "dot k0", cx: x(sequences[0]), cy: y(points[0][1]), r: 4 });
  const stride = Math.ceil(points.length / 60), width = Math.max((box.right - box.left) / Math.ceil(points.length / stride), 2);
  for (let k = 0; k < points.length; k += stride) column(box, x(points[k][0]) - width / 2, width, [`record ${points[k][0]}`, words(points[k][1])]);
}

function drawBalance(id, data) {
  if (!data.balance.length) return missing(id, "Nothing is booked yet.");
  const scale = (box) => linearY(box, spread(data.balance.map(([, v]) => v)), `owed (${shorten(data.currency, 12)})`);
  drawSeries(id, data.balance, "Balance over the records", scale, (v) => `${number(v, true)} ${data.currency}`);
}

function drawNorm(id, data) {
  const points = data.norm.filter(([, v]) => v > 0);
  if (!points.length) return missing(id, "No squared norms to show.");
  const [low, high] = extent(points.map(([, v]) => v)), domain = [low / 1.3, high * 1.3];
  const scale = (box) => { const y = logarithmic(domain, [box.bottom, box.top]); yAxis(box, y, logTicks(domain, 5), "squared norm"); return y; };
  drawSeries(id, points, "Squared norm over the records", scale, (v) => number(v));
}

const drawings = { norms: drawNorms, balance: drawBalance, norm: drawNorm };
const fetched = new Map(); // by address: two charts may show the same data

async function drawCharts() {
  fetched.clear();
  for (const svg of document.querySelectorAll("svg[data-chart]")) {
    const source = svg.dataset.source;
    if (!fetched.has(source)) fetched.set(source, fetch(source).then((answer) => (answer.ok ? answer.json() : null), () => null));
    const data = await fetched.get(source);
    if (!svg.isConnected) continue;
    if (data) drawings[svg.dataset.chart](svg.id, data);
    else missing(svg.id, "The numbers cannot be read now.");
  }
}

function redrawOnNewWidth() {
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; drawCharts(); } });
}

// ---- a phone shows the tab of this page, however many stand before it
function showTab() {
  document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
}

// ---- on paper nobody opens a line: all arithmetic is printed
function openForPrint() {
  let closed = [];
  matchMedia("print").addEventListener("change", (paper) => {
    if (paper.matches) closed = [...document.querySelectorAll("details:not([open], .card)")];
    for (const each of closed) each.open = paper.matches;
  });
}

signInByLink();
listenToBook();
listenToMarks();
redrawOnNewWidth();
drawCharts();
showTab();
openForPrint();
if ($("checker")) import("./checker.js").then(({ listenToChecker }) => listenToChecker($("checker")));
