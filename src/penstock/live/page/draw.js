// Pictures of a run: made once, then only their numbers change, so that nothing on the page jumps.

const SVG = "http://www.w3.org/2000/svg";

export function el(name, attributes = {}, ...children) {
  const node = name.startsWith("svg:")
    ? document.createElementNS(SVG, name.slice(4))
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

export function text(node, value) {
  if (node.textContent !== value) node.textContent = value;
}

// -- numbers ------------------------------------------------------------------------------------

export function short(value) {
  for (const [power, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (value >= power) return `${digits(value / power)}${letter}`;
  }
  return digits(value);
}

function digits(value) {
  if (value >= 100) return value.toFixed(0);
  return String(Number(value.toPrecision(value >= 10 ? 3 : 2)));
}

export function nbytes(value) {
  for (const [power, unit] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "KB"]]) {
    if (value >= power) return `${digits(value / power)} ${unit}`;
  }
  return `${value} B`;
}

export function clock(seconds) {
  if (seconds <= 0) return "0 s";
  if (seconds < 1) return `${digits(1e3 * seconds)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (number) => String(number).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

export const percent = (share) => `${Math.round(100 * share)} %`;

function nice(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => step * power >= value * (1 - 1e-9));
}

// -- gauges -------------------------------------------------------------------------------------

const ARC = "M12 60A47 47 0 0 1 106 60";
const LONG = Math.PI * 47;

export function gauge(tile, title, share, level, small) {
  if (!tile.firstChild) {
    const drawn = el("svg:svg", { viewBox: "0 0 118 66", role: "meter", "aria-label": title, "aria-valuemin": 0, "aria-valuemax": 100 },
      el("svg:path", { class: "rest", d: ARC }),
      el("svg:path", { class: "part", d: ARC, "stroke-dasharray": LONG, "stroke-dashoffset": LONG }),
      el("svg:text", { x: 59, y: 58 }));
    tile.append(el("h3", {}, title), drawn, el("div", { class: "small" }));
  }
  const [head, drawn, below] = tile.children;
  text(head, title);
  drawn.setAttribute("aria-label", title);
  const part = Math.max(0, Math.min(1, share));
  tile.className = `tile arc ${level}`;
  drawn.setAttribute("aria-valuenow", Math.round(100 * part));
  drawn.children[1].setAttribute("stroke-dashoffset", LONG * (1 - part));
  drawn.children[1].setAttribute("visibility", part > 0.004 ? "visible" : "hidden");
  text(drawn.children[2], share > 0 && share < 0.01 ? "< 1 %" : percent(share));
  text(below, small);
}

export function tile(box, title, big, small) {
  if (!box.firstChild) box.append(el("h3", {}, title), el("div", { class: "big" }), el("div", { class: "small" }));
  text(box.children[0], title);
  text(box.children[1], big);
  text(box.children[2], small);
}

// -- plots --------------------------------------------------------------------------------------

const WIDE = 600;
const HIGH = 120;

// lines: {name, kind, points: [[seconds, value], ...], area}; each value holds from the point before it to its own.
export function plot(figure, title, note, lines, { seconds, unit, top, marks = [] }) {
  const highest = Math.max(0, ...lines.flatMap((line) => line.points.map((point) => point[1])));
  const end = top ?? nice(highest);
  const x = (at) => ((at / Math.max(seconds, 1e-9)) * WIDE).toFixed(1);
  const y = (value) => (HIGH * (1 - Math.max(0, Math.min(1, value / end)))).toFixed(1);
  if (!figure.firstChild) {
    figure.append(
      el("figcaption", {}, title, " ", el("span")),
      el("div", { class: "plot" },
        el("div", { class: "ys", "aria-hidden": "true" }, el("span"), el("span"), el("span")),
        el("svg:svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img" }),
        el("div", { class: "xs", "aria-hidden": "true" }, el("span"), el("span"), el("span")),
        el("div", { class: "keys" })));
  }
  const [ys, drawn, xs, keys] = figure.children[1].children;
  text(figure.children[0].lastChild, note);
  drawn.setAttribute("aria-label", `${title}: ${note}`);
  [end, end / 2, 0].forEach((value, number) => text(ys.children[number], unit(value)));
  [0, seconds / 2, seconds].forEach((at, number) => text(xs.children[number], clock(at)));
  const parts = [0, HIGH / 2, HIGH].map((at) => el("svg:line", { class: "rule", x1: 0, x2: WIDE, y1: at, y2: at }));
  for (const [at, what] of marks) {
    parts.push(el("svg:line", { class: "decided", x1: x(at), x2: x(at), y1: 0, y2: HIGH }, el("svg:title", {}, what)));
  }
  for (const line of lines) {
    if (!line.points.length) continue;
    const path = `M0 ${y(line.points[0][1])}` + line.points.map(([at, value]) => `V${y(value)}H${x(at)}`).join("");
    if (line.area) parts.push(el("svg:path", { class: line.area, d: `${path}V${HIGH}H0Z` }));
    parts.push(el("svg:path", { class: line.kind, d: path }));
  }
  drawn.replaceChildren(...parts);
  if (lines.length > 1 && keys.childElementCount !== lines.length) {
    keys.replaceChildren(...lines.map((line) => el("span", {}, el("i", { class: line.kind }), line.name)));
  }
}

// -- the pipeline -------------------------------------------------------------------------------

const MOST_INPUTS = 6;
const LOOP = "your loop";

function inputsOf(stages, number) {
  // A report of an earlier version tells no inputs: it is taken for a chain.
  return stages[number].inputs ?? (number ? [number - 1] : []);
}

function stageBox(call, kind = "") {
  return el("div", { class: `stage ${kind}`, title: call },
    el("div", { class: "call" }, call), el("div", { class: "track", "aria-hidden": "true" }, el("i")),
    el("div", { class: "facts" }), el("div", { class: "facts" }), el("span", { class: "mark" }, "bottleneck"));
}

function chain(stages, last, boxes) {
  const items = [];
  let number = last;
  let inputs = inputsOf(stages, number);
  const add = () => {
    boxes[number] = stageBox(stages[number].call);
    boxes[number].pipe = el("div", { class: "pipe", "aria-hidden": "true" });
    items.unshift(el("li", {}, boxes[number], boxes[number].pipe));
  };
  add();
  while (inputs.length === 1) {
    [number] = inputs;
    inputs = inputsOf(stages, number);
    add();
  }
  if (inputs.length) {
    const shown = inputs.length > MOST_INPUTS ? [...inputs.slice(0, 3), inputs.at(-1)] : inputs;
    const lanes = shown.map((one) => chain(stages, one, boxes));
    if (shown.length < inputs.length) {
      lanes.splice(3, 0, el("div", { class: "more" }, `and ${inputs.length - shown.length} more`));
    }
    items.unshift(el("li", {}, el("div", { class: "lanes" }, ...lanes)));
  }
  return el("ol", { class: "chain-of" }, ...items);
}

export function pipeline(place, run) {
  const { stages } = run.report;
  const key = JSON.stringify(stages.map((stage) => [stage.call, stage.inputs]));
  if (place.key !== key) {
    place.key = key;
    place.boxes = {};
    const drawn = stages.length ? chain(stages, stages.length - 1, place.boxes) : el("ol", { class: "chain-of" });
    place.loop = stageBox(LOOP, "loop");
    drawn.append(el("li", {}, place.loop));
    place.replaceChildren(drawn);
  }
  const total = stages.reduce((sum, stage) => sum + stage.seconds, 0);
  const { queues } = run.report.timeline;
  const waiting = queues.length ? queues.at(-1) : [];
  stages.forEach((stage, number) => {
    const box = place.boxes[number];
    if (!box) return;
    const part = total ? stage.seconds / total : 0;
    const made = run.is_live ? run.now.stage_rows[number] : stage.num_rows / Math.max(1e-9, run.report.seconds);
    const isSlowest = stage.call === run.bottleneck;
    box.classList.toggle("slowest", isSlowest);
    const [, track, first, second] = box.children;
    track.firstChild.style.width = `${100 * part}%`;
    const where = stage.num_processes ? `, ${stage.num_processes} processes` : "";
    text(first, `${percent(part)} of the time${where}`);
    const queue = run.is_live ? waiting[number] : null;
    const what = stage.num_rows ? `makes ${short(made)}/s` : "nothing yet";
    text(second, queue === null || queue === undefined ? what : `${what}, queue ${queue}`);
    box.pipe.className = `pipe ${run.is_live && made > 0 ? `flow flow${made < 100 ? 1 : made < 1e4 ? 2 : 3}` : ""}`;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", `${stage.call}${isSlowest ? ", the bottleneck" : ""}: ${first.textContent}, ${second.textContent}`);
  });
  const [, track, first, second] = place.loop.children;
  track.firstChild.style.width = `${100 * (1 - run.waited_share)}%`;
  place.loop.classList.toggle("slowest", run.bottleneck === "the consumer");
  text(first, run.is_waiting && run.is_live ? "is not asking for data" : `waited ${percent(run.waited_share)} of the time`);
  text(second, `${short(run.rows_per_second)} rows/s`);
}
