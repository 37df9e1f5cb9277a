// Figures with controls in the static book: a slider picks a frame, and the frame's parts become the picture.
// One file, no dependency, inlined as a module: a browser imports no module from file://. The frames of a figure lie in a
// script of their own that calls showFrames(name, {parts, frames}); it is asked for when the figure comes near the screen.

const NEAR = "800px"; // below the screen: the frames are there before the reader is

const loaded = new Map(); // name -> {parts, frames}
const waiting = new Map(); // name -> the figures that asked for it

/** What the scripts with frames call. */
function showFrames(name, recorded) {
  loaded.set(name, recorded);
  (waiting.get(name) ?? []).forEach((show) => show());
  waiting.delete(name);
}

function load(name, address, show) {
  if (loaded.has(name)) return show();
  const others = waiting.get(name);
  waiting.set(name, [...(others ?? []), show]);
  if (others) return undefined;
  const script = document.createElement("script");
  script.src = address;
  script.addEventListener("error", () => script.remove()); // a copied page without its folder keeps its first picture
  return document.head.append(script);
}

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

let lastId = 0;

/** A control for one parameter: {node, place()}; `moved` is called when its place changes. */
function control({ label, kind, texts, start }, moved) {
  const id = `live-figure-${(lastId += 1)}`;
  const name = element("label", { for: id }, label);
  if (kind === "choice") {
    const select = element("select", { id }, ...texts.map((text, place) => element("option", { value: place }, text)));
    select.value = start;
    select.addEventListener("change", moved);
    return { node: element("div", { class: "control" }, name, select), place: () => Number(select.value), texts };
  }
  const value = element("output", { for: id });
  const input = element("input", { id, type: "range", min: 0, max: texts.length - 1, step: 1, value: start });
  const show = () => {
    value.textContent = texts[input.valueAsNumber];
    input.setAttribute("aria-valuetext", `${label} ${value.textContent}`);
  };
  const move = () => {
    show();
    moved();
  };
  input.addEventListener("input", move);
  show();
  const step = (text, by, title) => {
    const button = element("button", { type: "button", "aria-label": `${label}: ${title}` }, text);
    button.addEventListener("click", () => {
      input.valueAsNumber = Math.min(Math.max(input.valueAsNumber + by, 0), texts.length - 1);
      move();
    });
    return button;
  };
  const row = element("div", { class: "dial" }, step("−", -1, "previous"), input, step("+", 1, "next"));
  return { node: element("div", { class: "control" }, name, value, row), place: () => input.valueAsNumber, texts };
}

/** Gives a figure its controls; the picture that is there stays until one of them moves. */
function enliven(figure) {
  const { frames: name, source, controls } = figure.dataset;
  const described = JSON.parse(controls);
  const svg = figure.querySelector("svg");
  const title = svg.getAttribute("aria-label");
  const message = element("p", { class: "message", role: "status" });

  function show() {
    const recorded = loaded.get(name);
    if (!recorded) return;
    const place = parts.reduce((sum, part) => sum * part.texts.length + part.place(), 0);
    const frame = recorded.frames[place];
    message.textContent = typeof frame === "string" ? frame : "";
    if (typeof frame === "string") return;
    svg.innerHTML = frame.map((part) => recorded.parts[part]).join("");
    const values = parts.map((part, i) => `${described[i].label} ${part.texts[part.place()]}`).join(", ");
    svg.setAttribute("aria-label", `${title} Drawn for ${values}.`);
    figure.dataset.shown = place;
  }

  const moved = () => load(name, source, show);
  const parts = described.map((one) => control(one, moved));
  figure.prepend(element("div", { class: "live-controls" }, ...parts.map((part) => part.node)), message);
  const nearby = new IntersectionObserver(
    (entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      nearby.disconnect();
      load(name, source, show);
    },
    { rootMargin: NEAR },
  );
  nearby.observe(figure);
}

globalThis.showFrames = showFrames;
document.querySelectorAll(".live-figure[data-frames]").forEach(enliven);
