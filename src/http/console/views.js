// The four views of the page, of which one is shown. The address names it: `#jobs`, `#devices`, `#send`; else it is the overview.
import { $ } from "./page.js";

const PANELS = { overview: "overview", jobs: "jobs-view", devices: "devices-view", send: "send-view" };
const NAMES = Object.keys(PANELS);
let shown = "overview";

export function viewHash() { return shown === "overview" ? "" : `#${shown}`; }

export function showView(name) {
  shown = name;
  for (const one of NAMES) {
    const tab = $(`view-${one}`);
    tab.setAttribute("aria-selected", String(one === name));
    tab.tabIndex = one === name ? 0 : -1;
    $(PANELS[one]).hidden = one !== name;
  }
}

// The view that the address names; an address of a job names none.
function showAddressed() {
  const name = location.hash.slice(1) || "overview";
  if (NAMES.includes(name)) showView(name);
}

function choose(name) {
  showView(name);
  history.replaceState(null, "", viewHash() || location.pathname + location.search);
}

export function start() {
  $("views").hidden = false;
  for (const name of NAMES) $(`view-${name}`).addEventListener("click", () => choose(name));
  $("views").addEventListener("keydown", (event) => {
    const at = NAMES.indexOf(shown);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1 + NAMES.length, Home: 0, End: NAMES.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    choose(NAMES[to % NAMES.length]);
    $(`view-${shown}`).focus();
  });
  window.addEventListener("hashchange", showAddressed);
  showAddressed();
}
