// Rates, totals, the queue, batch sizes and devices: from the `devices` event of each second, and where the key may
// not know everybody's, from its own jobs' events.
import { $, BAD, FINAL, STATE_COLOURS, bytes, clock, colours, context, count, drawBar, make, ms, opColour, rate, renew, renewRows, setText } from "./page.js";
import { opsOn } from "./tasks.js";

const SECONDS = 120;
const ENDS = ["succeeded", "failed", "cancelled", "expired"];
const BATCHES = [1, 2, 4, 8, 16, 32, 64, 128];
const KEPT = 2000;
const CARDS = 64;

let totals = null;   // { op: { succeeded, failed, cancelled, expired } } as of the last second
let own = {};        // the same of events, since the page was opened
let codes = {};      // of failed jobs -> jobs, as of the last second
const ownCodes = {};
const seconds = [];  // { at, took, ends: { "op state": jobs }, codes: { code: jobs } }, the newest last
const recent = [];   // { at, op, ms }
const batches = [];  // { at, jobs }
let byOp = true;
let drawnAt = 0;

function tally(into, op, state, jobs) {
  into[op] = into[op] || { succeeded: 0, failed: 0, cancelled: 0, expired: 0 };
  into[op][state] += jobs;
}

function keep(list, item) {
  list.push(item);
  if (list.length > KEPT) list.splice(0, list.length - KEPT);
}

export function onJob(job) {
  if (!FINAL.has(job.state)) return;
  tally(own, job.op, job.state, 1);
  if (job.error) ownCodes[job.error.code] = (ownCodes[job.error.code] || 0) + 1;
  if (job.state === "succeeded") keep(recent, { at: clock.now(), op: job.op, ms: job.timing.total_ms });
}

export function onBatch(batch) { keep(batches, { at: clock.now(), jobs: batch.jobs }); }

// "OP STATE[ CODE]" -> jobs becomes { op: { state: jobs } }; the codes go to `codes`.
function readTotals(flat) {
  const read = {};
  codes = {};
  for (const [name, jobs] of Object.entries(flat)) {
    const [op, state, code] = name.split(" ");
    if (code) codes[code] = (codes[code] || 0) + jobs;
    if (state === "submitted") read[op] = read[op] || { succeeded: 0, failed: 0, cancelled: 0, expired: 0 };
    else if (ENDS.includes(state)) tally(read, op, state, jobs);
  }
  return read;
}

let before = null;
function noteSecond(now, at) {
  if (before) {
    const ends = {};
    const failures = {};
    for (const [code, jobs] of Object.entries(codes)) if (jobs > (before.codes[code] || 0)) failures[code] = jobs - (before.codes[code] || 0);
    for (const [op, states] of Object.entries(now)) {
      for (const state of ENDS) {
        const more = states[state] - (before.of[op] ? before.of[op][state] : 0);
        if (more > 0) ends[`${op} ${state}`] = more;
      }
    }
    seconds.push({ at, took: Math.max(200, at - before.at), ends, codes: failures });
    if (seconds.length > SECONDS) seconds.shift();
  }
  before = { at, of: structuredClone(now), codes: structuredClone(codes) };
}

function ended(within, keep_) {
  const since = clock.now() - within;
  let jobs = 0;
  let took = 0;
  for (const second of seconds) {
    if (second.at < since) continue;
    took += second.took;
    for (const [name, n] of Object.entries(second.ends)) if (keep_(name)) jobs += n;
  }
  return { jobs, rate: took > 0 ? jobs * 1000 / took : 0 };
}

// The times of jobs that succeeded in the last half minute, the shortest first.
function times(op) {
  const since = clock.now() - 30000;
  return recent.filter((one) => one.at >= since && (!op || one.op === op)).map((one) => one.ms).sort((a, b) => a - b);
}

function quantile(sorted, part) { return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] : NaN; }

// The codes of the last minute's failures, the three most frequent.
function topCodes() {
  const since = clock.now() - 60000;
  const sums = {};
  for (const second of seconds) {
    if (second.at < since) continue;
    for (const [code, jobs] of Object.entries(second.codes)) sums[code] = (sums[code] || 0) + jobs;
  }
  return Object.entries(sums).sort((a, b) => b[1] - a[1]).slice(0, 3).map(([code, jobs]) => `${code} ${count(jobs)}`).join(", ");
}

// A column whose figures are all 0 is left out.
function showColumn(state, index, of) {
  const hidden = (state === "cancelled" || state === "expired") && Object.values(of).every((states) => states[state] === 0);
  for (const row of $("totals").rows) row.cells[index].hidden = hidden;
}

function showTotals(of) {
  const body = $("totals").tBodies[0];
  const ops = Object.keys(of).sort();
  renewRows(body, "op", ops, () => make("tr", {}, make("th", { scope: "row" }, make("i", { class: "swatch" }), make("span")),
    ...Array.from({ length: 6 }, () => make("td"))));
  ops.forEach((op, i) => {
    const row = body.rows[i];
    row.cells[0].firstChild.style.backgroundColor = opColour(op);
    setText(row.cells[0].lastChild, op);
    setText(row.cells[1], rate(ended(5000, (name) => name.startsWith(`${op} `)).rate));
    setText(row.cells[2], ms(quantile(times(op), 0.99)));
    ENDS.forEach((state, k) => {
      setText(row.cells[k + 3], of[op][state].toLocaleString("en"));
      row.cells[k + 3].dataset.state = state;
      row.cells[k + 3].className = of[op][state] === 0 ? "zero" : "";
    });
  });
  ENDS.forEach((state, k) => showColumn(state, k + 3, of));
  setText($("totals-caption"), totals ? "Jobs ended since the queue was created; p99 of the last half minute" : "Your jobs ended since this page was opened; p99 of the last half minute");
}

function showQueue(queue) {
  const body = $("queue").tBodies[0];
  setText($("queue-note"), queue ? `${queue.jobs.toLocaleString("en")} queued or running, ${bytes(queue.bytes)}; ${bytes(queue.records_bytes)} of results stored.`
    : "The queue is shown to keys with role admin or metrics.");
  $("queue").hidden = !queue;
  if (!queue) return;
  ["any", "cpu", "cuda"].forEach((name, i) => {
    let row = body.rows[i];
    if (!row) {
      row = body.insertRow();
      row.append(make("th", { scope: "row" }, name), ...Array.from({ length: 3 }, () => make("td", {}, make("span"), make("small"))));
    }
    ["high", "normal", "low"].forEach((priority, k) => {
      const cell = row.cells[k + 1];
      const { queued, claimed } = queue[name][priority];
      setText(cell.firstChild, queued.toLocaleString("en"));
      setText(cell.lastChild, claimed > 0 ? ` +${claimed.toLocaleString("en")} held` : "");
      cell.dataset.queued = queued;
      cell.className = queued + claimed === 0 ? "zero" : "";
      cell.style.setProperty("--share", queued === 0 ? 0 : Math.round(Math.min(30, 6 + 2.2 * Math.log1p(queued))));
    });
  });
}

function gauge(share, text) {
  const bar = make("i");
  bar.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return make("dd", {}, make("div", { class: "gauge", role: "img", "aria-label": text }, bar));
}

// What runs on it, by operation where jobs' events tell that of this device alone: other machines' may have its name. A device
// that was in use during the last second is not called idle, though nothing runs at this moment.
function runsText(device, all, use) {
  if (device.running === undefined || (device.running === 0 && use > 0.005)) return "";
  if (device.running === 0) return "idle";
  const ops = all.filter((other) => other.device === device.device).length === 1 ? opsOn(device.device) : [];
  return `${device.running} running${ops.length > 0 ? `: ${ops.join(", ")}` : ""}`;
}

function deviceCard(device, _, all) {
  const facts = [];
  const add = (name, ...values) => facts.push(make("dt", {}, name), ...values);
  const wide = (text) => make("dd", { class: "span" }, text);
  const use = device.busy_percent !== undefined ? device.busy_percent / 100 : device.busy_share;
  if (use !== undefined) add("in use", gauge(use, `${Math.round(use * 100)} % in use`), make("dd", {}, `${Math.round(use * 100)} %`));
  if (device.memory_bytes && device.memory_free_bytes !== undefined) {
    const taken = device.memory_bytes - device.memory_free_bytes;
    add("memory", gauge(taken / device.memory_bytes, `${bytes(taken)} of memory used`), make("dd", {}, `${bytes(taken)} / ${bytes(device.memory_bytes)}`));
  } else if (device.memory_bytes || device.host_memory_bytes) {
    add("memory", wide(bytes(device.memory_bytes || device.host_memory_bytes)));
  }
  if (device.power_watts !== undefined) add("power", wide(`${device.power_watts.toFixed(0)} W`));
  if (device.energy_joules !== undefined) add("energy", wide(`${(device.energy_joules / 3600).toFixed(1)} Wh`));
  if (device.jobs_per_s !== undefined) add("jobs", wide(`${count(device.jobs)} in total`));
  const runs = runsText(device, all, use);
  return make("article", { class: "device", "data-worker": device.worker, "aria-label": `${device.device}, ${device.worker}` },
    make("div", { class: "title" }, make("h3", {}, device.device || "device"), runs ? make("span", { class: `state ${device.running > 0 ? "running" : ""}` }, runs) : null),
    make("p", { class: "muted" }, `${device.device_name || ""} · ${device.worker}`), make("dl", {}, ...facts));
}

// Where other devices work, a class of which there is none at all is no trouble; one of its devices that does not work is.
function absent(one, { devices }) { return devices.length > 0 && !one.device.includes(":"); }

function showDevices(document) {
  const cards = document.devices.slice(0, CARDS).map(deviceCard);
  if (document.devices.length > CARDS) cards.push(make("p", { class: "muted" }, `and ${document.devices.length - CARDS} more`));
  for (const one of document.unusable) {
    cards.push(make("article", { class: "device" }, make("div", { class: "title" }, make("h3", {}, one.device)), make("p", { class: absent(one, document) ? "muted" : "problem" }, one.reason)));
  }
  if (cards.length === 0) cards.push(make("p", { class: "problem" }, "No worker is running: jobs wait until one starts."));
  renew($("devices"), cards);
}

function showBatches() {
  const since = clock.now() - 60000;
  const fresh = batches.filter((batch) => batch.at >= since);
  const numbers = BATCHES.map(() => 0);
  let jobs = 0;
  for (const batch of fresh) {
    numbers[BATCHES.findLastIndex((least) => batch.jobs >= least)]++;
    jobs += batch.jobs;
  }
  const most = Math.max(1, ...numbers);
  const place = $("batches");
  if (!place.firstChild) {
    BATCHES.forEach(() => place.append(make("span", { "aria-hidden": "true" }, make("b"), make("i"), make("em"))));
    [...place.children].forEach((one, i) => { one.lastChild.textContent = i === 0 ? "1" : i === BATCHES.length - 1 ? "128+" : `${BATCHES[i]}–${BATCHES[i + 1] - 1}`; });
  }
  [...place.children].forEach((one, i) => {
    setText(one.children[0], numbers[i] ? count(numbers[i]) : "");
    one.children[1].style.height = `${numbers[i] / most * 70}px`;
  });
  setText($("batches-note"), fresh.length === 0 ? "No batch in the last minute."
    : `${fresh.length >= KEPT ? "The last " : ""}${count(fresh.length)} batches in the last minute, ${(jobs / fresh.length).toFixed(1)} jobs each on average.`);
}

function showTiles(queue) {
  const all = ended(5000, () => true);
  setText($("tile-rate"), rate(all.rate));
  let waiting = 0;
  let held = 0;
  if (queue) {
    for (const name of ["any", "cpu", "cuda"]) {
      for (const cell of Object.values(queue[name])) { waiting += cell.queued; held += cell.claimed; }
    }
    setText($("tile-queued"), count(waiting));
    setText($("tile-running"), count(queue.running));
    setText($("tile-running-note"), `on workers, which hold ${count(held)}`);
  } else {
    setText($("tile-queued"), "–");
    setText($("tile-running"), "–");
  }
  const sorted = times();
  setText($("tile-half"), ms(quantile(sorted, 0.5)));
  setText($("tile-most"), sorted.length ? `p99 ${ms(quantile(sorted, 0.99))}, last half minute` : "no job in half a minute");
  const failed = ended(60000, (name) => BAD.has(name.split(" ")[1])).jobs;
  setText($("tile-failed"), count(failed));
  $("tile-failed").className = failed > 0 ? "bad" : "";
  setText($("tile-failed-note"), topCodes() || "last minute");
}

function drawRates() {
  const canvas = $("rates");
  const pen = context(canvas);
  const look = colours();
  const width = canvas.clientWidth - 40;
  const height = canvas.clientHeight - 16;
  pen.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  const names = [...new Set(seconds.flatMap((second) => Object.keys(second.ends).map((name) => name.split(" ")[byOp ? 0 : 1])))].sort();
  const parts = seconds.map((second) => {
    const sums = {};
    for (const [name, jobs] of Object.entries(second.ends)) {
      const part = name.split(" ")[byOp ? 0 : 1];
      sums[part] = (sums[part] || 0) + jobs * 1000 / second.took;
    }
    return sums;
  });
  const most = Math.max(1, ...parts.map((sums) => Object.values(sums).reduce((a, b) => a + b, 0)));
  const top = 10 ** Math.floor(Math.log10(most)) * ([1, 2, 2.5, 5, 10].find((n) => n * 10 ** Math.floor(Math.log10(most)) >= most));
  pen.font = "11px system-ui, 'DejaVu Sans', sans-serif";
  pen.textAlign = "right";
  for (let i = 0; i <= 2; i++) {
    const y = Math.round(4 + (height - 4) * (1 - i / 2)) + 0.5;
    pen.strokeStyle = look.line;
    pen.beginPath(); pen.moveTo(40, y); pen.lineTo(canvas.clientWidth, y); pen.stroke();
    pen.fillStyle = look.muted;
    pen.fillText(rate(top * i / 2), 34, y + 4);
  }
  const step = width / SECONDS;
  parts.forEach((sums, i) => {
    let y = height;
    const x = 40 + (SECONDS - parts.length + i) * step;
    for (const name of names) {
      const tall = (sums[name] || 0) / top * (height - 4);
      pen.fillStyle = byOp ? opColour(name) : STATE_COLOURS[name];
      if (tall > 0) drawBar(pen, look, x, y - tall, Math.max(1, step - 1), tall);
      y -= tall;
    }
  });
  pen.fillStyle = look.muted;
  pen.fillText("now", canvas.clientWidth - 1, height + 13);
  pen.textAlign = "left";
  pen.fillText("−2 min", 40, height + 13);
}

export function onDevices(document) {
  totals = document.totals ? readTotals(document.totals) : null;
  if (!totals) codes = ownCodes;
  noteSecond(totals || own, document.time_ms || clock.now());
  showTotals(totals || own);
  showQueue(document.queue);
  showDevices(document);
  showTiles(document.queue);
  showBatches();
  drawRates();
}

export function redraw() { drawRates(); }

export function start() {
  const choose = (op) => {
    byOp = op;
    $("by-op").setAttribute("aria-pressed", String(op));
    $("by-state").setAttribute("aria-pressed", String(!op));
    drawRates();
  };
  $("by-op").addEventListener("click", () => choose(true));
  $("by-state").addEventListener("click", () => choose(false));
  new ResizeObserver(drawRates).observe($("rates"));
}
