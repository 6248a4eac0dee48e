// The stream of tasks: one bar a job on the row of its device, coloured by phase. However many jobs come, at most
// MOST of them are kept and drawn, and a picture is drawn when one is due, not when an event comes.
import { $, BAD, FINAL, clock, colours, context, ms } from "/console/page.js";

const MOST = 4000;
const ROW_GAP = 8;
const LABEL = 15;
const PHASES = ["receive_ms", "queue_ms", "batch_wait_ms", "upload_ms", "compute_ms", "download_ms"];
const NAMES = ["receive", "queue", "batch wait", "upload", "compute", "download"];

const rows = new Map(); // device -> { name, lanes: [end of the last bar], bars }
const bars = [];        // ended ones, the oldest first
const running = new Map();
let span = 30000;
let paused = 0; // the time at which it stands
let dropped = 0;
let dirty = true;
let shown = [];
export const frames = { drawn: 0, rects: 0, worst: 0, gaps: [] };

function rowOf(device) {
  const name = device || "no device";
  if (!rows.has(name)) {
    rows.set(name, { name, ends: [] });
    layOut();
  }
  return rows.get(name);
}

function lanes() { return rows.size <= 1 ? 12 : rows.size <= 3 ? 8 : 4; }

function layOut() {
  const each = lanes() * 9 + LABEL + ROW_GAP;
  $("tasks").style.height = `${Math.min(460, Math.max(140, rows.size * each + 22))}px`;
  dirty = true;
}

// The first lane that is free by then, so that no work hides other work while there is room.
function laneOf(row, from, to) {
  const ends = row.ends;
  let best = 0;
  for (let i = 0; i < lanes(); i++) {
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
      const row = rowOf(device);
      running.set(job.id, { job, row, from, lane: laneOf(row, from, from + 1) });
    } else if (running.has(job.id)) {
      running.get(job.id).job = job;
    }
    dirty = true;
    return;
  }
  if (!FINAL.has(job.state)) return;
  const was = running.get(job.id);
  running.delete(job.id);
  if (!device) return; // it never ran
  const timing = job.timing;
  const begun = Date.parse(job.created_at) - timing.receive_ms;
  const waited = timing.receive_ms + timing.queue_ms + timing.batch_wait_ms;
  const worked = timing.upload_ms + timing.compute_ms + timing.download_ms;
  const row = rowOf(device);
  const from = begun + waited;
  const to = worked > 0 ? from + worked : Date.parse(job.finished_at);
  bars.push({ job, row, begun, from, to, lane: was ? was.lane : laneOf(row, from, to), bad: BAD.has(job.state) });
  if (bars.length > MOST + 500) { dropped += bars.length - MOST; bars.splice(0, bars.length - MOST); }
  dirty = true;
}

export function forget() { bars.length = 0; running.clear(); dirty = true; }

function now() { return paused || clock.now() - 250; } // what has happened in the last moment is still on its way

function draw() {
  const canvas = $("tasks");
  const pen = context(canvas);
  const look = colours();
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  const end = now();
  const begin = end - span;
  const x = (time) => ((time - begin) / span) * width;
  pen.clearRect(0, 0, width, height);
  const list = [...rows.values()].sort((a, b) => a.name.localeCompare(b.name));
  const rowHeight = (height - 20) / Math.max(1, list.length);
  const laneHeight = Math.max(2, (rowHeight - LABEL - ROW_GAP) / lanes());
  list.forEach((row, i) => { row.top = i * rowHeight + LABEL; });

  pen.font = "11px system-ui, 'DejaVu Sans', sans-serif";
  pen.fillStyle = look.muted;
  pen.strokeStyle = look.line;
  pen.lineWidth = 1;
  const step = span / 6;
  for (let i = 0; i <= 6; i++) {
    const at = Math.round((i / 6) * width) + 0.5;
    pen.globalAlpha = 0.5;
    pen.beginPath(); pen.moveTo(at, 0); pen.lineTo(at, height - 18); pen.stroke();
    pen.globalAlpha = 1;
    const text = i === 6 ? "now" : `−${((6 - i) * step / 1000).toFixed(step < 1000 ? 1 : 0)} s`;
    pen.textAlign = i === 0 ? "left" : i === 6 ? "right" : "center";
    pen.fillText(paused && i === 6 ? "paused" : text, i === 0 ? 2 : i === 6 ? width - 2 : at, height - 5);
  }

  shown = [];
  const cuts = [[], [], [], [], [], []]; // by phase: x, y, width, height, …
  const bad = [];
  const thin = Math.max(1, laneHeight * 0.3);
  const full = Math.max(1.5, laneHeight - 1.5);
  for (const bar of bars) {
    if (bar.to < begin || bar.begun > end) continue;
    const y = bar.row.top + bar.lane * laneHeight;
    let from = bar.begun;
    PHASES.forEach((phase, i) => {
      const took = bar.job.timing[phase];
      const left = x(from);
      from += took;
      const wide = x(from) - left;
      if (from < begin || wide < (i < 3 ? 0.3 : 0.02)) return;
      if (i < 3) cuts[i].push(left, y + (full - thin) / 2, wide, thin);
      else cuts[i].push(left, y, Math.max(wide, i === 4 ? 1.2 : 0.4), full);
    });
    if (bar.bad) bad.push(x(bar.from), y, Math.max(3, x(bar.to) - x(bar.from)), full);
    shown.push(bar, y);
  }
  let rects = 0;
  cuts.forEach((list, i) => {
    pen.fillStyle = look.phases[i];
    for (let k = 0; k < list.length; k += 4) pen.fillRect(list[k], list[k + 1], list[k + 2], list[k + 3]);
    rects += list.length / 4;
  });
  pen.fillStyle = look.phases[4];
  for (const one of running.values()) {
    const y = one.row.top + one.lane * laneHeight;
    const left = Math.max(0, x(one.from));
    pen.globalAlpha = 0.45;
    pen.fillRect(left, y, Math.max(2, width - left), full);
    pen.globalAlpha = 1;
    if (one.job.progress > 0) pen.fillRect(left, y + full - 2, (width - left) * one.job.progress, 2);
    shown.push(one, y);
    rects++;
  }
  pen.fillStyle = look.bad;
  for (let k = 0; k < bad.length; k += 4) pen.fillRect(bad[k], bad[k + 1], bad[k + 2], bad[k + 3]);
  pen.textAlign = "left";
  for (const row of list) {
    const text = row.name;
    pen.font = "600 11px system-ui, 'DejaVu Sans', sans-serif";
    pen.fillStyle = look.muted;
    pen.fillText(text, 4, row.top - 4);
  }
  if (list.length === 0) {
    pen.textAlign = "center";
    pen.fillText("No job has run since the page was opened.", width / 2, height / 2);
  }
  shown.height = laneHeight;
  shown.x = x;
  frames.drawn++;
  frames.rects = rects;
}

function hit(event) {
  const box = $("tasks").getBoundingClientRect();
  const px = event.clientX - box.left;
  const py = event.clientY - box.top;
  for (let i = shown.length - 2; i >= 0; i -= 2) {
    const bar = shown[i];
    const y = shown[i + 1];
    const left = shown.x(bar.begun ?? bar.from) - 2;
    const right = bar.to === undefined ? box.width : Math.max(shown.x(bar.to) + 2, left + 4);
    if (py >= y - 1 && py <= y + shown.height && px >= left && px <= right) return bar.job;
  }
  return null;
}

function tip(event) {
  const job = hit(event);
  const note = $("tip");
  note.hidden = !job;
  if (!job) return;
  const lines = [`${job.op} · ${job.state} · ${job.execution.device}`];
  if (job.state === "running") lines.push(`for ${ms(clock.now() - Date.parse(job.started_at))}`);
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
  $("pause").addEventListener("click", (event) => {
    paused = paused ? 0 : now();
    event.target.setAttribute("aria-pressed", String(Boolean(paused)));
    event.target.textContent = paused ? "Go on" : "Pause";
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
