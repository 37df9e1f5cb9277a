// The tau explorer: scores, loss, gradient and top-k probabilities, redrawn as tau, k, the margin or a score moves.
// In JupyterLab it is the front end of TauExplorer (anywidget calls `render`); in the static book it fills every element
// with a `data-tau-explorer` attribute. explorable.js stands in front of it.

// ---- Gradient steps ------------------------------------------------------------------------------------------------

const LOSSES = {
  smooth: { title: "the smooth loss", value: smoothTopKLoss, gradient: smoothTopKGradient },
  hard: { title: "the hard loss", value: hardTopKLoss, gradient: hardTopKGradient },
  cross: { title: "cross-entropy", value: crossEntropy, gradient: crossEntropyGradient },
};

/** The scores after each of `steps` steps of gradient descent on one of the three losses. */
export function descend(loss, scores, label, options, { rate, steps }) {
  const path = [scores];
  for (let step = 0; step < steps; step++) {
    const gradient = LOSSES[loss].gradient(path[step], label, options);
    path.push(path[step].map((score, i) => Math.min(Math.max(score - rate * gradient[i], -FARTHEST), FARTHEST)));
  }
  return path.slice(1);
}

/** How many derivatives survive in single precision. */
export const countNonZeroInFloat32 = (gradient) => gradient.filter((g) => Math.fround(g) !== 0).length;

const DEFAULTS = { tau: 1, k: 5, margin: 1, scores: [3.2, 6.1, -1.4, 4.5, 0.6, 2.4, 5, -2.6, 1.5, -0.5], label: 8 };

// ---- The state in the address: #tau=0.1&k=5&margin=1&label=8&scores=3.2,6.1,... ----------------------------------

const RANGES = { tau: [1e-4, 1e2], margin: [0, 3] };
const SCORE_LIMIT = 10; // how far a score is dragged
const FARTHEST = 100; // how far steps of the gradient can take it

export function toAddress({ tau, k, margin, label, scores }) {
  const numbers = scores.map((score) => Number(score.toPrecision(6)));
  return `#tau=${tau}&k=${k}&margin=${margin}&label=${label}&scores=${numbers.join(",")}`;
}

/** The values an address carries; what is missing, no number or out of range is left out. */
export function fromAddress(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const values = {};
  const scores = (given.get("scores") ?? "").split(",").filter((text) => text !== "").map(Number);
  if (scores.length >= 3 && scores.length <= 40 && scores.every((score) => Math.abs(score) <= FARTHEST)) values.scores = scores;
  for (const [name, [low, high]] of Object.entries(RANGES)) {
    const value = Number(given.get(name) ?? NaN);
    if (value >= low && value <= high) values[name] = value;
  }
  const classes = (values.scores ?? DEFAULTS.scores).length;
  for (const [name, low, high] of [["k", 1, classes - 1], ["label", 0, classes - 1]]) {
    const value = Number(given.get(name) ?? NaN);
    if (Number.isInteger(value) && value >= low && value <= high) values[name] = value;
  }
  return values;
}

// ---- Drawing helpers ----------------------------------------------------------------------------------------------

/** Round numbers that cover [from, to] in about `count` steps. */
function ticks(from, to, count) {
  const rough = (to - from) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
  const first = Math.ceil(from / step - 1e-9);
  const length = Math.floor(to / step + 1e-9) - first + 1;
  return Array.from({ length }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

const MARGINS = { top: 12, right: 10, bottom: 34, left: 40 };
const HEIGHT = 236;
const NARROW = 620; // pixels; below, panels stand under each other and scores are sliders in rows
const SMALLEST = 1e-8; // of the logarithmic scale of the gradient

/** Scales and axis of a panel with one column per class. */
function classAxes(width, count, from, to) {
  const y = linear(from, to, HEIGHT - MARGINS.bottom, MARGINS.top);
  const band = (width - MARGINS.left - MARGINS.right) / count;
  return { y, band, middle: (i) => MARGINS.left + (i + 0.5) * band, barWidth: Math.min(band * 0.64, 34) };
}

function horizontalGrid(width, y, values) {
  return values.flatMap((value) => [
    element("line", { class: value === 0 ? "axis" : "grid", x1: MARGINS.left, x2: width - MARGINS.right, y1: y(value), y2: y(value) }),
    element("text", { class: "tick", x: MARGINS.left - 6, y: y(value) + 3.5, "text-anchor": "end" }, show(value)),
  ]);
}

const under = (axes, i, line) => ({ x: axes.middle(i), y: HEIGHT - MARGINS.bottom + 15 * line, "text-anchor": "middle" });

/** A name below each class, the true one marked; every few classes only where they stand close. */
function classLabels(axes, names, label) {
  const every = Math.ceil(18 / axes.band);
  return names.flatMap((name, i) => {
    if (i === label) return [element("text", { class: "tick true", ...under(axes, i, 1) }, every > 1 ? "y" : `${name}=y`)];
    return i % every || (every > 1 && Math.abs(i - label) < every) ? [] : [element("text", { class: "tick", ...under(axes, i, 1) }, name)];
  });
}

/** The numbers behind the bars, where there is room for them; on a phone there is none for the zero before a point. */
function classValues(axes, texts) {
  const fitting = (text) => (axes.band < 36 ? text.replace("0.", ".") : text);
  return axes.band < 24 ? [] : texts.map((text, i) => element("text", { class: "tick value", ...under(axes, i, 2) }, fitting(text)));
}

/** A bar between the axis and a value, one pixel thick at least where the value is not zero. */
function bar(axes, i, value, className) {
  const [top, bottom] = [Math.min(axes.y(value), axes.y(0)), Math.max(axes.y(value), axes.y(0))];
  const height = Math.max(bottom - top, value === 0 ? 0 : 1);
  return element("rect", { class: className, x: axes.middle(i) - axes.barWidth / 2, y: top, width: axes.barWidth, height });
}

// ---- Panels: each returns the children of its svg, and a sentence for a screen reader -----------------------------

/** A mark across the column of a class: of the pinned state, or of cross-entropy. */
const mark = (axes, i, value, name = "ghost") =>
  element("line", { class: name, x1: axes.middle(i) - axes.barWidth * 0.75, x2: axes.middle(i) + axes.barWidth * 0.75, y1: axes.y(value), y2: axes.y(value) });

/** Where gradient steps led: round ends of lines without a length. */
const trail = (points) => element("path", { class: "trail", d: points.map(([x, y]) => `M${x.toFixed(1)} ${y.toFixed(1)}h0`).join("") });

/** The next of 1, 2, 5, 10, 20, ...: an axis that ends there stays where it is while its curves move a little. */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((m) => m * power).find((end) => end >= value * 0.999);
}

function lossPanel(width, state, { pinned, trace }) {
  const { scores, label, k, names } = state;
  const reach = Math.max(SCORE_LIMIT, ...scores.map(Math.abs));
  const grid = Array.from({ length: 161 }, (_, i) => -reach + (i * reach) / 80);
  const along = (of, loss) => grid.map((score) => loss(of.scores.map((other, i) => (i === of.label ? score : other)), of.label, of));
  const curves = ["cross", "hard", "smooth"].map((name) => [name, along(state, LOSSES[name].value), LOSSES[name].value(scores, label, state)]);
  const ghost = pinned && along(pinned, smoothTopKLoss);
  // Cross-entropy is about k times steeper: half of its height is enough to see its shape.
  const highest = roundUp(Math.max(...curves[1][1], ...curves[2][1], ...(ghost ?? []), curves[0][1][0] / 2, curves[0][2], 0.01));
  const x = linear(-reach, reach, MARGINS.left, width - MARGINS.right);
  const y = linear(0, highest, HEIGHT - MARGINS.bottom, MARGINS.top);
  const inside = (value) => Math.min(value, highest * 1.2);
  const kth = kthOther(scores, label, k);
  const flip = x(kth) + 115 > width; // the label stands right of its line, away from the curves, where there is room
  const clip = `clip-${Math.random().toString(36).slice(2)}`;
  const line = (values) => pathThrough(values.map((value, i) => [x(grid[i]), y(inside(value))]));
  const children = [
    element("clipPath", { id: clip }, element("rect", { x: MARGINS.left, y: MARGINS.top, width: width - MARGINS.left - MARGINS.right, height: HEIGHT - MARGINS.top - MARGINS.bottom + 2 })),
    ...horizontalGrid(width, y, ticks(0, highest, 5)),
    ...ticks(-reach, reach, 5).map((value) => element("text", { class: "tick", x: x(value), y: HEIGHT - MARGINS.bottom + 15, "text-anchor": "middle" }, show(value))),
    element("text", { class: "tick", x: (MARGINS.left + width - MARGINS.right) / 2, y: HEIGHT - 4, "text-anchor": "middle" }, "score of the true class"),
    element("line", { class: "threshold", x1: x(kth), x2: x(kth), y1: MARGINS.top, y2: y(0) }),
    element("line", { class: "true-line", x1: x(scores[label]), x2: x(scores[label]), y1: MARGINS.top, y2: y(0) }),
    ...(ghost ? [element("path", { class: "ghost", d: line(ghost), "clip-path": `url(#${clip})` })] : []),
    ...curves.map(([name, values]) => element("path", { class: `curve ${name}`, d: line(values), "clip-path": `url(#${clip})` })),
    trail(trace.map((past) => [x(past.scores[label]), y(inside(LOSSES[past.loss].value(past.scores, label, past)))])),
    ...(pinned ? [element("circle", { class: "ghost", cx: x(pinned.scores[pinned.label]), cy: y(inside(smoothTopKLoss(pinned.scores, pinned.label, pinned))), r: 4 })] : []),
    ...curves.map(([name, , value]) => element("circle", { class: `dot ${name}`, cx: x(scores[label]), cy: y(inside(value)), r: 4 })),
    element("text", { class: "tick front", x: x(kth) + (flip ? -4 : 4), y: MARGINS.top + 9, "text-anchor": flip ? "end" : "start" }, `k-th other score ${show(kth)}`),
  ];
  const [cross, hard, smooth] = curves.map(([, , value]) => show(value));
  return [children, `Loss against the score of class ${names[label]}: smooth ${smooth}, hard ${hard}, cross-entropy ${cross}.`];
}

/** Bars of the gradient: with their sign, or their sizes on a logarithmic scale, where small ones can be seen. */
function gradientPanel(width, { scores, label, k, tau, margin, names }, { pinned, logarithmic }) {
  const smooth = smoothTopKGradient(scores, label, { k, tau, margin });
  const hard = hardTopKGradient(scores, label, { k, margin });
  const cross = crossEntropyGradient(scores, label).map((g) => g / k); // on the scale of the others
  const before = pinned ? smoothTopKGradient(pinned.scores, pinned.label, pinned) : [];
  const largest = Math.max(1 / k, pinned ? 1 / pinned.k : 0);
  const exponent = (g) => (Math.fround(g) === 0 ? 0 : Math.max(Math.log10(Math.abs(g) / SMALLEST), 0.04));
  const height = logarithmic ? exponent : Math.fround;
  const axes = logarithmic
    ? classAxes(width, scores.length, 0, Math.log10((1.6 * largest) / SMALLEST))
    : classAxes(width, scores.length, -1.08 * largest, 1.08 * largest);
  const size = (g) => (Math.fround(g) === 0 ? "0" : show(g, Math.abs(g) < 0.01 ? 1 : 2));
  const powers = Array.from({ length: 4 }, (_, i) => -8 + 2 * i);
  const lines = logarithmic
    ? powers.flatMap((power) => {
        const y = axes.y(power + 8);
        return [
          element("line", { class: power === -8 ? "axis" : "grid", x1: MARGINS.left, x2: width - MARGINS.right, y1: y, y2: y }),
          element("text", { class: "tick", x: MARGINS.left - 6, y: y + 3.5, "text-anchor": "end" }, `1e−${-power}`),
        ];
      })
    : horizontalGrid(width, axes.y, [-1 / k, 0, 1 / k]);
  const children = [
    ...lines,
    ...classLabels(axes, names, label),
    ...smooth.map((g, i) => bar(axes, i, height(g), `fill smooth${g < 0 ? " negative" : ""}`)),
    ...hard.flatMap((g, i) => (g ? [bar(axes, i, height(g), "outline hard")] : [])),
    ...cross.flatMap((g, i) => (Math.fround(g) !== 0 ? [mark(axes, i, height(g), "curve cross")] : [])),
    ...before.flatMap((g, i) => (i < scores.length && Math.fround(g) !== 0 ? [mark(axes, i, height(g))] : [])),
    ...classValues(axes, smooth.map(size)),
  ];
  const alive = countNonZeroInFloat32(smooth);
  return [children, `Gradient: ${alive} of ${scores.length} derivatives are not zero in float32; ${show(smooth[label])} for the true class.`];
}

function probabilityPanel(width, { scores, label, k, tau, names }, { pinned }) {
  const marginals = topKProbabilities(scores, { k, tau });
  const before = pinned ? topKProbabilities(pinned.scores, pinned) : [];
  const axes = classAxes(width, scores.length, 0, 1.04);
  const children = [
    ...horizontalGrid(width, axes.y, [0, 0.25, 0.5, 0.75, 1]),
    ...classLabels(axes, names, label),
    ...marginals.map((p, i) => bar(axes, i, p, "fill smooth")),
    ...softmax(scores).map((p, i) => mark(axes, i, p, "curve cross")),
    ...before.slice(0, scores.length).map((p, i) => mark(axes, i, p)),
    ...classValues(axes, marginals.map((p) => (p < 0.005 ? "0" : p.toFixed(2)))),
  ];
  return [children, `Top-${k} probabilities: ${show(marginals[label], 2)} for the true class; all of them sum to ${k}.`];
}

const sub = (text) => element("sub", {}, text);

/**
 * The share 1 / (1 + exp(argument)) of the sets with the true class. A share below the smallest number is written from its
 * logarithm, and one close to 1 from its distance to 1: so its logarithm is the one that the loss has.
 */
export function shareText(argument) {
  const [share, rest] = [sigmoid(-argument), sigmoid(argument)];
  if (rest < 0.001) return `1 − ${show(rest)}`;
  if (share >= 0.001) return `${show(100 * share)} %`;
  const exponent = Math.floor(-softplus(argument) / Math.LN10);
  return `${show(10 ** (-softplus(argument) / Math.LN10 - exponent))}e−${-exponent}`;
}

/** The loss in three lines, each with the numbers of the moment. */
function formulaLines({ scores, label, k, tau, margin }) {
  const { hardMargin, correction, argument } = pivotForm(scores, label, { k, tau, margin });
  const loss = tau * softplus(argument);
  const text = (value) => (value < 0 ? `(${show(value)})` : show(value));
  const kth = kthOther(scores, label, k);
  return [
    ["hard margin", ["h = α + (s", sub("[k]"), " − s", sub("y"), ") / k"], `${show(margin)} + (${show(kth)} − ${text(scores[label])}) / ${k}`, show(hardMargin)],
    ["smooth loss", ["L = τ softplus(h / τ + c)"], `${show(tau)} · softplus(${show(hardMargin / tau)} ${correction < 0 ? "−" : "+"} ${show(Math.abs(correction))})`, show(loss)],
    ["share of the k-sets with y", ["L = −τ log(share)"], `−${show(tau)} · log(${shareText(argument)})`, show(loss)],
  ];
}

// ---- The scores: bars that are sliders ----------------------------------------------------------------------------

class ScoreBars {
  constructor(svg, setScore) {
    this.svg = svg;
    this.setScore = setScore;
    this.backdrop = element("g");
    this.ghosts = element("g", { class: "ghosts" });
    this.bars = [];
    svg.append(this.backdrop, this.ghosts);
  }

  draw(width, { scores, label, k, names }, { pinned, trace }) {
    if (this.bars.length !== scores.length) this.#rebuild(scores.length);
    this.scores = scores;
    const limit = Math.max(SCORE_LIMIT, ...scores.map(Math.abs));
    const axes = (this.axes = classAxes(width, scores.length, -limit * 1.06, limit * 1.06));
    const chosen = topKSet(scores, k);
    const kth = kthOther(scores, label, k);
    this.backdrop.replaceChildren(
      ...horizontalGrid(width, axes.y, ticks(-limit, limit, 4)),
      element("line", { class: "threshold", x1: MARGINS.left, x2: width - MARGINS.right, y1: axes.y(kth), y2: axes.y(kth) }),
      ...classLabels(axes, names, label),
    );
    this.ghosts.replaceChildren(
      ...(pinned?.scores ?? []).slice(0, scores.length).map((score, i) => mark(axes, i, score)),
      trail(trace.flatMap((past) => past.scores.map((score, i) => [axes.middle(i), axes.y(score)]))),
    );
    this.bars.forEach((node, i) => this.#update(node, i, { score: scores[i], limit, inside: chosen.has(i), isTrue: i === label, name: names[i] }));
    const text = [...chosen].map((i) => names[i]).join(", ");
    return `Scores of ${scores.length} classes. Top ${k}: ${text}. True class ${names[label]}.`;
  }

  #rebuild(count) {
    this.bars.forEach((node) => node.remove());
    this.bars = Array.from({ length: count }, (_, i) => {
      const node = element("g", { class: "score", role: "slider", tabindex: "0", "aria-orientation": "vertical", ...OWN_KEYS });
      node.append(element("rect", { class: "grip" }), element("rect", { class: "body" }), element("circle", { class: "handle", r: 6 }));
      node.addEventListener("keydown", (event) => this.#key(event, i));
      node.addEventListener("pointerdown", (event) => this.#grab(event, node, i));
      this.ghosts.before(node);
      return node;
    });
  }

  #update(node, i, { score, limit, inside, isTrue, name }) {
    const { y, middle, barWidth, band } = this.axes;
    const [grip, body, handle] = node.children;
    const [top, bottom] = [Math.min(y(score), y(0)), Math.max(y(score), y(0))];
    node.setAttribute("class", `score${inside ? " inside" : ""}${isTrue ? " true" : ""}`);
    // The grip is wider than the bar, for fingers, and ends near the handle, so that a page still scrolls beside it.
    setAttributes(grip, { x: middle(i) - band / 2, y: top - 16, width: band, height: bottom - top + 32, rx: 4 });
    setAttributes(body, { x: middle(i) - barWidth / 2, y: top, width: barWidth, height: Math.max(bottom - top, 1) });
    setAttributes(handle, { cx: middle(i), cy: y(score) });
    setAttributes(node, {
      "aria-label": `Score of class ${name}${isTrue ? ", the true class" : ""}`,
      "aria-valuemin": -limit,
      "aria-valuemax": limit,
      "aria-valuenow": score,
      "aria-valuetext": `${show(score)}, ${inside ? "in" : "outside"} the top k`,
    });
  }

  #key(event, i) {
    const moves = { ArrowUp: 0.1, ArrowRight: 0.1, ArrowDown: -0.1, ArrowLeft: -0.1, PageUp: 1, PageDown: -1, Home: -Infinity, End: Infinity };
    if (!(event.key in moves)) return;
    event.preventDefault();
    this.setScore(i, (score) => score + moves[event.key]);
  }

  #grab(event, node, i) {
    event.preventDefault();
    node.focus({ preventScroll: true });
    node.setPointerCapture(event.pointerId);
    const box = this.svg.getBoundingClientRect();
    const { y } = this.axes;
    const offset = event.clientY - (this.svg.getBoundingClientRect().top + y(this.scores[i]));
    const perPixel = y(0) - y(1);
    const move = (moved) => this.setScore(i, () => (y(0) - (moved.clientY - box.top - offset)) / perPixel);
    const release = () => {
      node.removeEventListener("pointermove", move);
      ["pointerup", "pointercancel"].forEach((name) => node.removeEventListener(name, release));
    };
    node.addEventListener("pointermove", move);
    ["pointerup", "pointercancel"].forEach((name) => node.addEventListener(name, release));
  }
}

/** The scores on a phone: one slider per class, each as high as a finger needs, that move across the page's scroll. */
class ScoreRows {
  constructor(node, setScore) {
    this.node = node;
    this.setScore = setScore;
    this.rows = [];
  }

  draw({ scores, label, k, names }) {
    if (this.rows.length !== scores.length) this.#rebuild(scores.length);
    const limit = Math.max(SCORE_LIMIT, ...scores.map(Math.abs));
    const chosen = topKSet(scores, k);
    this.rows.forEach(({ row, name, input, value }, i) => {
      row.style.setProperty("--place", `${(50 * (scores[i] + limit)) / limit}%`);
      row.className = `score-row${chosen.has(i) ? " inside" : ""}${i === label ? " true" : ""}`;
      name.textContent = i === label ? `${names[i]} = y` : names[i];
      setAttributes(input, { min: -limit, max: limit, "aria-label": `Score of class ${names[i]}${i === label ? ", the true class" : ""}` });
      if (Math.abs(input.valueAsNumber - scores[i]) > 0.05) input.value = scores[i];
      input.setAttribute("aria-valuetext", `${show(scores[i])}, ${chosen.has(i) ? "in" : "outside"} the top k`);
      value.textContent = show(scores[i], 2);
    });
  }

  #rebuild(count) {
    this.rows = Array.from({ length: count }, (_, i) => {
      const name = element("span", { class: "name" });
      const input = element("input", { type: "range", step: 0.1, ...OWN_KEYS });
      const value = element("span", { class: "value" });
      input.addEventListener("input", () => this.setScore(i, () => input.valueAsNumber));
      return { row: element("div", {}, name, input, value), name, input, value };
    });
    this.node.replaceChildren(...this.rows.map(({ row }) => row));
  }
}

// ---- The whole explorer -------------------------------------------------------------------------------------------

const TRAITS = ["tau", "k", "margin", "scores", "label", "names"];
const TRACE = 150; // places of a trace at most
const PRESETS = [
  ["Paper, CIFAR-100: k = 5, τ = 1", { k: 5, tau: 1, margin: 1 }],
  ["Paper, ImageNet: k = 5, τ = 0.1", { k: 5, tau: 0.1, margin: 1 }],
  ["Nearly hard: τ = 0.001", { tau: 1e-3 }],
  ["Cross-entropy: k = 1, τ = 1, α = 0", { k: 1, tau: 1, margin: 0 }],
];

/** What the model holds, made consistent: k and the label may arrive before the scores they belong to. */
function read(model) {
  const scores = [...model.get("scores")];
  const given = model.get("names") ?? [];
  return {
    scores,
    tau: model.get("tau"),
    margin: model.get("margin"),
    k: Math.min(model.get("k"), scores.length - 1),
    label: Math.min(model.get("label"), scores.length - 1),
    names: scores.map((_, i) => given[i] ?? String(i)),
  };
}

function panel(title, note, className = "") {
  const svg = element("svg", { height: HEIGHT, class: className });
  const caption = element("div", { class: "caption" }, element("b", {}, title), element("span", { class: "note" }, ...note));
  return { svg, caption, node: element("div", { class: "panel" }, caption, svg) };
}

function render({ model, el }) {
  const view = { pinned: null, logarithmic: false, rate: 1, steps: 1, taken: 0, trace: [] }; // what is shown and not part of the state
  const set = (values) => {
    Object.entries(values).forEach(([name, value]) => model.set(name, value));
    model.save_changes();
  };
  // What is drawn may be a key behind the model, so a step starts from the model's score.
  const setScore = (i, next) => {
    const scores = [...model.get("scores")];
    const limit = Math.max(SCORE_LIMIT, ...scores.map(Math.abs));
    scores[i] = Number(Math.min(Math.max(next(scores[i]), -limit), limit).toFixed(2));
    set({ scores });
  };
  const start = { ...read(model) };

  const tau = slider("Temperature", "τ", { name: "tau", ...powersOfTen(-4, 2, 0.01, 3) }, (v) => set({ tau: v }));
  const k = slider("Guesses", "k", { name: "k", min: 1, max: 9, step: 1 }, (v) => set({ k: v }));
  const margin = slider("Margin", "α", { name: "margin", min: 0, max: 3, step: 0.05 }, (v) => set({ margin: v }));
  const label = element("select", { name: "label", ...OWN_KEYS });
  label.addEventListener("change", () => set({ label: Number(label.value) }));
  const presets = PRESETS.map(([text, values]) =>
    button(text, () => set({ ...values, k: Math.min(values.k ?? model.get("k"), model.get("scores").length - 1) })),
  );
  const reset = button("Start again", () => {
    Object.assign(view, { pinned: null, taken: 0, trace: [] });
    set({ scores: start.scores, label: start.label, k: start.k, tau: start.tau, margin: start.margin });
    draw();
  });
  const pin = button("Pin this state", () => {
    view.pinned = view.pinned ? null : read(model);
    draw();
  });
  const link = model.carriesAddress ? [copyLink(model)] : [];

  const rate = slider("Learning rate", "η", { name: "rate", ...powersOfTen(-2, 2, 0.05, 2) }, (v) => {
    view.rate = v;
    draw();
  });
  const steps = element("select", { name: "steps", ...OWN_KEYS }, ...[1, 10, 100].map((count) => element("option", { value: count }, String(count))));
  steps.addEventListener("change", () => (view.steps = Number(steps.value)));
  const taken = element("p", { class: "taken" });
  const step = (loss) => {
    const state = read(model);
    view.pinned ??= state; // where the scores come from stays in sight
    view.taken += view.steps;
    const path = descend(loss, state.scores, state.label, state, view);
    const trace = [...view.trace, ...path.map((past) => ({ ...state, loss, scores: past }))];
    view.trace = trace.filter((_, i) => i % Math.ceil(trace.length / TRACE) === 0);
    set({ scores: path.at(-1).map((score) => Number(score.toPrecision(8))) });
  };
  const stepping = element(
    "fieldset",
    { class: "stepping" },
    element("legend", {}, "Take a gradient step"),
    rate.node,
    labelled("Steps at once", "", steps),
    element("div", { class: "buttons" }, ...Object.entries(LOSSES).map(([loss, { title }]) => button(`on ${title}`, () => step(loss)))),
    taken,
  );

  const rows = element("div", { class: "score-rows" });
  const threshold = key("threshold", "");
  const scores = panel("Scores", ["filled: the top k", element("span", { class: "how" }, "drag a bar"), threshold], "scores");
  scores.node.append(rows);
  const loss = panel("Loss", [key("smooth", "smooth"), key("hard", "hard"), key("cross", "cross-entropy")]);
  const logarithmic = button("log scale", () => {
    view.logarithmic = !view.logarithmic;
    draw();
  }, { class: "toggle", "aria-pressed": "false" });
  const gradient = panel("Gradient", [key("smooth", "smooth"), key("hard", "hard"), key("cross", "cross-entropy ÷ k"), logarithmic], "gradient");
  const share = element("p", { class: "share" });
  gradient.node.append(share);
  const probability = panel("Top-k probability", [key("smooth", "in the top k, at τ"), key("cross", "softmax")]);
  const formula = element("table", { class: "formula" });
  const summary = element("p", { class: "summary" });
  const status = element("p", { class: "status", role: "status" });
  const root = element(
    "div",
    { class: "explorable tau-explorer", role: "group", "aria-label": "Tau explorer" },
    element("style", {}, SHARED_STYLE + STYLE),
    element("div", { class: "controls" }, tau.node, k.node, margin.node, labelled("True class", "y", label)),
    element("div", { class: "buttons presets" }, ...presets, reset, pin, ...link),
    summary,
    element("div", { class: "panels" }, scores.node, stepping, loss.node, gradient.node, probability.node),
    element("div", { class: "formula-box" }, formula),
    status,
  );
  const bars = new ScoreBars(scores.svg, setScore);
  const list = new ScoreRows(rows, setScore);
  scores.svg.setAttribute("role", "group");

  function drawControls(state) {
    tau.update(state.tau);
    k.input.max = state.scores.length - 1;
    k.update(state.k);
    margin.update(state.margin);
    rate.update(view.rate);
    if (label.options.length !== state.names.length || state.names.some((name, i) => label.options[i].text !== name)) {
      label.replaceChildren(...state.names.map((name, i) => element("option", { value: i }, name)));
    }
    label.value = state.label;
    pin.textContent = view.pinned ? "Unpin" : "Pin this state";
    logarithmic.setAttribute("aria-pressed", String(view.logarithmic));
  }

  function drawPanel({ svg, node }, drawing, state) {
    const width = node.clientWidth;
    if (width === 0) return "";
    const [children, sentence] = drawing(width, state, view);
    setAttributes(svg, { viewBox: `0 0 ${width} ${HEIGHT}`, width, role: "img", "aria-label": sentence });
    svg.replaceChildren(...children);
    return sentence;
  }

  let announcement;
  function draw() {
    const state = read(model);
    drawControls(state);
    const width = scores.node.clientWidth;
    if (width === 0) return;
    const narrow = root.clientWidth < NARROW;
    threshold.textContent = `k-th other score ${show(kthOther(state.scores, state.label, state.k))}`;
    root.classList.toggle("narrow", narrow);
    if (narrow) list.draw(state);
    else {
      setAttributes(scores.svg, { viewBox: `0 0 ${width} ${HEIGHT}`, width });
      scores.svg.setAttribute("aria-label", bars.draw(width, state, view));
    }
    const sentence = drawPanel(loss, lossPanel, state);
    drawPanel(gradient, gradientPanel, state);
    drawPanel(probability, probabilityPanel, state);
    formula.replaceChildren(...formulaLines(state).map(([name, symbols, numbers, value]) =>
      element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, ...symbols), element("td", {}, `= ${numbers}`), element("td", {}, "= ", element("b", {}, value))),
    ));
    summarise(state, sentence);
  }

  function summarise(state, sentence) {
    const alive = countNonZeroInFloat32(smoothTopKGradient(state.scores, state.label, state));
    const counted = `${alive} of ${state.scores.length} derivatives (${Math.round((100 * alive) / state.scores.length)} %) are not zero in float32`;
    share.textContent = counted;
    const rank = 1 + state.scores.filter((score) => score > state.scores[state.label]).length;
    const place = `the true class ranks ${rank}: ${rank <= state.k ? "inside" : "outside"} the top ${state.k}`;
    const line = (of) => Object.values(LOSSES).flatMap(({ title, value }) => [`${title.replace(/the | loss/g, "")} `, element("b", {}, show(value(of.scores, of.label, of))), " · "]);
    const ghost = view.pinned
      ? [element("br"), key("ghost", ""), `pinned, τ = ${show(view.pinned.tau)}, k = ${view.pinned.k}, α = ${show(view.pinned.margin)}: `, ...line(view.pinned).slice(0, -1)]
      : [];
    summary.replaceChildren(...line(state), place, ...ghost);
    taken.textContent = view.taken ? `${view.taken} ${view.taken === 1 ? "step" : "steps"} taken, shown as dots; the pinned state is where they began.` : "Scores move against the gradient: s ← s − η ∂L/∂s.";
    // A screen reader hears the result once the hand rests, not every step on the way.
    clearTimeout(announcement);
    announcement = setTimeout(() => {
      status.textContent = `${sentence} ${counted}; ${place}.`;
      model.rests?.();
    }, 500);
  }

  let frame = 0;
  const schedule = () => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      draw();
    });
  };
  TRAITS.forEach((name) => model.on(`change:${name}`, schedule));
  const observer = new ResizeObserver(schedule);
  el.replaceChildren(root);
  observer.observe(root);
  draw();
  return () => {
    observer.disconnect();
    cancelAnimationFrame(frame);
    clearTimeout(announcement);
    TRAITS.forEach((name) => model.off(`change:${name}`, schedule));
  };
}

/** A button that copies the address of the page with the state in it; where that is refused, the address is shown. */
function copyLink(model) {
  const node = button("Copy link", async () => {
    const address = location.href.replace(/#.*$/, "") + toAddress(read(model));
    try {
      await navigator.clipboard.writeText(address);
      node.textContent = "Copied";
    } catch {
      globalThis.prompt("The address of this state:", address);
    }
    setTimeout(() => (node.textContent = "Copy link"), 1500);
  });
  return node;
}

/** A model for the page's explorer that begins with what the address carries and writes it back when the hand rests. */
function modelOfPage(values) {
  const model = standInModel({ ...DEFAULTS, ...values, ...fromAddress(location.hash) });
  const first = toAddress(read(model));
  model.carriesAddress = true;
  model.rests = () => {
    const address = toAddress(read(model));
    if (address !== first || location.hash.includes("tau=")) history.replaceState(null, "", address);
  };
  addEventListener("hashchange", () => Object.entries(fromAddress(location.hash)).forEach(([name, value]) => model.set(name, value)));
  return model;
}

const STYLE = `
.tau-explorer {
  .toggle { min-height: 1.5rem; padding: 0 0.6rem; }
  .formula-box { overflow-x: auto; margin: 1rem 0; }
  table.formula { border-collapse: collapse; font-size: 0.95em; font-variant-numeric: tabular-nums; width: auto; margin: 0;
    :is(td, th) { border: 0; padding: 0.15rem 0.9rem 0.15rem 0; text-align: left; font-weight: 400; white-space: nowrap; background: none; }
    tr { border: 0; background: none; }
    th { color: var(--soft); }
  }
  .stepping { display: grid; grid-template-columns: 11rem 7rem auto; gap: 0.4rem 1.25rem; align-items: end; grid-column: 1 / -1; border: 1px solid var(--line); border-radius: 6px; padding: 0.3rem 0.9rem 0.7rem; margin: 0; min-width: 0;
    legend { float: none; width: auto; font: inherit; font-weight: 600; padding: 0 0.3rem; margin: 0; }
    .buttons { margin: 0; }
    .taken { grid-column: 1 / -1; margin: 0; color: var(--soft); font-size: 0.9em; }
  }
  .summary { margin: 0.3rem 0 0.6rem; font-variant-numeric: tabular-nums; }
  .panels { display: grid; grid-auto-flow: dense; grid-template-columns: minmax(0, 1fr); align-items: start; gap: 1rem 1.5rem; }
  @container (min-width: 620px) { .panels { grid-template-columns: repeat(2, minmax(0, 1fr)); } }
  .panel { margin: 0; min-width: 0; }
  .note { flex: 1 1 0; min-width: 12rem; display: flex; flex-wrap: wrap; align-items: center; gap: 0 0.9rem; }
  .share { margin: 0.35rem 0 0; text-align: center; color: var(--soft); font-size: 0.88em; font-weight: 600; }
  .key.hard::before { border-top: 3px dotted var(--hard); }
  .key.threshold::before { border-top: 2px dotted var(--soft); }
  .key.ghost::before { border-top: 2px dashed var(--ghost); }
  text.value { font-size: 10px; fill: var(--ink); }
  text.true { fill: var(--true); font-weight: 700; }
  text.front { paint-order: stroke; stroke: var(--paper); stroke-width: 4px; stroke-linejoin: round; }
  .ghost { fill: none; stroke: var(--ghost); stroke-width: 2; stroke-dasharray: 5 2; }
  .ghosts { pointer-events: none; }
  .trail { fill: none; stroke: var(--ghost); stroke-width: 3; stroke-linecap: round; }
  .threshold { stroke: var(--soft); stroke-dasharray: 2 3; }
  .true-line { stroke: var(--true); stroke-width: 1.5; opacity: 0.6; }
  .curve.hard { stroke: var(--hard); stroke-width: 2.5; stroke-dasharray: 0.1 5; stroke-linecap: round; }
  line.curve.cross { stroke-dasharray: 4 2; }
  .dot { stroke: var(--paper); stroke-width: 1.5; }
  :is(.dot, .fill).smooth { fill: var(--smooth); }
  .dot.hard { fill: var(--hard); }
  .dot.cross { fill: var(--ink); }
  .fill { opacity: 0.85; }
  .outline.hard { fill: none; stroke: var(--hard); stroke-width: 2; stroke-dasharray: 0.1 4; stroke-linecap: round; }
  .score { cursor: ns-resize; touch-action: pan-x; outline: none; --bar: var(--soft);
    &.true { --bar: var(--true); }
    .grip { fill: transparent; }
    .body { fill: var(--paper); stroke: var(--bar); stroke-width: 1.5; }
    &.inside .body { fill: var(--bar); }
    .handle { fill: var(--paper); stroke: var(--bar); stroke-width: 2; }
    &:hover .handle { fill: var(--bar); }
    &:focus-visible .grip { stroke: var(--smooth); stroke-width: 2.5; }
  }
  .score-rows { display: none; }
  .score-row { display: grid; grid-template-columns: 3.2rem 1fr 2.6rem; align-items: center; gap: 0.5rem; --bar: var(--soft); --fill: color-mix(in srgb, var(--bar) 35%, var(--paper)); --knob: var(--paper);
    &.inside { --fill: var(--bar); --knob: var(--bar); }
    &.true { --bar: var(--true); color: var(--true); font-weight: 700; }
    input { width: 100%; height: 44px; margin: 0; appearance: none; background: none; touch-action: pan-y; }
    .value { text-align: right; font-variant-numeric: tabular-nums; }
    input::-webkit-slider-thumb { margin-top: -7px; }
  ${["-webkit-slider-runnable-track", "-moz-range-track"].map((part) => `
    input::${part} { height: 8px; border-radius: 4px; background: linear-gradient(to right, var(--line) min(50%, var(--place)), var(--fill) 0, var(--fill) max(50%, var(--place)), var(--line) 0); }`).join("")}
  ${["-webkit-slider-thumb", "-moz-range-thumb"].map((part) => `
    input::${part} { appearance: none; box-sizing: border-box; width: 22px; height: 22px; border: 2px solid var(--bar); border-radius: 50%; background: var(--knob); }`).join("")}
  }
  &.narrow {
    .controls { position: sticky; top: var(--explorer-top, 0px); z-index: 5; background: var(--paper); grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 0 0.9rem; padding: 0.3rem 0; border-bottom: 1px solid var(--line); }
    .controls .control:first-child { grid-column: 1 / -1; }
    .panel svg.scores { display: none; }
    .score-rows { display: block; }
    .stepping { grid-template-columns: 1fr 1fr; }
    .stepping .buttons { grid-column: 1 / -1; }
    .key.threshold::before { content: none; }
    .how { display: none; }
    table.formula tr { display: grid; grid-template-columns: auto auto; justify-content: start; margin-bottom: 0.5rem; }
    table.formula :is(th, td:nth-child(2)) { grid-column: 1 / -1; }
  }
}
`;

drawInPage("data-tau-explorer", render, modelOfPage);

export default { render };
