// What the live figures of the book share: the losses, a model for pages without a kernel, controls and colours.
// Python puts this file in front of a figure's own script: an anywidget is one module, and a page opened from its folder
// can import none.

// ---- Mathematics: the pivot algorithm in float64 ------------------------------------------------------------------

/** Indices of the classes other than `skip`, from the largest score to the smallest; ties keep their order. */
function descending(scores, skip = -1) {
  return [...scores.keys()].filter((i) => i !== skip).sort((a, b) => scores[b] - scores[a] || a - b);
}

/**
 * S_j = σ_j(eˣ) / exp(x_[1] + … + x_[j]) for j = 0..k, where x = sorted / scale and `sorted` is in descending order.
 * Each polynomial is kept in units of its own largest term, so 1 ≤ S_j ≤ C(n, j) whatever the scale:
 * every factor is at most one, nothing is subtracted, and what underflows is negligible.
 */
function scaledPolynomials(sorted, k, scale) {
  const S = new Float64Array(k + 1);
  S[0] = 1;
  sorted.forEach((score, i) => {
    for (let j = Math.min(i + 1, k); j > 0; j--) S[j] += Math.exp((score - sorted[j - 1]) / scale) * S[j - 1];
  });
  return S;
}

const softplus = (z) => Math.max(z, 0) + Math.log1p(Math.exp(-Math.abs(z)));
const sigmoid = (z) => (z >= 0 ? 1 / (1 + Math.exp(-z)) : Math.exp(z) / (1 + Math.exp(z)));

/** The k-th largest score of the classes other than the true one: the one meaning of "k-th score" in this figure. */
const kthOther = (scores, label, k) => scores[descending(scores, label)[k - 1]];

/** What the loss and its gradient share: the other scores in order, their polynomials, the softplus argument. */
function pivotForm(scores, label, { k, tau, margin }) {
  const order = descending(scores, label);
  const sorted = order.map((i) => scores[i]);
  const S = scaledPolynomials(sorted, k, k * tau);
  const hardMargin = margin + (sorted[k - 1] - scores[label]) / k;
  const correction = Math.log(S[k] / S[k - 1]);
  return { order, sorted, S, hardMargin, correction, argument: hardMargin / tau + correction };
}

/** The smooth top-k loss, eq. (9): L = τ softplus(hard margin / τ + log(S_k / S_{k−1})). */
export function smoothTopKLoss(scores, label, { k = 5, tau = 1, margin = 1 } = {}) {
  return tau * softplus(pivotForm(scores, label, { k, tau, margin }).argument);
}

/**
 * ∂L/∂s. With T the polynomials without class i, the entry of i is
 * w e_i (T_{k−1}² − T_{k−2} T_k) / (σ_k σ_{k−1}), w = sigmoid(argument) / k; Newton's inequality keeps the
 * difference above T_{k−1}² / k, so no digits are lost to it.
 */
export function smoothTopKGradient(scores, label, { k = 5, tau = 1, margin = 1 } = {}) {
  const { order, sorted, S, argument } = pivotForm(scores, label, { k, tau, margin });
  const weight = sigmoid(argument) / k;
  const gradient = new Array(scores.length).fill(-weight);
  order.forEach((i, rank) => {
    const rest = sorted.filter((_, r) => r !== rank);
    const T = scaledPolynomials(rest, k, k * tau);
    const gap = k > 1 && rest.length >= k ? Math.exp((rest[k - 1] - rest[k - 2]) / (k * tau)) : 0;
    const spread = T[k - 1] ** 2 - (gap && gap * T[k - 2] * T[k]);
    const distance = Math.abs(scores[i] - sorted[k - 1]) / (k * tau);
    gradient[i] = (weight * Math.exp(-distance) * spread) / (S[k] * S[k - 1]);
  });
  return gradient;
}

/** Probability that each class is in a random k-subset weighted by exp(Σ s / (kτ)); sums to k (appendix C). */
export function topKProbabilities(scores, { k = 5, tau = 1 } = {}) {
  const order = descending(scores);
  const sorted = order.map((i) => scores[i]);
  const total = scaledPolynomials(sorted, k, k * tau)[k];
  const probabilities = new Array(scores.length);
  order.forEach((i, rank) => {
    const rest = scaledPolynomials(sorted.filter((_, r) => r !== rank), k - 1, k * tau)[k - 1];
    probabilities[i] = (Math.exp(Math.min(0, scores[i] - sorted[k - 1]) / (k * tau)) * rest) / total;
  });
  return probabilities;
}

/** The hard top-k loss on the scale of eq. (8): max(margin + (s_[k] − s_y) / k, 0), s_[k] taken without y. */
export function hardTopKLoss(scores, label, { k = 5, margin = 1 } = {}) {
  return Math.max(margin + (kthOther(scores, label, k) - scores[label]) / k, 0);
}

/** A subgradient of the hard loss: at most two entries are not zero. */
export function hardTopKGradient(scores, label, { k = 5, margin = 1 } = {}) {
  const gradient = new Array(scores.length).fill(0);
  if (hardTopKLoss(scores, label, { k, margin }) === 0) return gradient;
  gradient[descending(scores, label)[k - 1]] = 1 / k;
  gradient[label] = -1 / k;
  return gradient;
}

export function softmax(scores) {
  const largest = Math.max(...scores);
  const weights = scores.map((score) => Math.exp(score - largest));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight) => weight / total);
}

export function crossEntropy(scores, label) {
  const largest = Math.max(...scores);
  return largest - scores[label] + Math.log(scores.reduce((sum, score) => sum + Math.exp(score - largest), 0));
}

export const crossEntropyGradient = (scores, label) => softmax(scores).map((p, i) => (i === label ? p - 1 : p));

/** The classes of the top-k prediction; ties are broken by index. */
export const topKSet = (scores, k) => new Set(descending(scores).slice(0, k));

// ---- Pages without a kernel ---------------------------------------------------------------------------------------

/** The five methods of an anywidget model that the figures use. */
export function standInModel(values) {
  const state = { ...values };
  const listeners = new Map();
  return {
    get: (name) => state[name],
    set(name, value) {
      state[name] = value;
      (listeners.get(`change:${name}`) ?? []).forEach((listener) => listener());
    },
    save_changes() {},
    on: (event, listener) => listeners.set(event, [...(listeners.get(event) ?? []), listener]),
    off: (event, listener) => listeners.set(event, (listeners.get(event) ?? []).filter((l) => l !== listener)),
  };
}

/** Draws a figure in every element of the page with the attribute `mark`, which holds its values as JSON. */
function drawInPage(mark, render, modelOf) {
  if (typeof document === "undefined") return;
  document.querySelectorAll(`[${mark}]`).forEach((el) => {
    render({ model: modelOf(JSON.parse(el.getAttribute(mark) || "{}")), el });
    el.removeAttribute(mark); // drawn once, even where the script is on the page twice
  });
}

// ---- Elements -----------------------------------------------------------------------------------------------------

// JupyterLab takes the arrow keys for moving between cells, unless the element that has the focus says otherwise.
const OWN_KEYS = { "data-lm-suppress-shortcuts": "true" };
const SVG_TAGS = new Set(["svg", "g", "path", "rect", "line", "circle", "text", "clipPath"]);

function element(tag, attributes = {}, ...children) {
  const node = SVG_TAGS.has(tag)
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  setAttributes(node, attributes);
  node.append(...children);
  return node;
}

function setAttributes(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
}

/** A number as a reader writes it: three digits, a real minus sign, powers of ten only where they help. */
function show(value, digits = 3) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size >= 1e-3 && size < 1e5 ? String(Number(value.toPrecision(digits))) : value.toExponential(digits - 1).replace(/\.?0+e/, "e");
  return text.replace("e+", "e").replaceAll("-", "−");
}

const linear = (from, to, start, end) => (value) => start + ((value - from) / (to - from)) * (end - start);

/** A line through points of a panel. */
const pathThrough = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(2)} ${y.toFixed(2)}`).join("");

function button(text, onClick, attributes = {}) {
  const node = element("button", { type: "button", ...attributes, ...OWN_KEYS }, text);
  node.addEventListener("click", onClick);
  return node;
}

let lastId = 0;

/** A label, its input below it, and the value at the end of the label's line. */
function labelled(text, symbol, input, ...value) {
  input.id = `live-${(lastId += 1)}`;
  return element("div", { class: "control" }, element("label", { for: input.id }, text, " ", element("i", {}, symbol)), ...value, input);
}

/** A slider: `toValue` and `toPosition` translate between its position and the value that it shows and reports. */
function slider(text, symbol, { name, toValue = (v) => v, toPosition = (v) => v, ...range }, onInput) {
  const input = element("input", { type: "range", name, ...range, ...OWN_KEYS });
  const output = element("span", { class: "value" });
  input.addEventListener("input", () => onInput(toValue(input.valueAsNumber)));
  const update = (value) => {
    const position = toPosition(value);
    if (input.valueAsNumber !== position) input.value = position;
    output.textContent = show(value);
    input.setAttribute("aria-valuetext", `${name} ${show(value)}`);
  };
  return { node: labelled(text, symbol, input, output), input, update };
}

/** The range of a slider over powers of ten. */
const powersOfTen = (min, max, step, digits) => ({
  min, max, step,
  toValue: (position) => Number((10 ** position).toPrecision(digits)),
  toPosition: (value) => Number(Math.log10(value).toFixed(2)),
});

/** The range of a slider over given values, evenly spread. */
const stops = (values) => ({
  min: 0, max: values.length - 1, step: 1,
  toValue: (position) => values[position],
  toPosition: (value) => values.reduce((best, stop, i) => (Math.abs(stop - value) < Math.abs(values[best] - value) ? i : best), 0),
});

const key = (name, text) => element("span", { class: `key ${name}` }, text);

// ---- Look: colours come from the page's theme (the book's, then JupyterLab's); dashes say the same without colour ----

const SHARED_STYLE = `
.explorable {
  --ink: var(--pst-color-text-base, var(--jp-content-font-color1, #1f2328));
  --paper: var(--pst-color-background, var(--jp-layout-color0, #fff));
  --soft: color-mix(in srgb, var(--ink) 62%, var(--paper));
  --line: color-mix(in srgb, var(--ink) 16%, var(--paper));
  --smooth: #1f6fb4; --hard: #a3541a; --true: #9b2d86; --ghost: #2f7d4f;
  container-type: inline-size; color: var(--ink); background: var(--paper);
  font: 14px/1.4 system-ui, sans-serif; margin: 0.5rem 0 1rem;
  i { font-family: "STIX Two Math", "Cambria Math", Georgia, serif; }
  .controls { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 9.5rem), 1fr)); gap: 0.5rem 1.25rem; }
  .control { display: grid; grid-template-columns: 1fr auto; align-items: center; gap: 0 0.5rem; margin: 0; font-size: 0.95em;
    label { margin: 0; font: inherit; white-space: nowrap; }
    input, select { grid-column: 1 / -1; width: 100%; height: 1.9rem; margin: 0; accent-color: var(--smooth); font: inherit; color: var(--ink); background: var(--paper); }
    select { border: 1px solid var(--line); border-radius: 4px; }
    .value { font-variant-numeric: tabular-nums; font-weight: 600; }
  }
  .buttons { display: flex; flex-wrap: wrap; gap: 0.4rem; margin: 0.6rem 0; }
  button { font: inherit; font-size: 0.88em; color: var(--ink); background: transparent; border: 1px solid color-mix(in srgb, var(--ink) 30%, var(--paper)); border-radius: 999px; padding: 0.15rem 0.75rem; min-height: 1.9rem; cursor: pointer;
    &:hover { background: var(--line); }
    &:is([aria-pressed="true"], .main), &:is([aria-pressed="true"], .main):hover { background: var(--smooth); border-color: var(--smooth); color: var(--paper); }
  }
  :is(input, select, button, [tabindex]):focus-visible { outline: 3px solid var(--smooth); outline-offset: 2px; }
  .caption { display: flex; flex-wrap: wrap; gap: 0 0.7rem; align-items: center; min-height: 1.9rem; margin: 0; text-align: left; font-size: 1em; color: var(--ink); }
  .note { color: var(--soft); font-size: 0.88em; }
  .key::before { content: ""; display: inline-block; width: 1.7em; margin-right: 0.35em; vertical-align: 0.25em; border-top: 3px solid var(--smooth); }
  .key.cross::before { border-top: 2px dashed var(--ink); }
  svg { display: block; max-width: 100%; overflow: visible; }
  text { fill: var(--soft); font: 11px system-ui, sans-serif; font-variant-numeric: tabular-nums; }
  .grid { stroke: var(--line); }
  .axis { stroke: var(--soft); }
  .curve { fill: none; stroke-width: 2; }
  .curve.smooth { stroke: var(--smooth); stroke-width: 3; }
  .curve.cross { stroke: var(--ink); stroke-dasharray: 6 4; }
  .status { position: absolute; width: 1px; height: 1px; margin: 0; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
  &.narrow {
    button { min-height: 44px; min-width: 44px; }
    .control :is(input, select) { height: 44px; }
  }
  @media (pointer: coarse) { .control :is(input, select), button { min-height: 44px; } }
}
[data-theme="dark"] .explorable, [data-jp-theme-light="false"] .explorable {
  --smooth: #6fb3ff; --hard: #f0a468; --true: #f093dd; --ghost: #7fd3a0;
}
`;

