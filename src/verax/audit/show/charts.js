// Charts: numbers in words, scales, axes, marks with tooltips. One module for the audit's report, which
// carries it inside its page, and for the console, which imports it. Tooltips need an element #tip.

// ---- small helpers
export const $ = (id) => document.getElementById(id);
export const known = (x) => typeof x === "number" && Number.isFinite(x);
export const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
export const extent = (values) => [Math.min(...values), Math.max(...values)];
export const shorten = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

export function element(parent, tag, attributes = {}, text = null) {
  const child = document.createElementNS(parent.namespaceURI, tag);
  for (const [key, value] of Object.entries(attributes)) child.setAttribute(key, value);
  if (text !== null) child.textContent = text;
  return parent.appendChild(child);
}

// The same as in verax/amounts.py, which writes the verdict and the tables that are not drawn here.
export function number(x, sign = false) {
  if (!known(x)) return "–";
  const head = x < 0 ? "−" : sign && x > 0 ? "+" : "", size = Math.abs(x);
  if (size === 0) return "0";
  if (size >= 1e-4 && size < 1e9) return head + (size >= 100 ? size.toFixed(0).replace(/\B(?=(\d{3})+$)/g, ",") : size.toPrecision(3));
  const [mantissa, exponent] = size.toExponential(2).split("e");
  const raised = [...String(Number(exponent))].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c])).join("");
  return `${head}${mantissa}·10${raised}`;
}
export const signed = (x) => number(x, true);
export const brief = (x) => number(x).replace(/(\.\d*?)0+(?=$|·)/, "$1").replace(/\.(?=$|·)/, "").replace(/^1·10/, "10");
export const interval = (x, shift = 0) => (known(x?.low) && known(x?.high) ? `${signed(x.low - shift)} … ${signed(x.high - shift)}` : "");
export const grid = ([low, high], count) => Array.from({ length: count }, (_, k) => low * (high / low) ** (k / (count - 1)));

// ---- scales and ticks
export const linear = ([a, b], [from, to]) => (x) => from + ((x - a) / (b - a || 1)) * (to - from);

export function logarithmic(domain, range) {
  const place = linear(domain.map(Math.log), range);
  return (x) => place(Math.log(x));
}

// Logarithmic, with a place for zero at the left end.
export function withZero(domain, [from, to]) {
  const place = logarithmic(domain, [from + 0.07 * (to - from), to]);
  return (x) => (x <= 0 ? from : clamp(place(x), from, to));
}

// What holds all values and zero, with some room.
export function spread(values) {
  const [low, high] = extent([0, ...values.filter(known)]), room = 0.06 * (high - low) || 1;
  return [low < 0 ? low - room : 0, high > 0 || low === 0 ? high + room : 0];
}

export function ticks([low, high], count) {
  const rough = (high - low || 1) / Math.max(count, 1), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((m) => m * power >= rough) * power;
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9)), plain = digits <= 4 && step < 1e5;
  const words = (v) => (v === 0 ? "0" : plain ? v.toFixed(digits).replace("-", "−") : brief(v));
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, k) => (first + k) * step).map((v) => [v, words(v)]);
}

export function logTicks([low, high], count) {
  const decades = Math.log10(high / low), stride = Math.max(1, Math.ceil(decades / count)), result = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.log10(high); e++) {
    for (const factor of decades * 3 <= count ? [1, 2, 5] : [1]) {
      const value = Number(`${factor}e${e}`);
      if (e % stride === 0 && value >= low && value <= high) result.push([value, brief(value)]);
    }
  }
  return result;
}

// Charts on paper have one width, whatever the window has.
export const paper = { printing: false };

// ---- drawing: a box has a back for the axes, a clipped plot, and a front
export function open(id, label, height = 250, left = 58) {
  const svg = $(id), card = svg.parentElement, style = getComputedStyle(card);
  const inside = card.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  const width = paper.printing ? 320 : Math.max(inside, 200);
  const box = { svg, left, right: width - 8, top: 26, bottom: height - 38 };
  svg.replaceChildren();
  const settings = { viewBox: `0 0 ${width} ${height}`, role: "group", tabindex: 0, "aria-label": label };
  for (const [key, value] of Object.entries(settings)) svg.setAttribute(key, value);
  element(element(svg, "clipPath", { id: `${id}-clip` }), "rect", tall(box, left, box.right - left));
  box.back = element(svg, "g");
  box.plot = element(svg, "g", { "clip-path": `url(#${id}-clip)` });
  box.front = element(svg, "g");
  return box;
}

export const line = (parent, kind, x1, y1, x2, y2) => element(parent, "line", { class: kind, x1, y1, x2, y2 });
export const write = (parent, x, y, text, anchor = "start", kind = "") => element(parent, "text", { x, y, "text-anchor": anchor, class: kind }, text);

export function xAxis(box, scale, marks, label) {
  line(box.back, "axis", box.left, box.bottom, box.right, box.bottom);
  for (const [value, text] of marks) {
    line(box.back, "axis", scale(value), box.bottom, scale(value), box.bottom + 4);
    const mark = write(box.back, scale(value), box.bottom + 17, text, "middle");
    const over = scale(value) + mark.getComputedTextLength() / 2 - (box.right + 8);
    if (over > 0) mark.setAttribute("x", scale(value) - over);
  }
  write(box.back, box.right, box.bottom + 34, label, "end");
}

export function yAxis(box, scale, marks, label) {
  for (const [value, text] of marks) {
    line(box.back, value === 0 ? "axis" : "grid", box.left, scale(value), box.right, scale(value));
    write(box.back, box.left - 7, scale(value) + 4, text, "end");
  }
  write(box.back, 0, 12, label);
}

export function linearY(box, domain, label) {
  const y = linear(domain, [box.bottom, box.top]);
  yAxis(box, y, ticks(domain, 5), label);
  return y;
}

export function path(parent, kind, points) {
  const place = ([x, y]) => `${x.toFixed(1)},${clamp(y, -9999, 9999).toFixed(1)}`;
  const d = points.filter(([, y]) => known(y)).map(place).join("L");
  if (d) element(parent, "path", { class: `line ${kind}`, d: `M${d}` });
}

export function whisker(parent, x, low, high) {
  if (known(low) && known(high)) element(parent, "path", { class: "whisker", d: `M${x},${low}V${high}m-3,0h6M${x - 3},${low}h6` });
}

// An unseen shape that answers the pointer and the keyboard with a tooltip.
export function hit(box, shape, attributes, lines) {
  const tip = lines.filter(Boolean).join("\n");
  element(box.front, shape, { class: "hit", tabindex: -1, role: "img", "aria-label": tip, "data-tip": tip, ...attributes });
}

export const tall = (box, x, width) => ({ x, y: box.top, width, height: box.bottom - box.top });
export const column = (box, x, width, lines) => hit(box, "rect", tall(box, x, width), lines);

export function legend(id, items) {
  $(`${id}-legend`).replaceChildren();
  for (const [kind, text] of items) element($(`${id}-legend`), "li", { class: kind }, text);
}

export function missing(id, words) {
  write(open(id, words, 70).front, 0, 30, words);
  legend(id, []);
}

// ---- tooltips
// The mark under the pointer, else the one that has the focus: a page that scrolls under a resting pointer hides nothing.
export function showTip(target) {
  const tip = $("tip"), mark = target?.closest?.("[data-tip]") ?? document.activeElement.closest("[data-tip]");
  tip.hidden = !mark;
  if (!mark) return;
  tip.textContent = mark.dataset.tip;
  const at = mark.getBoundingClientRect(), own = tip.getBoundingClientRect(), above = at.top - own.height - 8;
  tip.style.left = `${clamp(at.left + at.width / 2 - own.width / 2, 6, innerWidth - own.width - 6)}px`;
  tip.style.top = `${above > 0 ? above : Math.min(at.bottom + 8, innerHeight - own.height - 6)}px`;
}

// The arrow keys go from mark to mark within a chart.
export function walkMarks(event) {
  const chart = event.target.closest?.(".chart"), step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!chart || !step) return;
  const marks = [...chart.querySelectorAll("[data-tip]")];
  marks[clamp(marks.indexOf(document.activeElement) + step, 0, marks.length - 1)]?.focus({ preventScroll: true });
  event.preventDefault();
}

export function listenToMarks() {
  for (const kind of ["mouseover", "focusin"]) addEventListener(kind, (e) => showTip(e.target));
  addEventListener("scroll", () => showTip(null), { passive: true });
  addEventListener("keydown", walkMarks);
}
