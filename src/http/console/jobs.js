// The list of jobs, and one of them opened.
import { fetchGood, getJson, key } from "./api.js";
import { $, FINAL, clock, make, ms, renew, renewRows, say, setText } from "./page.js";
import { sample, written } from "./send.js";
import { showView, viewHash } from "./views.js";

const MOST = 1000; // jobs that are kept here, unless somebody looks further back
const PAGE = 50;
const LIST = 100;  // jobs that the service lists at once
const PHASES = [["receive", "receive"], ["queue", "queue"], ["batch_wait", "batch"], ["upload", "upload"], ["compute", "compute"], ["download", "download"]];

const jobs = new Map();  // id -> document, in the order in which they came
const sent = new Map();  // id -> the body of the request, of those sent from this page
const forgotten = new Set(); // ids; a list that was asked for before that still has them
const heard = new WeakMap(); // document -> when it was told of, or asked for
let lists = 0;           // that were asked for
let rows = PAGE;
let cursor = null;       // where the service's list goes on; "" at its end, null: behind those of the floor
let floor = "";          // what was made since then is at hand without a gap, as far as state and operation fit; "": all
let dirty = true;
let live = false;        // whether jobs are told of
let open = null;         // id
let drawn = "";          // the document of it that is shown
let retold = new Map();  // id -> tensors' documents that the opened job was asked for

// `asked`: when, of one that is not told of just now; what was told since is newer. Whether it is made use of.
export function onJob(job, asked = performance.now()) {
  const was = jobs.get(job.id);
  if (forgotten.has(job.id) || (was && !FINAL.has(job.state) && (FINAL.has(was.state) || heard.get(was) > asked))) return false; // it came late
  heard.set(job, asked);
  jobs.set(job.id, job);
  if (jobs.size > room() + LIST) letGo();
  dirty = true;
  if (job.id === open) show();
  return true;
}

export function noteSent(id, body) {
  sent.set(id, body);
  if (sent.size > 50) sent.delete(sent.keys().next().value);
}

// Whether a job is one of those that are looked for; of those whose list the service is asked for, where no text counts.
function wanted(text = $("filter-text").value.trim().toLowerCase()) {
  const state = $("filter-state").value;
  const op = $("filter-op").value;
  return (job) => (!state || job.state === state) && (!op || job.op === op) &&
    (!text || [job.id, job.op, job.execution.device, job.execution.device_name, job.execution.method, job.error?.code, job.error?.detail,
      ...Object.entries(job.labels || {}).map((label) => label.join("="))]
      .some((part) => part && part.toLowerCase().includes(text)));
}

function newestFirst(a, b) {
  return a.created_at < b.created_at ? 1 : a.created_at > b.created_at ? -1 : a.id < b.id ? 1 : -1;
}

// What is looked for. In what a text is found there are gaps anyway.
function found() {
  const whole = $("filter-text").value.trim() ? "" : floor;
  const fits = wanted();
  return [...jobs.values()].filter((job) => job.created_at >= whole && fits(job)).sort(newestFirst);
}

function room() { return Math.max(MOST, rows + LIST); }

// Of too many the oldest go, those first that are not looked for; the list is without a gap as far as it then goes.
function letGo() {
  const fits = wanted(), listed = wanted("");
  const list = [...jobs.values()].filter((job) => job.id !== open).sort(newestFirst).reverse();
  const gone = [...list.filter((job) => !fits(job)), ...list.filter(fits)].slice(0, jobs.size - room());
  const cut = gone.filter(listed).map((job) => job.created_at).sort().at(-1);
  for (const job of gone) jobs.delete(job.id);
  if (!(cut >= floor)) return;
  for (const job of list) if (job.created_at === cut) jobs.delete(job.id); // the list goes on before a time
  floor = list.find((job) => job.created_at > cut && jobs.has(job.id) && listed(job))?.created_at || "";
  cursor = null;
}

// Fetches the newest, and asks for those that go on as far as was told and are not among these: their end may have been missed.
export async function catchUp() {
  const listed = await fetchJobs(false);
  if (!listed) return;
  await fetchOlder();
  for (const { id } of [...jobs.values()].filter((job) => !FINAL.has(job.state) && !listed.has(job.id)).slice(-PAGE)) {
    const asked = performance.now();
    try {
      onJob(await getJson(`/jobs/${id}`), asked);
    } catch (why) {
      if (why.status !== 404 && why.status !== 410) return;
      jobs.delete(id);
      dirty = true;
    }
  }
}

// Fetches as many as there are rows for.
async function fetchOlder() {
  for (let i = 0; i <= rows / LIST && cursor !== "" && found().length < rows; i++) if (!await fetchJobs(true)) return;
}

// Gives the ids of those that the service listed; nothing where it did not.
async function fetchJobs(more) {
  const query = new URLSearchParams({ limit: LIST });
  if ($("filter-state").value) query.set("state", $("filter-state").value);
  if ($("filter-op").value) query.set("op", $("filter-op").value);
  if (more && cursor) query.set("cursor", cursor);
  else if (more && floor) query.set("before", floor);
  const number = ++lists;
  const asked = performance.now();
  try {
    const page = await getJson(`/jobs?${query}`);
    if (number === lists) { // another filter's list ends elsewhere
      cursor = page.cursor || "";
      floor = cursor ? page.jobs.at(-1)?.created_at || floor : "";
    }
    const known = [...jobs.values()];
    jobs.clear();
    for (const job of page.jobs.reverse()) {
      if (forgotten.has(job.id)) continue;
      heard.set(job, asked);
      jobs.set(job.id, job);
    }
    for (const job of known) { // what was told of it since is newer than a list
      const listed = jobs.get(job.id);
      if (listed && (FINAL.has(listed.state) || !(FINAL.has(job.state) || heard.get(job) > asked))) continue;
      jobs.delete(job.id);
      jobs.set(job.id, job);
    }
    dirty = true;
    return new Set(page.jobs.map((job) => job.id));
  } catch (why) {
    setText($("jobs-note"), why.message);
    if (!why.status || why.status >= 500) setTimeout(() => fetchJobs(more), 2000); // it may be a moment's trouble
  }
  return null;
}

function time(job) {
  if (FINAL.has(job.state)) return ms(job.timing.total_ms);
  if (job.state === "running" && job.started_at) return ms(clock.now() - Date.parse(job.started_at));
  return "";
}

function newRow(id) {
  const button = make("button", { type: "button", class: "plain", "data-id": id, title: id, "aria-label": `job ${id}`, onclick: () => openJob(id) },
    `${id.slice(0, 9)}…${id.slice(-4)}`);
  return make("tr", {}, make("td", {}, button), make("td"), make("td", {}, make("span", { class: "state" })), make("td"), make("td"), make("td"));
}

function frozen() {
  const body = $("jobs").tBodies[0];
  return body.contains(document.activeElement) || body.matches(":hover");
}

function showRows() {
  const all = found();
  const list = all.slice(0, rows);
  const body = $("jobs").tBodies[0];
  renewRows(body, "id", list.map((job) => job.id), newRow);
  list.forEach((job, i) => {
    const [, op, state, device, batch, took] = body.rows[i].cells;
    setText(op, job.op);
    setText(state.firstChild, job.state === "running" && job.progress > 0 ? `running ${Math.round(job.progress * 100)} %` : job.state);
    state.firstChild.className = `state ${job.state}`;
    state.firstChild.title = job.remaining_ms >= 0 ? `about ${ms(job.remaining_ms)} to go` : "";
    setText(device, job.execution.device || "");
    setText(batch, job.execution.batch_size > 0 ? String(job.execution.batch_size) : "");
    setText(took, time(job));
  });
  setText($("jobs-note"), list.length === 0 ? "No job matches." : all.length > list.length ? `${list.length} of ${all.length} loaded` : `${list.length} jobs`);
}

function showStill() {
  setText($("jobs-still"), !live ? "List paused: no news of jobs arrives." :
    dirty && frozen() ? "List paused while the pointer or the focus is in it; there are changes." : "");
}

export function setLive(whether) {
  live = whether;
  showStill();
}

setInterval(() => {
  if (document.hidden) return;
  showStill();
  if (!dirty || frozen()) return;
  dirty = false;
  showRows();
}, 400);

// --- one job ---------------------------------------------------------------------------------------------------------

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

// What would be sent for it; of a job that was not sent from here all but its inputs and parameters, which nobody keeps. Null
// of a graph whose steps are not told yet.
function again(job) {
  if (sent.has(job.id)) return sent.get(job.id);
  const more = { ...(job.priority !== "normal" && { priority: job.priority }), ...(job.labels && { labels: job.labels }) };
  if (job.op !== "graph") return JSON.stringify({ op: job.op, inputs: sample(job.op), ...more });
  return job.steps && JSON.stringify({ steps: Object.fromEntries(Object.entries(job.steps).map(([name, { op }]) => [name, { op, inputs: sample(op) }])), ...more });
}

function curl(job, body) {
  return [`curl -sS ${quoted(`${location.origin}/${job.op === "graph" ? "graphs" : "jobs"}?wait=10`)} -H 'Content-Type: application/json'`,
    ...(key.get() ? ['-H "Authorization: Bearer $BLASD_API_KEY"'] : []), `-d ${quoted(body)}`].join(" \\\n  ");
}

function timeline(job) {
  const timing = job.timing;
  const total = PHASES.reduce((sum, [name]) => sum + timing[`${name}_ms`], 0);
  const strip = make("div", { class: "timeline", role: "img", "aria-label": "Where the time went; the table below has the figures" });
  const table = make("table", { class: "numbers" }, make("caption", {}, "Where the time went"),
    make("thead", {}, make("tr", {}, ...["phase", "time", "share"].map((name) => make("th", { scope: "col" }, name)))), make("tbody"));
  for (const [name, look] of PHASES) {
    const took = timing[`${name}_ms`];
    if (took > 0) {
      const part = make("i", { class: `phase-${look}`, title: `${name.replace("_", " ")} ${ms(took)}` });
      part.style.flexGrow = took / total;
      strip.append(part);
    }
    table.tBodies[0].append(make("tr", {}, make("th", { scope: "row" }, make("i", { class: `swatch phase-${look}` }), name.replace("_", " ")),
      make("td", {}, ms(took)), make("td", {}, total > 0 ? `${(100 * took / total).toFixed(took / total < 0.01 ? 2 : 0)} %` : "–")));
  }
  table.tBodies[0].append(make("tr", {}, make("th", { scope: "row" }, "total"), make("td", {}, ms(timing.total_ms)), make("td")));
  return [strip, table];
}

function copyButton(what, text) {
  return make("button", { type: "button", "data-part": `copy ${what}`, "aria-label": `Copy ${what}`, onclick: async () => {
    try { await navigator.clipboard.writeText(text()); say(`${what} copied`); } catch { say("the browser does not allow copying here"); }
  } }, "Copy");
}

async function save(job, name) {
  const response = await fetchGood(`/jobs/${job.id}/outputs/${encodeURIComponent(name)}`, { headers: { Accept: "application/x-npy, application/json;q=0.5" } });
  const npy = (response.headers.get("Content-Type") || "").includes("npy");
  const url = URL.createObjectURL(await response.blob());
  make("a", { href: url, download: `${job.id}-${name}.${npy ? "npy" : "json"}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// Of a job that was open when it was asked for.
function complain(id, why) {
  if (open !== id) { say(why.message); return; }
  $("job-body").querySelector(".problem.done")?.remove();
  $("job-body").prepend(make("p", { class: "problem done", role: "alert" }, why.message));
}

async function end(job, forget) {
  try {
    const document = await getJson(`/jobs/${job.id}${forget ? "?forget=1" : ""}`, { method: "DELETE" });
    if (forget) {
      forgotten.add(job.id);
      if (forgotten.size > MOST) forgotten.delete(forgotten.values().next().value);
      jobs.delete(job.id);
      if (open === job.id) $("job").close();
      showRows(); // though the focus comes back to its row
    } else {
      onJob(document);
    }
    say(forget ? "job deleted" : "job cancelled");
  } catch (why) { complain(job.id, why); }
}

function problem(error) {
  return make("div", { class: "problem" }, make("strong", {}, error.code), ` – ${error.title}.`, make("p", {}, error.detail || ""),
    make("p", {}, make("strong", {}, "What to do: "), error.advice || "", error.retry ? " The same request can succeed later." : ""));
}

function progress(job) {
  const ran = clock.now() - Date.parse(job.started_at);
  const left = job.remaining_ms >= 0 ? `, about ${ms(job.remaining_ms)} to go` : "";
  return make("p", {}, make("progress", { value: job.progress, max: 1, "aria-label": "Progress" }), `running for ${ms(ran)}${left}`);
}

function show() {
  const job = { ...jobs.get(open), ...(retold.get(open) || {}) };
  if (!job.id) return;
  const done = FINAL.has(job.state), text = JSON.stringify(job, null, 2);
  if (done && !retold.has(open)) retell(open);
  if (done && text === drawn) return; // what somebody selects, or is about to press, stays
  if ($("job-body").matches(":active")) { setTimeout(show, 200); return; } // a button drawn anew while it is pressed would not be pressed
  drawn = text;
  const focus = document.activeElement?.dataset?.part;
  setText($("job-title"), `${job.op} – ${job.state}`);
  const fact = (name, value) => (value ? [make("p", {}, make("span", {}, name), String(value))] : []);
  const run = job.execution;
  const parts = [
    make("p", { class: "id" }, make("a", { href: `#job=${job.id}`, "data-part": "link" }, job.id)),
    make("div", { class: "facts" }, make("p", {}, make("span", { class: `state ${job.state}` }, job.state)), ...fact("priority", job.priority),
      ...fact("device", run.device || job.device), ...fact("", run.device_name), ...fact("method", run.method), ...fact("batch of", run.batch_size > 1 && run.batch_size),
      ...fact("attempts", run.attempts > 1 && run.attempts), ...fact("submitted", job.created_at && new Date(job.created_at).toLocaleString())),
  ];
  if (job.error) parts.push(problem(job.error));
  if (job.state === "running" && job.started_at) parts.push(progress(job));
  const values = Object.entries(job.outputs || {}).filter(([, output]) => output.data !== undefined)
    .map(([name, { dtype, shape, data }]) => `${name}  ${dtype} ${JSON.stringify(shape)}\n${written(data)}`);
  if (values.length > 0) parts.push(make("pre", { id: "job-answer", "data-part": "answer", tabindex: "0", "aria-label": "Outputs" }, values.join("\n\n")));
  if (done) parts.push(...timeline(job));
  for (const warning of run.warnings || []) parts.push(make("p", { class: "problem" }, warning));
  const actions = make("div", { class: "actions" });
  if (!done) actions.append(make("button", { type: "button", class: "danger", id: "job-cancel", "data-part": "cancel", onclick: () => end(job, false) }, "Cancel the job"));
  else actions.append(make("button", { type: "button", class: "danger", "data-part": "forget", onclick: () => end(job, true) }, "Delete the job and its results"));
  const outputs = Object.entries(job.outputs || {}).map(([name, { dtype, shape }]) =>
    make("button", { type: "button", "data-part": `save-${name}`, title: `${dtype} ${JSON.stringify(shape)}`, onclick: () => save(job, name).catch((why) => complain(job.id, why)) }, `Save ${name}`));
  const body = again(job);
  parts.push(actions);
  if (outputs.length > 0) parts.push(make("details", { open: outputs.length <= 4 }, make("summary", { "data-part": "outputs" }, `Outputs as files (${outputs.length})`), make("div", { class: "actions" }, ...outputs)));
  if (body) {
    parts.push(make("div", {}, make("div", { class: "titled" }, make("h3", {}, "Run again"), copyButton("the command", () => $("job-curl").textContent)), make("pre", { id: "job-curl", "data-part": "curl", tabindex: "0", "aria-label": "Command" }, curl(job, body)),
      sent.has(job.id) ? null : make("p", { class: "muted" }, "The inputs of ended jobs are not stored: replace these examples by yours.")));
  }
  parts.push(make("div", {}, make("div", { class: "titled" }, make("h3", {}, "Job document"), copyButton("the document", () => $("job-document").textContent)), make("pre", { id: "job-document", "data-part": "document", tabindex: "0", "aria-label": "Document" }, text)));
  const scroll = $("job").scrollTop;
  renew($("job-body"), parts);
  $("job").scrollTop = scroll;
  if (focus && document.activeElement?.dataset?.part !== focus) $("job-body").querySelector(`[data-part="${CSS.escape(focus)}"]`)?.focus();
}

const ID = /^[a-z][0-9a-f]{40}$/;

// The address says which job is open: #job=ID.
function note(id) {
  const hash = id ? `#job=${id}` : viewHash();
  if (location.hash !== hash) history.replaceState(null, "", hash || location.pathname + location.search);
}

function openAddressed() {
  const [, id] = location.hash.match(/^#job=(.*)$/) || [];
  if (ID.test(id) && id !== open) openJob(id);
  if (!id && $("job").open) $("job").close();
}

// What was told of a job has no data: its end is asked for, with its small outputs.
async function retell(id) {
  retold = new Map([[id, null]]);
  const job = await getJson(`/jobs/${id}`).catch(() => null);
  if (open !== id || !job || !FINAL.has(job.state)) return;
  retold.set(id, job);
  show();
}

export async function openJob(id) {
  open = id;
  retold = new Map([[id, null]]); // it is being asked for
  note(id);
  drawn = "";
  setText($("job-title"), "Job"); // no other one's is shown, whatever comes
  $("job-body").replaceChildren();
  if (jobs.has(id)) show();
  if (!$("job").open) $("job").showModal();
  const asked = performance.now();
  try {
    const job = await getJson(`/jobs/${id}`);
    if (open !== id) return;
    onJob(job, asked);
    if (FINAL.has(job.state)) retold.set(id, job); // with its small outputs
    else retold.delete(id);
    show();
  } catch (why) {
    retold.delete(id);
    if (open === id) { show(); complain(id, why); }
  }
}

setInterval(() => { if (open && jobs.get(open)?.state === "running") show(); }, 1000);

export function counts() { return { kept: jobs.size, rows: $("jobs").tBodies[0].rows.length }; }

export function start() {
  $("job-close").addEventListener("click", () => $("job").close());
  $("job").addEventListener("close", () => {
    if ($("job").open) return; // it was opened again before this was told
    open = null;
    note(null);
    retold = new Map();
  });
  window.addEventListener("hashchange", openAddressed);
  openAddressed();
  $("job").addEventListener("click", (event) => { if (event.target === $("job")) $("job").close(); });
  $("filter").addEventListener("submit", (event) => { // an id opens its job, also one that is not at hand
    event.preventDefault();
    const id = $("filter-text").value.trim();
    if (ID.test(id)) openJob(id);
  });
  $("tile-failed").addEventListener("click", (event) => {
    event.preventDefault();
    showView("jobs");
    note(null);
    $("filter-state").value = "failed";
    $("filter-state").dispatchEvent(new Event("change"));
  });
  $("filter-text").addEventListener("input", () => { dirty = true; });
  for (const id of ["filter-state", "filter-op"]) $(id).addEventListener("change", () => { cursor = null; floor = ""; rows = PAGE; dirty = true; fetchJobs(false); });
  $("older").addEventListener("click", async () => {
    rows += PAGE;
    dirty = true;
    await fetchOlder();
  });
}
