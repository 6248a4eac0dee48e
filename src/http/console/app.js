// The page of the service: who looks on, the stream of events, and which part hears what.
import { follow, getJson, key } from "./api.js";
import * as figures from "./figures.js";
import * as jobs from "./jobs.js";
import { $, FINAL, clock, forgetTheme, say, setText } from "./page.js";
import * as send from "./send.js";
import * as tasks from "./tasks.js";
import * as views from "./views.js";

const THEMES = { system: ["◐", "System"], light: ["☀", "Light"], dark: ["☾", "Dark"] };
const TOLD = 8192; // as many events as a front end keeps
const PAGES = 10;  // of running jobs, that are asked for
const FRESH_MS = 5000; // figures are told each second
const told = new Set();
let begun = false;
let link = "connecting";
let figuresAt = 0;     // when they came last, as performance.now() has it
let figuresTime = "";  // the same for who reads
let old = false;       // they do not come any more
let lost = 0;
let events = 0;

function setTheme(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  const [sign, word] = THEMES[name];
  $("theme").replaceChildren(`${sign} `, Object.assign(document.createElement("span"), { textContent: word }));
  $("theme").setAttribute("aria-label", `Theme: ${name === "system" ? "as the system has it" : name}`);
  repaint();
}

function repaint() {
  forgetTheme();
  tasks.redraw();
  figures.redraw();
}

function startTheme() {
  let name = localStorage.getItem("blasd-theme");
  if (!THEMES[name]) name = "system";
  setTheme(name);
  $("theme").addEventListener("click", () => {
    const names = Object.keys(THEMES);
    name = names[(names.indexOf(name) + 1) % names.length];
    localStorage.setItem("blasd-theme", name);
    setTheme(name);
  });
  for (const wish of ["(prefers-color-scheme: dark)", "(forced-colors: active)"]) window.matchMedia(wish).addEventListener("change", repaint);
}

// What was not told of is looked up: what is at hand, and what runs.
let lookAgain = 0;
async function catchUp() {
  lookAgain = 0;
  const before = tasks.runningIds();
  await jobs.catchUp();
  try {
    const ids = new Set();
    let page = {};
    for (let i = 0; i < PAGES && (i === 0 || page.cursor); i++) {
      const asked = performance.now();
      page = await getJson(`/jobs?state=running${page.cursor ? `&cursor=${page.cursor}` : ""}`);
      for (const job of page.jobs) {
        ids.add(job.id);
        if (!told.has(job.id) && jobs.onJob(job, asked)) tasks.add(job);
      }
    }
    if (!page.cursor) tasks.noLonger(before.filter((id) => !ids.has(id)));
  } catch { /* the next time */ }
}

// Whether that was told of before: another front end, to which the stream may lead the next time, tells of it again.
function isOld(mark) {
  if (told.has(mark)) return true;
  told.add(mark);
  if (told.size > TOLD) told.delete(told.values().next().value);
  return false;
}

function onJob(job) {
  if (FINAL.has(job.state) ? isOld(job.id) : told.has(job.id)) return;
  tasks.add(job);
  figures.onJob(job);
  jobs.onJob(job);
}

function noteTasks() {
  const missing = lost > 0 ? ` ${lost.toLocaleString("en")} events were dropped: some bars are missing.` : "";
  setText($("tasks-note"), `One row per operation of a device, one bar per job. Click a bar to open its job; Ctrl and the wheel zoom.${missing}`);
}

// The head: which service this is, for which tenant, since when.
function showService({ version, tenant, started_ms }) {
  const since = started_ms ? `up since ${new Date(started_ms).toLocaleString()}` : "";
  const who = tenant && tenant !== "anonymous" ? `tenant ${tenant}` : "";
  setText($("version"), [location.host, version && `version ${version}`, since, who].filter(Boolean).join(" · "));
}

function onEvent(type, document) {
  events++;
  if (type === "hello") {
    clock.skew = document.time_ms - Date.now();
    showService(document);
    catchUp(); // from here on all is told
  } else if (type === "job") {
    onJob(document);
  } else if (type === "batch") {
    if (!isOld(`${document.worker} ${document.op} ${document.started_at}`)) figures.onBatch(document);
  } else if (type === "devices") {
    if (Math.abs(document.time_ms - clock.now()) > 2000) clock.skew = document.time_ms - Date.now(); // one of the clocks was set
    onFigures(document);
  } else if (type === "lost") {
    lookAgain = lookAgain || setTimeout(catchUp, 1000);
    lost += document.events || 0;
    noteTasks();
  }
}

// What is shown is said to be old where nothing new comes: the stream may be open while the service does not reach Redis.
function showLink() {
  $("link").className = `link ${old ? "old" : link}`;
  setText($("link-text"), link === "live" ? (old ? "not up to date" : "live") : link === "refused" ? "refused" : "reconnecting");
  $("old").hidden = !old;
  jobs.setLive(link === "live" && !old);
}

function onFigures(document) {
  figuresAt = performance.now();
  figuresTime = new Date().toLocaleTimeString();
  figures.onDevices(document);
  if (!old) return;
  old = false;
  showLink();
}

async function whyOld() {
  try {
    await getJson("/health/ready", { signal: AbortSignal.timeout(3000) });
    return "the service sends none";
  } catch (why) {
    return why.document ? `${why.document.title || "the service reports a problem"} (${why.message})` : "the service cannot be reached";
  }
}

async function lookWhetherOld() {
  if (performance.now() - figuresAt > FRESH_MS && !$("console").hidden) {
    const asked = figuresAt, why = await whyOld();
    if (asked === figuresAt) { // none came meanwhile
      old = true;
      setText($("old"), `${figuresTime ? `Last update ${figuresTime}` : "No figures yet"}: ${why}. Updates resume by themselves.`);
      showLink();
    }
  }
  setTimeout(lookWhetherOld, 1000);
}

function onLink(state, why) {
  link = state;
  showLink();
  if (state === "live") noteTasks();
  if (state === "connecting" && why?.status) setText($("tasks-note"), `No job events: ${why.message}.`);
  if (state === "refused" && why.status === 401) signIn(why.message);
  if (state === "refused" && why.status === 403) {
    setText($("tasks-note"), `This key may not list jobs: ${why.message}. Only devices are shown.`);
    const poll = async () => { try { onFigures(await getJson("/devices")); } catch { /* the next time */ } };
    poll();
    setInterval(poll, 2000);
  }
}

function signIn(why) {
  $("job").close();
  $("console").hidden = true;
  $("views").hidden = true;
  $("sign-in").hidden = false;
  $("sign-in-error").hidden = !why;
  if (why) setText($("sign-in-error"), why);
  $("key").focus();
  setText($("link-text"), "not signed in");
}

async function begin() {
  const shown = key.get();
  let list;
  try {
    list = (await getJson("/ops")).ops;
    if (key.get() !== shown) return; // another was given meanwhile, and is tried
  } catch (why) {
    if (key.get() !== shown) return;
    if (why.status === 401) {
      key.forget();
      signIn(shown ? why.message : "");
      return;
    }
    setText($("link-text"), why.message);
    setTimeout(begin, 2000);
    return;
  }
  if (begun) return; // by another try
  begun = true;
  $("sign-in").hidden = true;
  $("console").hidden = false;
  $("sign-out").hidden = !key.get();
  $("docs").hidden = Boolean(key.get()); // a link shows no key
  views.start();
  tasks.start(jobs.openJob);
  figures.start();
  jobs.start();
  send.start(list, (job, body, asked) => {
    jobs.noteSent(job.id, body);
    jobs.onJob(job, asked);
    if (!$("job").open && !$("console").hidden) jobs.openJob(job.id); // in the place of no other, under whose buttons somebody's hand is
    say(`job sent: ${job.op}`);
  });
  follow(onEvent, onLink);
  figuresAt = performance.now();
  lookWhetherOld();
}

startTheme();
$("sign-in-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const shown = $("key").value.trim();
  $("key").value = "";
  if (!/^[!-~]+$/.test(shown)) {
    signIn("A key has only printable ASCII characters: copy it again.");
    return;
  }
  key.set(shown);
  if (begun) location.reload(); // nothing that another key showed stays
  else begin();
});
$("sign-out").addEventListener("click", () => {
  key.forget();
  location.reload();
});
window.blasd = { counts: () => ({ events, lost, ...tasks.counts(), ...jobs.counts() }) }; // for who looks into it
begin();
