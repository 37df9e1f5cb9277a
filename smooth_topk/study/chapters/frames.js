// A figure with controls on a page without a kernel: a control picks a frame, and the frame's parts become the picture.
// Every figure carries this script; the figure it runs for is the one around it that has no controls yet.

const STYLE = `
.live-figure { margin: 0.5rem 0; }
.live-figure svg { display: block; max-width: 100%; height: auto; overflow: visible; }
.live-controls { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 12rem), 1fr));
  gap: 0.2rem 1.5rem; max-width: 44rem; margin-bottom: 0.6rem; }
.live-controls .control { display: grid; grid-template-columns: 1fr auto; align-items: baseline; font-size: 0.92rem; }
.live-controls label { margin: 0; }
.live-controls output { font-variant-numeric: tabular-nums; font-weight: 600; }
.live-controls .dial { grid-column: 1 / -1; display: flex; align-items: center; gap: 0.4rem; }
.live-controls input { flex: 1; min-width: 0; height: 2rem; margin: 0; cursor: pointer; }
.live-controls :is(button, select) { min-width: 2rem; height: 2rem; padding: 0 0.5rem; color: inherit; cursor: pointer;
  background: transparent; font: inherit; border: 1px solid #8887; border-radius: 0.4rem; line-height: 1; }
.live-controls option { color: black; background: white; }
.live-controls :is(button, select, input):focus-visible { outline: 3px solid #0a7d91; outline-offset: 2px; }
.live-figure .message:empty { display: none; }
@media (pointer: coarse), (max-width: 576px) {
  .live-controls :is(button, select) { min-width: 44px; height: 44px; }
  .live-controls input { height: 44px; }
}`;

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** A list of values to choose from: {node, place()}. */
function choice(id, { label, texts, start }, moved) {
  const options = texts.map((text, place) => element("option", { value: place }, text));
  const select = element("select", { id }, ...options);
  select.value = start;
  select.addEventListener("change", moved);
  return { node: element("div", { class: "control" }, element("label", { for: id }, label), select), place: () => Number(select.value) };
}

/** A slider over the stops, with a button for one step in either direction: {node, place()}. */
function slider(id, { label, texts, start }, moved) {
  const output = element("output", { for: id });
  const input = element("input", { id, type: "range", min: 0, max: texts.length - 1, step: 1, value: start });
  const show = () => {
    output.textContent = texts[input.valueAsNumber];
    input.setAttribute("aria-valuetext", `${label} ${output.textContent}`);
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
  const dial = element("div", { class: "dial" }, step("−", -1, "previous"), input, step("+", 1, "next"));
  const name = element("label", { for: id }, label);
  return { node: element("div", { class: "control" }, name, output, dial), place: () => input.valueAsNumber };
}

/** Gives a figure its controls; the picture that is there stays until one of them moves. */
function enliven(figure) {
  const { controls, parts, frames } = JSON.parse(figure.querySelector("script").textContent);
  const svg = figure.querySelector("svg");
  const [ghost, picture] = svg.querySelectorAll(":scope > g");
  const title = svg.getAttribute("aria-label");
  const message = element("p", { class: "message", role: "status" });
  const place = () => made.reduce((sum, one, i) => sum * controls[i].texts.length + one.place(), 0);

  function show() {
    const frame = frames[place()];
    message.textContent = typeof frame === "string" ? frame : "";
    if (typeof frame === "string" || place() === shown) return;
    const left = (typeof frames[shown] === "string" ? [] : frames[shown]).filter((part) => !frame.includes(part));
    ghost.innerHTML = left.map((part) => parts[part]).filter((part) => part.startsWith('<g class="data"')).join("");
    picture.innerHTML = frame.map((part) => parts[part]).join("");
    const values = made.map((one, i) => `${controls[i].label} ${controls[i].texts[one.place()]}`).join(", ");
    svg.setAttribute("aria-label", `${title}. Drawn for ${values}.`);
    figure.dataset.shown = shown = place();
  }

  const first = document.querySelectorAll(".live-controls .control").length;
  const made = controls.map((one, i) => (one.kind === "choice" ? choice : slider)(`live-${first + i}`, one, show));
  let shown = place();
  figure.dataset.shown = shown;
  figure.prepend(element("div", { class: "live-controls" }, ...made.map((one) => one.node)), message);
}

if (!document.getElementById("live-figure-style")) {
  document.head.append(element("style", { id: "live-figure-style" }, STYLE));
}
document.querySelectorAll(".live-figure:not([data-shown])").forEach(enliven);
