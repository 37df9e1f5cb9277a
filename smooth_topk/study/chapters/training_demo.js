// The training demo: cross-entropy and the smooth loss train on the same points with wrong labels, in the page.
// In JupyterLab it is the front end of TrainingDemo; in the static book it fills every element with a
// `data-training-demo` attribute. explorable.js stands in front of it.

// ---- The problem: five classes in the plane, some labels redrawn ---------------------------------------------------

const CLASSES = 5;
const POINTS = 150;
const SPREAD = 0.4; // standard deviation of a class around its centre, on a circle of radius one
const WAVES = 256; // hidden units with fixed random weights
const WIDTHS = [1, 0.2]; // every second wave is long, the others are short enough to single out one point
export const STEPS = 600;
const RATE = 1; // of cross-entropy; the smooth loss has k times this rate and a k-th of the decay
const MOMENTUM = 0.9;
const EDGE = 2; // the plane is shown and measured from -EDGE to EDGE
const SIDE = 49; // places of the measuring grid per axis
const NAMES = ["A", "B", "C", "D", "E"];
const CENTRES = NAMES.map((_, c) => {
  const angle = Math.PI / 2 + (2 * Math.PI * c) / CLASSES;
  return [Math.cos(angle), Math.sin(angle)];
});

/** Uniform random numbers in [0, 1): mulberry32. */
function randomNumbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** The outputs of the hidden units at some places: cosine waves of random direction, length and phase. */
function hiddenUnits(places, waves) {
  const values = new Float64Array(places.length * WAVES);
  places.forEach(([x, y], i) => waves.forEach(([a, b, phase], j) => (values[i * WAVES + j] = Math.sqrt(2 / WAVES) * Math.cos(a * x + b * y + phase))));
  return values;
}

/** How likely each class is at each place of the measuring grid: the truth, which no network sees. */
function densitiesAt(places) {
  const weights = Float64Array.from(places.flatMap(([x, y]) => CENTRES.map(([cx, cy]) => Math.exp(-((x - cx) ** 2 + (y - cy) ** 2) / (2 * SPREAD ** 2)))));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight) => weight / total);
}

const GRID = Array.from({ length: SIDE * SIDE }, (_, i) => [i % SIDE, Math.floor(i / SIDE)].map((j) => -EDGE + (2 * EDGE * j) / (SIDE - 1)));
const TRUTH = densitiesAt(GRID);

/** Points, the classes they were drawn from, the hidden units, and for each point the lot and the label of the noise. */
export function drawPoints(seed) {
  const random = randomNumbers(seed);
  const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  const drawn = Array.from({ length: POINTS }, (_, i) => i % CLASSES);
  const points = drawn.map((c) => CENTRES[c].map((centre) => centre + SPREAD * normal()));
  const redrawn = points.map(() => [random(), Math.floor(CLASSES * random())]);
  const waves = Array.from({ length: WAVES }, (_, j) => [normal(), normal()].map((w) => w / WIDTHS[j % WIDTHS.length]).concat(2 * Math.PI * random()));
  return { points, drawn, redrawn, waves, features: hiddenUnits(points, waves), gridFeatures: hiddenUnits(GRID, waves), truth: densitiesAt(points) };
}

/** With probability `noise` a label is redrawn from all five classes; what is wrong at one level is wrong above it. */
export const noisyLabels = ({ drawn, redrawn }, noise) => drawn.map((c, i) => (redrawn[i][0] < noise ? redrawn[i][1] : c));

// ---- The networks --------------------------------------------------------------------------------------------------

/** Scores of all classes: hidden units (places, WAVES) times output weights (WAVES, CLASSES). */
function scoresOf(features, weights) {
  const scores = new Float64Array((features.length / WAVES) * CLASSES);
  for (let i = 0, at = 0; at < scores.length; i += WAVES, at += CLASSES) {
    let [a, b, c, d, e] = [0, 0, 0, 0, 0];
    for (let j = 0, w = 0; j < WAVES; j++, w += CLASSES) {
      const unit = features[i + j];
      a += unit * weights[w];
      b += unit * weights[w + 1];
      c += unit * weights[w + 2];
      d += unit * weights[w + 3];
      e += unit * weights[w + 4];
    }
    scores.set([a, b, c, d, e], at);
  }
  return scores;
}

/** Output weights in training: gradient descent on mean loss + decay / 2 · |weights|², with Nesterov's momentum. */
class Network {
  constructor() {
    this.weights = new Float64Array(WAVES * CLASSES);
    this.velocity = new Float64Array(WAVES * CLASSES);
  }

  /** One step on all points; `gradientOf` gives the derivatives of one point's loss, given its scores and label. */
  step(features, labels, gradientOf, { rate, decay }) {
    const { weights, velocity } = this;
    const slope = weights.map((weight) => decay * weight);
    const scores = scoresOf(features, weights);
    labels.forEach((label, i) => {
      const derivatives = gradientOf(Array.from(scores.subarray(i * CLASSES, (i + 1) * CLASSES)), label);
      for (let j = 0; j < WAVES; j++) {
        const unit = features[i * WAVES + j] / labels.length;
        for (let c = 0; c < CLASSES; c++) slope[j * CLASSES + c] += unit * derivatives[c];
      }
    });
    for (let w = 0; w < weights.length; w++) {
      velocity[w] = MOMENTUM * velocity[w] + slope[w];
      weights[w] -= rate * (slope[w] + MOMENTUM * velocity[w]);
    }
  }
}

/** Accuracy on new points with right labels for k = 1 to 5: the truth summed over the places where it is in the top k. */
function accuracies(scores) {
  const shares = new Array(CLASSES).fill(0);
  for (let at = 0; at < scores.length; at += CLASSES) {
    for (let c = 0; c < CLASSES; c++) {
      let rank = 0;
      for (let other = 0; other < CLASSES; other++) rank += scores[at + other] > scores[at + c] || (scores[at + other] === scores[at + c] && other < c);
      shares[rank] += TRUTH[at + c];
    }
  }
  return shares.map((_, k) => shares.slice(0, k + 1).reduce((sum, share) => sum + share, 0));
}

const BEST = accuracies(TRUTH); // of the classifier that knows the truth
const LOSSES = ["cross", "smooth"];

/** One race of the two losses: the same points, hidden units and start for both. */
export class Race {
  constructor(settings, problem = drawPoints(settings.seed)) {
    const { k, tau, margin, decay, noise } = settings;
    Object.assign(this, { settings, problem, steps: 0, labels: noisyLabels(problem, noise) });
    this.networks = { cross: new Network(), smooth: new Network() };
    this.gradients = { cross: crossEntropyGradient, smooth: (scores, label) => smoothTopKGradient(scores, label, { k, tau, margin }) };
    this.speeds = { cross: { rate: RATE, decay }, smooth: { rate: k * RATE, decay: decay / k } };
    this.wrong = this.labels.map((label, i) => label !== problem.drawn[i]);
    this.byChance = this.#shareOfWrong(answersTo(problem.truth)); // wrong labels that the best classifier would give too
    this.history = [];
  }

  step() {
    for (const loss of LOSSES) this.networks[loss].step(this.problem.features, this.labels, this.gradients[loss], this.speeds[loss]);
    this.steps += 1;
  }

  /** Scores on the measuring grid, which points are memorised, and what the curves show; put into the history. */
  measure() {
    const measured = LOSSES.map((loss) => {
      const { weights } = this.networks[loss];
      const grid = scoresOf(this.problem.gridFeatures, weights);
      const scores = scoresOf(this.problem.features, weights);
      const first = this.steps ? answersTo(scores) : [];
      const memorised = this.labels.map((label, i) => this.wrong[i] && first[i] === label);
      const found = accuracies(grid);
      return [loss, { grid, memorised, share: this.#shareOfWrong(first), top1: found[0], topk: found[this.settings.k - 1] }];
    });
    const now = Object.fromEntries(measured);
    if (this.steps > 50 && this.steps % 5) return now; // as fine as the curves can show
    this.history.push({ step: this.steps, ...Object.fromEntries(measured.map(([loss, { share, top1, topk }]) => [loss, { share, top1, topk }])) });
    return now;
  }

  /** The share of the wrong labels that are among the answers to their points. */
  #shareOfWrong(answers) {
    return count(this.labels.map((label, i) => this.wrong[i] && answers[i] === label)) / Math.max(count(this.wrong), 1);
  }

  /** Scores of one place, for either network. */
  at(place) {
    const units = hiddenUnits([place], this.problem.waves);
    return Object.fromEntries(LOSSES.map((loss) => [loss, Array.from(scoresOf(units, this.networks[loss].weights))]));
  }
}

const count = (flags) => flags.filter(Boolean).length;

/** The first answer to every point. */
const answersTo = (scores) => Array.from({ length: scores.length / CLASSES }, (_, i) => descending(Array.from(scores.subarray(i * CLASSES, (i + 1) * CLASSES)))[0]);

// ---- Pictures ------------------------------------------------------------------------------------------------------

const COLOURS = [[0, 114, 178], [222, 143, 5], [0, 148, 110], [204, 100, 160], [140, 130, 60]]; // of the classes
const ZOOM = 4; // pixels of a map per cell of the measuring grid: scores between its places are interpolated
const PIXELS = (SIDE - 1) * ZOOM + 1;
const colour = (c) => `rgb(${COLOURS[c].join(" ")})`;
const TITLES = { cross: "Cross-entropy", smooth: "Smooth loss" };
const percent = (share) => `${Math.round(100 * share)} %`;

/** Where a pixel lies in the measuring grid: the place before it, and how far it is to the next. */
const CELLS = Array.from({ length: PIXELS }, (_, pixel) => {
  const place = Math.min(Math.floor(pixel / ZOOM), SIDE - 2);
  return { place, part: pixel / ZOOM - place };
});

/** Paints the first answer of a network over the plane; plain loops, because this runs at every frame. */
function paintRegions(context, image, scores) {
  const pixels = new Uint32Array(image.data.buffer);
  const inks = Uint32Array.from(COLOURS, ([red, green, blue]) => ((95 << 24) | (blue << 16) | (green << 8) | red) >>> 0);
  for (let row = 0, at = 0; row < PIXELS; row++) {
    const vertical = CELLS[PIXELS - 1 - row];
    for (let column = 0; column < PIXELS; column++, at++) {
      const { place, part } = CELLS[column];
      const corner = (vertical.place * SIDE + place) * CLASSES;
      let best = 0;
      let highest = -Infinity;
      for (let c = 0; c < CLASSES; c++) {
        const below = corner + c;
        const above = below + SIDE * CLASSES;
        const lower = scores[below] + part * (scores[below + CLASSES] - scores[below]);
        const upper = scores[above] + part * (scores[above + CLASSES] - scores[above]);
        const score = lower + vertical.part * (upper - lower);
        if (score > highest) {
          highest = score;
          best = c;
        }
      }
      pixels[at] = inks[best];
    }
  }
  context.putImageData(image, 0, 0);
}

/** The plane as one network sees it: regions, points, rings around memorised labels, and the cross under the pointer. */
class PlaneMap {
  constructor(loss, moveCross) {
    this.loss = loss;
    this.canvas = element("canvas", { width: PIXELS, height: PIXELS });
    this.context = this.canvas.getContext("2d");
    this.image = this.context.createImageData(PIXELS, PIXELS);
    this.points = element("g");
    this.cross = element("path", { class: "cross-hair", d: "M-0.14 0H0.14M0-0.14V0.14" });
    const letters = CENTRES.map(([x, y], c) => element("text", { x: 1.55 * x, y: -1.55 * y + 0.09, "text-anchor": "middle" }, NAMES[c]));
    this.svg = element("svg", { viewBox: `${-EDGE} ${-EDGE} ${2 * EDGE} ${2 * EDGE}`, tabindex: 0, role: "img", ...OWN_KEYS }, this.points, ...letters, this.cross);
    this.title = element("b");
    this.memorised = element("p");
    this.answer = element("p");
    this.node = element("div", { class: `map ${loss}` }, this.title, element("div", { class: "plane" }, this.canvas, this.svg), this.memorised, this.answer);
    const follow = (event) => {
      const box = this.svg.getBoundingClientRect();
      moveCross(() => [((event.clientX - box.left) / box.width) * 2 * EDGE - EDGE, EDGE - ((event.clientY - box.top) / box.height) * 2 * EDGE]);
    };
    ["pointermove", "pointerdown"].forEach((name) => this.svg.addEventListener(name, follow));
    const moves = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] };
    this.svg.addEventListener("keydown", (event) => {
      if (!(event.key in moves)) return;
      event.preventDefault();
      moveCross(([x, y]) => [x + moves[event.key][0], y + moves[event.key][1]]);
    });
  }

  setPoints({ problem, labels, wrong }) {
    this.ringed = undefined;
    this.points.replaceChildren(
      ...problem.points.map(([x, y], i) => element("circle", { class: wrong[i] ? "wrong" : "right", cx: x, cy: -y, style: `--class: ${colour(labels[i])}` })),
    );
  }

  draw(race, now, [x, y]) {
    const { k, tau } = race.settings;
    const { grid, memorised } = now[this.loss];
    if (race.steps) paintRegions(this.context, this.image, grid);
    else this.context.clearRect(0, 0, PIXELS, PIXELS);
    memorised.forEach((flag, i) => flag !== this.ringed?.[i] && this.points.children[i].classList.toggle("memorised", flag));
    this.ringed = memorised;
    setAttributes(this.cross, { transform: `translate(${x} ${-y})` });
    this.title.textContent = this.loss === "smooth" ? `${TITLES.smooth}, k = ${k}, τ = ${show(tau)}` : TITLES.cross;
    const told = `${count(memorised)} of ${count(race.wrong)} wrong labels memorised`;
    this.memorised.replaceChildren(told);
    const order = race.steps ? descending(race.at([x, y])[this.loss]).slice(0, k).map((c) => NAMES[c]) : ["not trained yet"];
    this.answer.replaceChildren(`top ${k} at the cross: `, element("b", {}, order.join(", ")));
    this.svg.setAttribute("aria-label", `${this.title.textContent}: ${told}; top ${k} at the cross: ${order.join(", ")}.`);
  }
}

const CHART = { height: 150, top: 8, right: 8, bottom: 30, left: 34 };

/** Two curves, one per loss, over a fixed range of x and y. */
class Chart {
  constructor(name, { ticks, place, from, label }) {
    Object.assign(this, { name, ticks, place, from, width: 0 });
    this.title = element("b");
    this.values = element("span", { class: "note" });
    this.svg = element("svg", { height: CHART.height, role: "img" });
    this.label = label;
    this.node = element("div", { class: "chart" }, this.title, this.values, this.svg);
    this.marks = element("g");
  }

  draw(title, curves, best, values, extra = []) {
    const { width } = this;
    if (width === 0) return;
    this.title.textContent = title;
    this.values.replaceChildren(...values);
    this.svg.setAttribute("aria-label", `${title}: ${this.values.textContent}`);
    const level = best === undefined ? [] : [element("line", { class: "best", x1: CHART.left, x2: width - CHART.right, y1: this.y(best), y2: this.y(best) })];
    const lines = curves.map(([className, points]) => element("path", { class: className, d: pathThrough(points.map(([x, y]) => [this.x(this.place(x)), this.y(Math.max(y, this.from))])) }));
    this.marks.replaceChildren(...level, ...lines, ...extra.map((draw) => draw(this)));
  }

  /** Scales and axes for the width that the chart has now. */
  fit() {
    const width = (this.width = this.node.clientWidth);
    this.x = linear(0, 1, CHART.left, width - CHART.right);
    this.y = linear(this.from, 1, CHART.height - CHART.bottom, CHART.top);
    const levels = [this.from, (1 + this.from) / 2, 1];
    setAttributes(this.svg, { viewBox: `0 0 ${width} ${CHART.height}`, width });
    this.svg.replaceChildren(
      ...levels.flatMap((level) => [
        element("line", { class: "grid", x1: CHART.left, x2: width - CHART.right, y1: this.y(level), y2: this.y(level) }),
        element("text", { x: CHART.left - 5, y: this.y(level) + 4, "text-anchor": "end" }, String(Math.round(100 * level))),
      ]),
      ...this.ticks.map(([value, text]) => element("text", { x: this.x(this.place(value)), y: CHART.height - CHART.bottom + 14, "text-anchor": "middle" }, text)),
      element("text", { x: (CHART.left + width - CHART.right) / 2, y: CHART.height - 2, "text-anchor": "middle" }, this.label),
      this.marks,
    );
  }
}

// ---- The demo ------------------------------------------------------------------------------------------------------

const DEMO = { noise: 0.6, decay: 0, tau: 1, k: 2, margin: 1, seed: 1 };
export const DECAYS = [0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1];
const TAUS = [0.01, 0.03, 0.1, 0.3, 1, 3, 10];
const SLICE = 12; // milliseconds of a frame for trying weight decays
const overSteps = { ticks: [1, 10, 100, STEPS].map((step) => [step, String(step)]), place: (step) => Math.log(step) / Math.log(STEPS), label: "steps" };
const spot = stops(DECAYS).toPosition;
const overDecays = { ticks: DECAYS.map((decay, i) => [decay, i === 0 || (i > 2 && i % 2) ? show(decay) : ""]), place: (decay) => spot(decay) / (DECAYS.length - 1), label: "weight decay" };

function render({ model, el }) {
  const view = { playing: false, stale: true, cross: [0.35, 0.65], ghost: [], ends: new Map(), trials: [] };
  let [race, now, frame] = [null, null, 0];
  const set = (name) => (value) => {
    model.set(name, value);
    model.save_changes();
  };
  const again = (playing) => Object.assign(view, { stale: true, playing, trials: [] }) && schedule();

  const sliders = {
    noise: slider("Label noise", "p", { name: "noise", min: 0, max: 1, step: 0.1 }, set("noise")),
    decay: slider("Weight decay", "λ", { name: "decay", ...stops(DECAYS) }, set("decay")),
    tau: slider("Temperature", "τ", { name: "tau", ...stops(TAUS) }, set("tau")),
    k: slider("Guesses", "k", { name: "k", min: 1, max: 3, step: 1 }, set("k")),
  };
  const play = button("Train", () => (race.steps >= STEPS ? again(true) : Object.assign(view, { playing: !view.playing }) && schedule()), { class: "main" });
  const one = button("One step", () => {
    view.playing = false;
    advance();
    schedule();
  });
  const sweep = button("Try every weight decay", () => {
    view.playing = false;
    view.trials = view.trials.length ? [] : DECAYS.filter((decay) => !ended().has(decay)).map((decay) => new Race({ ...race.settings, decay }, race.problem));
    schedule();
  });
  const buttons = [play, one, button("Start again", () => again(false)), button("New points", () => set("seed")(model.get("seed") + 1)), sweep];
  const moveCross = (next) => {
    view.cross = next(view.cross).map((place) => Math.min(Math.max(place, -EDGE), EDGE));
    schedule();
  };
  const maps = LOSSES.map((loss) => new PlaneMap(loss, moveCross));
  const charts = {
    share: new Chart("share", { ...overSteps, from: 0 }),
    top1: new Chart("top1", { ...overSteps, from: 0.2 }),
    topk: new Chart("topk", { ...overSteps, from: 0.2 }),
    ends: new Chart("ends", { ...overDecays, from: 0.4 }),
  };
  const legend = element("p", { class: "note legend" }, dotKey("right", "right label"), dotKey("wrong", "wrong label"), dotKey("wrong memorised", "memorised: the first answer is this wrong label"), element("span", {}, "✛ the cross: point, tap or use the arrow keys"));
  const curves = element("p", { class: "note legend" }, key("cross", "cross-entropy"), key("smooth", "smooth loss"), key("best", "best possible"), key("ghost", "the run before"));
  const status = element("p", { class: "status", role: "status" });
  const root = element("div", { class: "explorable training-demo", role: "group", "aria-label": "Training demo" },
    element("style", {}, SHARED_STYLE + STYLE),
    element("div", { class: "controls" }, ...Object.values(sliders).map(({ node }) => node)),
    element("div", { class: "buttons" }, ...buttons),
    element("div", { class: "maps" }, ...maps.map(({ node }) => node), legend),
    element("div", { class: "charts" }, ...Object.values(charts).map(({ node }) => node)),
    curves,
    status,
  );

  /** Where the runs with these settings ended, by weight decay. */
  const ended = () => {
    const { seed, noise, tau, k, margin } = race.settings;
    const settings = [seed, noise, tau, k, margin].join();
    if (!view.ends.has(settings)) view.ends.set(settings, new Map());
    return view.ends.get(settings);
  };

  function restart() {
    const settings = Object.fromEntries(Object.keys(DEMO).map((name) => [name, model.get(name)]));
    if (race && race.history.length > 1) view.ghost = race.history;
    race = new Race(settings, race?.settings.seed === settings.seed ? race.problem : undefined);
    view.stale = false;
    now = race.measure();
    maps.forEach((map) => map.setPoints(race));
    for (const [name, { update }] of Object.entries(sliders)) update(settings[name]);
  }

  /** While it trains, every second step of the later ones is neither measured nor drawn: two frames for one picture. */
  const isShown = () => !view.playing || race.steps <= 50 || race.steps % 2 === 0;

  function advance() {
    race.step();
    if (isShown()) now = race.measure();
    if (race.steps < STEPS) return;
    view.playing = false;
    const { cross, smooth } = now;
    ended().set(race.settings.decay, { cross: cross.topk, smooth: smooth.topk });
    status.textContent = `After ${STEPS} steps cross-entropy has memorised ${percent(cross.share)} of the wrong labels and the smooth loss ${percent(smooth.share)}. Top-${race.settings.k} accuracy: ${percent(cross.topk)} and ${percent(smooth.topk)}.`;
  }

  /** Trains on in the runs over all weight decays for the time of a frame. */
  function tryDecays() {
    for (const until = performance.now() + SLICE; performance.now() < until && view.trials.length; ) {
      const [trial] = view.trials;
      trial.step();
      if (trial.steps < STEPS) continue;
      const { cross, smooth } = trial.measure();
      ended().set(trial.settings.decay, { cross: cross.topk, smooth: smooth.topk });
      view.trials.shift();
    }
  }

  function drawCharts() {
    const { k, decay } = race.settings;
    const shown = (history, name, look) => LOSSES.map((loss) => [`${look} ${loss}`, history.filter(({ step }) => step).map((row) => [row.step, row[loss][name]])]);
    const values = (name) => LOSSES.flatMap((loss, i) => [i ? " · " : "", element("span", { class: `number ${loss}` }, percent(now[loss][name]))]);
    const over = (name, title, best) => charts[name].draw(title, [...shown(view.ghost, name, "curve ghost"), ...shown(race.history, name, "curve")], best, values(name));
    over("share", "Wrong labels memorised", race.byChance);
    over("top1", "Top-1 accuracy", BEST[0]);
    over("topk", k === 1 ? "The same, k = 1" : `Top-${k} accuracy`, BEST[k - 1]);
    const ends = [...ended()].sort(([a], [b]) => a - b);
    const dots = LOSSES.flatMap((loss) => ends.map(([at, row]) => (chart) => element("circle", { class: `dot ${loss}`, cx: chart.x(chart.place(at)), cy: chart.y(row[loss]), r: 3.5 })));
    const here = (chart) => element("line", { class: "here", x1: chart.x(chart.place(decay)), x2: chart.x(chart.place(decay)), y1: CHART.top, y2: CHART.height - CHART.bottom });
    const told = ends.length ? `${ends.length} of ${DECAYS.length} weight decays tried` : "a finished run leaves its dots";
    charts.ends.draw(`Top-${k} at the end`, LOSSES.map((loss) => [`curve ${loss}`, ends.map(([at, row]) => [at, row[loss]])]), BEST[k - 1], [told], [here, ...dots]);
  }

  function draw() {
    play.textContent = view.playing ? "Pause" : race.steps >= STEPS ? "Train again" : "Train";
    sweep.textContent = view.trials.length ? `Stop: ${view.trials.length} weight decays to go` : "Try every weight decay";
    maps.forEach((map) => map.draw(race, now, view.cross));
    drawCharts();
    root.dataset.steps = race.steps;
  }

  const schedule = () => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      if (view.stale) restart();
      else if (view.playing) advance();
      else tryDecays();
      if (isShown()) draw();
      if (view.playing || view.trials.length) schedule();
    });
  };
  const changed = () => again(view.playing || race?.steps > 0);
  Object.keys(DEMO).forEach((name) => model.on(`change:${name}`, changed));
  const observer = new ResizeObserver(() => {
    root.classList.toggle("narrow", root.clientWidth < 620);
    Object.values(charts).forEach((chart) => chart.fit());
    schedule();
  });
  el.replaceChildren(root);
  observer.observe(root);
  return () => {
    observer.disconnect();
    cancelAnimationFrame(frame);
    Object.keys(DEMO).forEach((name) => model.off(`change:${name}`, changed));
  };
}

const dotKey = (name, text) => element("span", {}, element("svg", { viewBox: "-0.15 -0.15 0.3 0.3" }, element("circle", { class: name, style: `--class: ${colour(0)}` })), text);

const STYLE = `
.training-demo {
  .maps { display: grid; grid-template-columns: repeat(2, minmax(0, 24rem)) minmax(0, 1fr); gap: 0.5rem 1.5rem; }
  .maps .legend { flex-direction: column; justify-content: center; gap: 0.8rem; }
  .map p { margin: 0; font-variant-numeric: tabular-nums; }
  .plane { position: relative; aspect-ratio: 1; border: 1px solid var(--line); margin: 0.2rem 0; }
  .plane > * { position: absolute; inset: 0; width: 100%; height: 100%; }
  .plane svg { overflow: hidden; touch-action: pan-y; cursor: crosshair; }
  .plane text { font-size: 0.26px; font-weight: 700; fill: var(--ink); opacity: 0.7; }
  circle { --dot: color-mix(in srgb, var(--class) 78%, var(--ink)); fill: var(--dot); r: 0.035px; }
  circle.wrong { r: 0.045px; fill: var(--paper); stroke: var(--dot); stroke-width: 0.035px; }
  circle.memorised { r: 0.06px; fill: var(--dot); stroke: var(--ink); stroke-width: 0.035px; }
  .cross-hair { fill: none; stroke: var(--ink); stroke-width: 2px; vector-effect: non-scaling-stroke; pointer-events: none; }
  .legend { display: flex; flex-wrap: wrap; gap: 0 1.2rem; margin: 0.4rem 0 0.8rem; }
  .legend svg { display: inline-block; width: 1.4em; height: 1.4em; vertical-align: middle; margin-right: 0.3em; }
  .charts { display: grid; grid-template-columns: repeat(4, minmax(0, 1fr)); gap: 0.8rem 1rem; margin-top: 0.9rem; }
  .chart b, .chart .note { display: block; white-space: nowrap; }
  .number { font-weight: 700; color: var(--ink); }
  .number.smooth { color: var(--smooth); }
  .curve.ghost { stroke-width: 1.2; opacity: 0.45; }
  .best, .here { stroke: var(--soft); stroke-dasharray: 1.5 3; }
  .key.best::before { border-top: 2px dotted var(--soft); }
  .key.ghost::before { border-top: 1px solid var(--soft); }
  circle.dot { r: 3.5px; fill: var(--smooth); }
  circle.dot.cross { fill: var(--ink); }
  &.narrow .maps { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 0.5rem; }
  &.narrow .maps .legend { grid-column: 1 / -1; flex-direction: row; gap: 0 1.2rem; margin: 0; }
  &.narrow .charts { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  &.narrow :is(.map, .chart) { font-size: 0.8em; }
  &.narrow .controls { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 0 0.9rem; }
}
`;

drawInPage("data-training-demo", render, (values) => standInModel({ ...DEMO, ...values }));

export default { render };
