// The timeline: one bar a job on the row of its device, coloured by phase. However many jobs come, at most
// MOST of them are kept and drawn, and a picture is drawn when one is due, not when an event comes.
import { $, BAD, FINAL, clock, colours, context, drawBar, ms } from "./page.js";

const MOST = 4000;
const ROW_GAP = 8;
const LABEL = 15;
const PHASES = ["receive_ms", "queue_ms", "batch_wait_ms", "upload_ms", "compute_ms", "download_ms"];
const NAMES = ["receive", "queue", "batch wait", "upload", "compute", "download"];

const rows = new Map(); // device -> { name, ops: op -> { name, ends: [of each lane] } }
const bars = [];        // ended ones, the oldest first
const running = new Map();
let span = 15000;
let paused = 0; // the time at which it stands
let dropped = 0;
let dirty = true;
let shown = [];
export const frames = { drawn: 0, rects: 0, worst: 0 };

const LANES = 3; // of an operation on a device

function placeOf(device, op) {
  const name = device || "no device";
  if (!rows.has(name)) rows.set(name, { name, ops: new Map() });
  const row = rows.get(name);
  if (!row.ops.has(op)) {
    row.ops.set(op, { name: op, ends: [], top: 0 });
    layOut();
  }
  return row.ops.get(op);
}

function strips() { return [...rows.values()].reduce((sum, row) => sum + row.ops.size, 0); }

function layOut() {
  const each = strips() <= 12 ? 24 : strips() <= 24 ? 15 : 9;
  $("tasks").style.height = `${Math.max(150, strips() * each + rows.size * (LABEL + ROW_GAP) + 24)}px`;
  dirty = true;
}

// The first lane that is free by then, so that no work hides other work while there is room.
function laneOf(place, from, to) {
  const ends = place.ends;
  let best = 0;
  for (let i = 0; i < LANES; i++) {
    if (!(ends[i] > from)) { best = i; break; }
    if (ends[i] < ends[best]) best = i;
  }
  ends[best] = Math.max(ends[best] || 0, to);
  return best;
}

export function add(job) {
  const device = job.execution.device;
  if (job.state === "running") {
    if (!running.has(job.id) && running.size < MOST) {
      const from = Date.parse(job.started_at);
      const place = placeOf(device, job.op);
      running.set(job.id, { job, place, from, lane: laneOf(place, from, from + 1) });
    } else if (running.has(job.id)) {
      const one = running.get(job.id);
      one.job = job;
      one.from = Date.parse(job.started_at); // of another attempt, maybe
    }
    dirty = true;
    return;
  }
  const was = running.get(job.id);
  if (running.delete(job.id)) dirty = true; // it has ended, or its worker gave it back
  if (!FINAL.has(job.state) || !device) return; // it never ran
  const timing = job.timing;
  const begun = Date.parse(job.created_at) - timing.receive_ms;
  const waited = timing.receive_ms + timing.queue_ms + timing.batch_wait_ms;
  const worked = timing.upload_ms + timing.compute_ms + timing.download_ms;
  const place = placeOf(device, job.op);
  const from = begun + waited;
  const to = worked > 0 ? from + worked : Date.parse(job.finished_at);
  bars.push({ job, place, begun, from, to, lane: was ? was.lane : laneOf(place, from, to), bad: BAD.has(job.state) });
  if (bars.length > MOST + 500) { dropped += bars.length - MOST; bars.splice(0, bars.length - MOST); }
  dirty = true;
}

// The operations of what runs on a device of that name.
export function opsOn(device) {
  return [...new Set([...running.values()].filter((one) => one.job.execution.device === device).map((one) => one.job.op))].sort();
}

export function runningIds() { return [...running.keys()]; }

// Some ends were not told of: these do not run any more.
export function noLonger(ids) {
  for (const id of ids) running.delete(id);
  dirty = true;
}

function now() { return paused || clock.now() - 250; } // what has happened in the last moment is still on its way

// A failed bar also has a notch, for those who do not see its colour.
function drawNotch(pen, look, x, y, height) {
  const size = Math.min(5, height * 0.45);
  pen.fillStyle = look.ink;
  pen.beginPath(); pen.moveTo(x, y); pen.lineTo(x + size, y); pen.lineTo(x, y + size); pen.fill();
}

function draw() {
  const canvas = $("tasks");
  const pen = context(canvas);
  const look = colours();
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  const end = now();
  const begin = end - span;
  const gutter = width < 500 ? 58 : 84;
  const x = (time) => gutter + ((time - begin) / span) * (width - gutter);
  pen.clearRect(0, 0, width, height);
  const list = [...rows.values()].sort((p, q) => p.name.localeCompare(q.name));
  const tall = (height - 24 - list.length * (LABEL + ROW_GAP)) / Math.max(1, strips());
  let down = 0;
  for (const row of list) {
    row.top = down + LABEL;
    down += LABEL;
    row.sorted = [...row.ops.values()].sort((p, q) => p.name.localeCompare(q.name));
    for (const place of row.sorted) {
      place.top = down + 2;
      place.used = 1; // lanes
      down += tall;
    }
    down += ROW_GAP;
  }

  pen.font = "11px system-ui, 'DejaVu Sans', sans-serif";
  pen.fillStyle = look.muted;
  pen.strokeStyle = look.line;
  pen.lineWidth = 1;
  for (let i = 0; i <= 5; i++) {
    const at = Math.round(gutter + (i / 5) * (width - gutter)) - 0.5;
    pen.beginPath(); pen.moveTo(at, 0); pen.lineTo(at, height - 18); pen.stroke();
    pen.textAlign = i === 5 ? "right" : "center";
    pen.fillText(i < 5 ? `−${+((5 - i) * span / 5000).toFixed(1)} s` : paused ? "paused" : "now", i === 5 ? width - 3 : at, height - 5);
  }

  const seen = bars.filter((bar) => bar.to >= begin && bar.begun <= end);
  for (const bar of [...seen, ...running.values()]) bar.place.used = Math.max(bar.place.used, bar.lane + 1);
  const heightOf = (place) => Math.max(1.5, (tall - 4) / place.used);
  shown = [];
  const cuts = [[], [], [], [], [], []]; // by phase: x, y, width, height, …
  const bad = [];
  for (const bar of seen) {
    const lane = heightOf(bar.place);
    const full = Math.max(1.5, lane - 1);
    const thin = Math.max(1, Math.min(4, full * 0.3));
    const y = bar.place.top + bar.lane * lane;
    let from = bar.begun;
    PHASES.forEach((phase, i) => {
      const took = bar.job.timing[phase];
      const left = x(from);
      from += took;
      const wide = x(from) - left;
      if (from < begin || (i === 4 ? !(took > 0) : wide < 0.3)) return; // of each job its computation is seen
      if (i < 3) cuts[i].push(left, y + (full - thin) / 2, wide, thin);
      else cuts[i].push(left, y, i === 4 ? Math.max(wide, 1.4) : wide, full);
    });
    if (bar.bad) bad.push(x(bar.from), y, Math.max(2, x(bar.to) - x(bar.from)), full);
    shown.push(bar, y, lane);
  }
  let rects = 0;
  cuts.forEach((list, i) => {
    pen.fillStyle = look.phases[i];
    for (let k = 0; k < list.length; k += 4) drawBar(pen, look, list[k], list[k + 1], list[k + 2], list[k + 3]);
    rects += list.length / 4;
  });
  for (const one of running.values()) {
    const lane = heightOf(one.place);
    const full = Math.max(1.5, lane - 1);
    const y = one.place.top + one.lane * lane;
    const left = Math.max(gutter, x(one.from));
    pen.fillStyle = look.edge ? look.panel : look.phases[4]; // pale
    pen.globalAlpha = look.edge ? 1 : 0.45;
    drawBar(pen, look, left, y, Math.max(2, width - left), full);
    pen.fillStyle = look.phases[4];
    pen.globalAlpha = 1;
    if (one.job.progress > 0) pen.fillRect(left, y + full - 2, (width - left) * one.job.progress, 2);
    shown.push(one, y, lane);
    rects++;
  }
  for (let k = 0; k < bad.length; k += 4) {
    pen.fillStyle = look.bad;
    drawBar(pen, look, bad[k], bad[k + 1], bad[k + 2], bad[k + 3]);
    drawNotch(pen, look, bad[k], bad[k + 1], bad[k + 3]);
  }
  pen.clearRect(0, 0, gutter - 1, height - 18); // what began before the span
  pen.textAlign = "left";
  for (const row of list) {
    pen.font = "600 11px system-ui, 'DejaVu Sans', sans-serif";
    pen.fillStyle = look.ink;
    pen.fillText(row.name, 4, row.top - 3);
    if (tall < 11) continue;
    pen.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    pen.fillStyle = look.muted;
    for (const place of row.sorted) pen.fillText(place.name, 10, place.top + tall / 2 + 1, gutter - 14);
  }
  pen.fillStyle = look.muted;
  if (list.length === 0) {
    pen.textAlign = "center";
    pen.fillText("No job has run since this page was opened.", width / 2, height / 2);
  }
  shown.x = x;
  frames.drawn++;
  frames.rects = rects;
}

const REACH = 6; // pixels beside a bar that still belong to it, if no other bar is nearer

function hit(event) {
  const box = $("tasks").getBoundingClientRect();
  const px = event.clientX - box.left;
  const py = event.clientY - box.top;
  let best = null;
  let least = REACH + 1;
  if (!shown.x) return null;
  for (let i = shown.length - 3; i >= 0; i -= 3) {
    const [bar, y, lane] = shown.slice(i, i + 3);
    const left = shown.x(bar.begun ?? bar.from);
    const right = bar.to === undefined ? box.width : shown.x(bar.to);
    const away = Math.max(left - px, px - right, 0);
    if (py < y - 1 || py > y + lane || away >= least) continue;
    best = bar.job;
    least = away;
  }
  return best;
}

// Shows a shorter (-1) or longer (1) span of time.
function zoom(by) {
  const field = $("span");
  const to = Math.max(0, Math.min(field.options.length - 1, field.selectedIndex + by));
  if (to === field.selectedIndex) return;
  field.selectedIndex = to;
  field.dispatchEvent(new Event("change"));
}

function tip(event) {
  const job = hit(event);
  const note = $("tip");
  note.hidden = !job;
  if (!job) return;
  const lines = [`${job.op} · ${job.state} · ${job.execution.device}`];
  if (job.state === "running") lines.push(`running for ${ms(clock.now() - Date.parse(job.started_at))}`);
  else PHASES.forEach((phase, i) => { if (job.timing[phase] > 0) lines.push(`${NAMES[i].padEnd(11)}${ms(job.timing[phase])}`); });
  if (job.execution.batch_size > 1) lines.push(`batch of ${job.execution.batch_size}`);
  note.textContent = lines.join("\n");
  const box = $("tasks").getBoundingClientRect();
  const x = event.clientX - box.left;
  note.style.left = `${Math.max(0, x + 14 + note.offsetWidth > box.width ? x - 14 - note.offsetWidth : x + 14)}px`;
  note.style.top = `${Math.max(0, Math.min(event.clientY - box.top + 12, box.height - note.offsetHeight))}px`;
}

export function counts() {
  return { bars: bars.length, running: running.size, rows: rows.size, dropped, ...frames };
}

export function start(open) {
  const canvas = $("tasks");
  canvas.addEventListener("mousemove", tip);
  canvas.addEventListener("mouseleave", () => { $("tip").hidden = true; });
  canvas.addEventListener("click", (event) => { const job = hit(event); if (job) open(job.id); });
  $("span").addEventListener("change", (event) => { span = Number(event.target.value) * 1000; dirty = true; });
  $("closer").addEventListener("click", () => zoom(-1));
  $("wider").addEventListener("click", () => zoom(1));
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(Math.sign(event.deltaY));
  }, { passive: false });
  $("pause").addEventListener("click", (event) => {
    paused = paused ? 0 : now();
    event.target.setAttribute("aria-pressed", String(Boolean(paused)));
    event.target.textContent = paused ? "Resume" : "Pause";
    dirty = true;
  });
  new ResizeObserver(() => { dirty = true; }).observe(canvas);
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)");
  let before = 0;
  const frame = (at) => {
    requestAnimationFrame(frame);
    const least = calm.matches ? 1000 : span > 60000 ? 100 : 30; // no picture is worth more than that
    if (document.hidden || at - before < least || (paused && !dirty)) return;
    if (bars.length === 0 && running.size === 0 && !dirty) return;
    before = at;
    dirty = false;
    const began = performance.now();
    draw();
    frames.worst = Math.max(frames.worst, performance.now() - began);
  };
  requestAnimationFrame(frame);
}

export function redraw() { dirty = true; }
