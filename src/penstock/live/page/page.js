// The live page: asks its own server once a second what runs, and shows it. It fetches nothing from elsewhere.

import { clock, el, gauge, nbytes, percent, pipeline, plot, short, text, tile } from "./draw.js";

const WORDS = {
  running: "running",
  waiting: "waiting for the consumer",
  silent: "no news",
  between: "epoch ended",
  ended: "ended",
  stopped: "stopped",
  failed: "failed",
  killed: "killed",
};
const byId = (id) => document.getElementById(id);
let wanted = decodeURIComponent(location.hash.slice(1));
let shown = "";

async function look() {
  const response = await fetch(`runs?run=${encodeURIComponent(wanted)}`, { cache: "no-store" });
  if (!response.ok) throw new Error(`${response.status}`);
  return response.json();
}

async function tick() {
  if (!document.hidden) {
    try {
      const found = await look();
      byId("link").className = "link on";
      text(byId("link"), "live");
      show(found);
    } catch (error) {
      if (!(error instanceof TypeError) && !/^\d+$/.test(error.message)) console.error(error);
      byId("link").className = "link off";
      text(byId("link"), "not connected: penstock watch shows runs after their end");
    }
  }
  setTimeout(tick, 1000);
}

function show(found) {
  const { run } = found;
  byId("none").hidden = Boolean(run);
  byId("run").hidden = !run;
  showRuns(found.runs, run ? run.name : "");
  if (!run) return;
  if (run.name !== shown) {
    shown = wanted = run.name;  // It stays the one that is looked at, whatever else begins.
    for (const id of ["rate", "waiting", "memory", "time", "plot-rate", "plot-waited", "plot-memory"]) byId(id).replaceChildren();
  }
  showRun(run, found.at);
}

// -- all runs -----------------------------------------------------------------------------------

const title = (run) => run.command.replace(/^python[\d.]* /, "");
const rankOf = (run) => (run.world > 1 ? `rank ${run.rank} of ${run.world}, ` : "");

function showRuns(runs, current) {
  const list = byId("runs");
  const before = new Map([...list.children].map((item) => [item.dataset.run, item]));
  runs.forEach((run, place) => {
    const item = before.get(run.name) ?? newRun(run.name);
    before.delete(run.name);
    if (list.children[place] !== item) list.insertBefore(item, list.children[place] ?? null);
    showLine(item.firstChild, run, run.name === current);
  });
  for (const item of before.values()) item.remove();
}

function newRun(name) {
  const button = el("button", { type: "button" },
    el("div", { class: "title" }), el("div", { class: "chain" }), el("div", { class: "track", "aria-hidden": "true" }, el("i")),
    el("div", { class: "line" }, el("span"), el("span")));
  button.addEventListener("click", () => {
    wanted = name;
    history.replaceState(null, "", `#${encodeURIComponent(name)}`);
    look().then(show, () => {});
  });
  return el("li", { "data-run": name }, button);
}

function showLine(button, run, isCurrent) {
  button.setAttribute("aria-current", String(isCurrent));
  const [name, chain, track, line] = button.children;
  text(name, title(run));
  name.title = run.command;
  text(chain, `${run.id}: ${rankOf(run)}${run.pipeline}`);
  showTrack(track, run.progress);
  line.children[0].className = `dot s-${run.status}`;
  text(line.children[0], WORDS[run.status]);
  text(line.children[1], run.is_live ? `${short(run.rows_per_second)} rows/s` : `epoch ${run.epoch}`);
}

function showTrack(track, progress) {
  track.classList.toggle("unknown", progress === null);
  track.firstChild.style.width = progress === null ? "" : `${100 * progress}%`;
}

// -- one run ------------------------------------------------------------------------------------

function showRun(run, at) {
  const { report } = run;
  document.title = `${run.progress === null ? WORDS[run.status] : percent(run.progress)} ${title(run)} - penstock`;
  text(byId("host"), run.host);
  text(byId("command"), title(run));
  byId("status").className = `pill dot s-${run.status}`;
  text(byId("status"), WORDS[run.status]);
  text(byId("where"), `${rankOf(run)}process ${run.pid}, in ${run.folder}`);
  showProgress(run, at);
  showAdvice(run);
  showFigures(run);
  pipeline(byId("pipeline"), run);
  showPlots(report);
  showLists(run);
}

function showProgress(run, at) {
  const { report } = run;
  const bar = byId("progress");
  showTrack(bar, run.progress);
  if (run.progress === null) bar.removeAttribute("aria-valuenow");
  else bar.setAttribute("aria-valuenow", Math.round(100 * run.progress));
  const unit = report.is_batched ? "batches" : "rows";
  const of = report.num_expected === null ? "" : ` of ${report.num_expected.toLocaleString("en")}`;
  text(byId("done"), `epoch ${report.epoch}: ${report.num_elements.toLocaleString("en")}${of} ${unit}`);
  const left = {
    running: run.seconds_left === null ? "time left unknown" : `${clock(run.seconds_left)} left`,
    waiting: "the consumer is busy elsewhere, and asks for no data",
    silent: `nothing heard for ${clock(at - run.updated_at)}`,
    between: "the process goes on",
  }[run.status];
  text(byId("left"), left ?? `${new Date(1000 * run.updated_at).toLocaleString()}`);
}

function showAdvice(run) {
  const say = byId("say");
  say.className = run.bottleneck === "the consumer" ? "say good" : "say";
  text(say, run.advice || "nothing was read yet");
  const said = { killed: "Its process is gone, and did not say why: it was killed, or the machine ran out of memory." };
  const wrong = run.status === "failed" || run.status === "stopped" ? run.error : said[run.status] ?? "";
  byId("error").hidden = !wrong;
  text(byId("error"), wrong);
}

function showFigures(run) {
  const { report } = run;
  const mean = report.seconds ? report.num_rows / report.seconds : 0;
  tile(byId("rate"), run.is_live ? "Rows a second, now" : "Rows a second", short(run.rows_per_second),
    `${short(mean)} on average, ${report.num_rows.toLocaleString("en")} rows${run.now.read_per_second ? `, ${nbytes(run.now.read_per_second)}/s read` : ""}`);
  const level = run.waited_share > 0.3 ? "bad" : run.waited_share > 0.05 ? "warn" : "";
  gauge(byId("waiting"), run.is_live ? "Waiting for data, now" : "Waited for data", run.waited_share, level,
    `${clock(report.waited_seconds)} in this epoch`);
  gauge(byId("memory"), run.is_live ? "Memory of the budget" : "Most memory of the budget", run.memory_share,
    run.memory_share > 0.95 ? "warn" : "", `${nbytes(run.memory_nbytes)} of ${nbytes(report.budget_nbytes)}`);
  tile(byId("time"), "Time in this epoch", clock(report.seconds),
    `${report.timeline.threads.at(-1) ?? report.threads} threads, ${report.num_blocks.toLocaleString("en")} blocks${report.num_skipped ? `, ${report.num_skipped} rows skipped` : ""}`);
}

const MOST_POINTS = 80;

// The pace between two samples; those that lie close together are taken as one, since blocks come in bursts.
function changes(line, of) {
  const points = [];
  const last = line.seconds.length - 1;
  const least = line.seconds[last] / MOST_POINTS;
  let [since, before] = [0, 0];
  line.seconds.forEach((at, number) => {
    const took = at - since;
    if (took <= 0 || (took < least && number !== last)) return;
    if (took < least && points.length) points.at(-1)[0] = at;
    else points.push([at, (line[of][number] - before) / took]);
    [since, before] = [at, line[of][number]];
  });
  return points;
}

// What stays on the device has no samples: nothing is read for it.
function whole(report) {
  return { seconds: [report.seconds], num_rows: [report.num_rows], waited_seconds: [report.waited_seconds], ledger_nbytes: [0], held_nbytes: [0] };
}

function showPlots(report) {
  const { seconds } = report;
  const timeline = report.timeline.seconds.length ? report.timeline : whole(report);
  const marks = report.decisions.filter((one) => one.seconds).map((one) => [one.seconds, `${one.what}: ${one.why}`]);
  const mean = seconds ? report.num_rows / seconds : 0;
  plot(byId("plot-rate"), "Throughput", `rows a second, ${short(mean)} on average`,
    [{ name: "rows a second", kind: "k0", area: "a0", points: changes(timeline, "num_rows") }], { seconds, unit: short, marks });
  const share = seconds ? report.waited_seconds / seconds : 0;
  plot(byId("plot-waited"), "Waiting for data", `${percent(Math.min(1, share))} of the time`,
    [{ name: "waiting", kind: "k1", area: "a1", points: changes(timeline, "waited_seconds") }], { seconds, unit: percent, top: 1, marks });
  const ledger = timeline.seconds.map((at, number) => [at, timeline.ledger_nbytes[number]]);
  const held = timeline.seconds.map((at, number) => [at, timeline.held_nbytes[number]]);
  const lines = [
    { name: "penstock", kind: "k0", area: "a0", points: ledger },
    { name: "held by the consumer", kind: "k4", points: held },
  ];
  const most = Math.max(1, ...timeline.ledger_nbytes);
  // A budget that is far away would press all else flat: then the number is enough.
  if (report.budget_nbytes <= 8 * most) lines.push({ name: "budget", kind: "kb", points: [[seconds, report.budget_nbytes]] });
  plot(byId("plot-memory"), "Memory", `of a budget of ${nbytes(report.budget_nbytes)}`, lines, { seconds, unit: (value) => nbytes(Math.round(value)) });
}

function fill(list, items, make) {
  const key = JSON.stringify(items);
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  list.replaceChildren(...items.map(make));
}

function showLists(run) {
  const { report, plan } = run;
  const decided = report.decisions.length ? report.decisions.toReversed() : [{ what: "Nothing yet", why: "threads and blocks ahead are as planned", seconds: 0 }];
  fill(byId("decisions"), decided, (one) =>
    el("li", {}, el("b", {}, one.what), `${one.seconds ? ` after ${clock(one.seconds)}` : ""}: ${one.why}`));
  byId("decisions").reversed = true;
  byId("no-epoch").hidden = run.epochs.length > 0;
  fill(byId("epochs"), run.epochs.toReversed(), (one) => el("tr", {},
    el("td", {}, one.state === "ended" ? `${one.epoch}` : `${one.epoch}, ${one.state}`), el("td", { class: "num" }, one.num_rows.toLocaleString("en")),
    el("td", { class: "num" }, short(one.seconds ? one.num_rows / one.seconds : 0)), el("td", { class: "num" }, clock(one.seconds)),
    el("td", { class: "num" }, percent(one.waited_share))));
  byId("skipped").hidden = !report.num_skipped;
  text(byId("num-skipped"), `${report.num_skipped} bad rows were skipped.`);
  const files = report.skipped_files.slice(0, 20).map((one) => `${one.num_rows} of ${one.file}`);
  fill(byId("skipped-files"), [...files, ...report.skipped.map((one) => one.split("\n")[0])], (one) => el("li", {}, one));
  const shuffles = report.shuffles.map((one) => ["shuffle", `${one.call}: ${one.kind}`]);
  fill(byId("plan"), [
    ["threads", plan.threads ? `${plan.threads}, ${plan.ahead} blocks ahead (${plan.why})` : `none (${plan.why})`],
    ["blocks", `${plan.block_rows} ${report.is_batched ? "batches" : "rows"}, ${nbytes(plan.block_nbytes)}`],
    ["memory", `${nbytes(plan.total_nbytes)} of a budget of ${nbytes(plan.budget_nbytes)}`],
    ...shuffles,
    ...(report.read_nbytes ? [["read", `${nbytes(report.read_nbytes)} from files`]] : []),
  ].flat(), (word, place) => el(place % 2 ? "dd" : "dt", {}, word));
}

document.addEventListener("visibilitychange", () => document.hidden || look().then(show, () => {}));
addEventListener("hashchange", () => { wanted = decodeURIComponent(location.hash.slice(1)); });
tick();
