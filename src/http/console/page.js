// Small things that all parts of the page use.
export const $ = (id) => document.getElementById(id);

// A new element: make("p", { class: "muted", onclick: f }, "text", child…)
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) {
    if (attribute.startsWith("on")) element.addEventListener(attribute.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(attribute, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

// Of a text node only what differs is put in another one's place: what is selected beside it stays so.
function setData(node, text) {
  const was = node.data;
  const least = Math.min(was.length, text.length);
  let from = 0;
  let behind = 0;
  while (from < least && was[from] === text[from]) from++;
  while (behind < least - from && was.at(-1 - behind) === text.at(-1 - behind)) behind++;
  if (was !== text) node.replaceData(from, was.length - from - behind, text.slice(from, text.length - behind));
}

export function setText(element, text) {
  if (element.childNodes.length === 1 && element.firstChild.nodeType === Node.TEXT_NODE) setData(element.firstChild, text);
  else if (element.textContent !== text) element.textContent = text;
}

function isSame(one, other) {
  return one.nodeName === other.nodeName && one.id === other.id && one.dataset?.part === other.dataset?.part &&
    one.dataset?.worker === other.dataset?.worker;
}

// Has an element hold what these new nodes are: where it does already nothing is touched, so that selections, the focus and what
// somebody has folded out stay. A node of another kind, id or part comes itself, with its listeners.
export function renew(element, nodes) {
  nodes.forEach((node, i) => {
    const old = element.childNodes[i];
    if (!old) {
      element.append(node);
    } else if (!isSame(old, node)) {
      old.replaceWith(node);
    } else if (node.nodeType === Node.TEXT_NODE) {
      setData(old, node.data);
    } else {
      const names = new Set([...old.getAttributeNames(), ...node.getAttributeNames()]);
      for (const name of names) {
        if (name === "open" || name === "style" || old.getAttribute(name) === node.getAttribute(name)) continue;
        if (node.hasAttribute(name)) old.setAttribute(name, node.getAttribute(name));
        else old.removeAttribute(name);
      }
      if (old.style.cssText !== node.style.cssText) old.style.cssText = node.style.cssText; // the policy lets no attribute set it
      renew(old, [...node.childNodes]);
    }
  });
  while (element.childNodes.length > nodes.length) element.lastChild.remove();
}

// The rows of a table's body, one for each key in this order, which those that stay have already; `key` names it in their dataset.
export function renewRows(body, key, keys, fresh) {
  const wanted = new Set(keys);
  for (const row of [...body.rows]) if (!wanted.has(row.dataset[key])) row.remove();
  keys.forEach((one, i) => {
    if (body.rows[i]?.dataset[key] === one) return;
    const row = fresh(one);
    row.dataset[key] = one;
    body.insertBefore(row, body.rows[i] || null);
  });
  while (body.rows.length > keys.length) body.deleteRow(-1);
}

// For those who hear the page.
export function say(text) { $("say").textContent = text; }

export function count(n) {
  if (n >= 1e6) return `${(n / 1e6).toFixed(n >= 1e7 ? 0 : 1)}M`;
  if (n >= 1e4) return `${(n / 1e3).toFixed(n >= 1e5 ? 0 : 1)}k`;
  return String(Math.round(n));
}

export function rate(n) {
  return n > 0 && n < 10 ? n.toFixed(1) : count(n);
}

export function ms(value) {
  if (!(value >= 0)) return "–";
  if (value < 1) return `${(value * 1000).toFixed(0)} µs`;
  if (value < 1000) return `${value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} ms`;
  if (value < 120000) return `${(value / 1000).toFixed(1)} s`;
  const seconds = Math.round(value / 1000);
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 1024 && unit < 4) { n /= 1024; unit++; }
  return `${unit && n < 10 ? n.toFixed(1) : Math.round(n)} ${units[unit]}`;
}

export const FINAL = new Set(["succeeded", "failed", "cancelled", "expired"]);
export const BAD = new Set(["failed", "expired"]);

// The service's clock less this machine's, in ms, as last heard.
export const clock = { skew: 0, now: () => Date.now() + clock.skew };

// What a canvas draws with: sized to its place, in device pixels, with the theme's colours.
export function context(canvas) {
  const scale = window.devicePixelRatio || 1;
  const width = Math.round(canvas.clientWidth * scale);
  const height = Math.round(canvas.clientHeight * scale);
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  const draw = canvas.getContext("2d");
  draw.setTransform(scale, 0, 0, scale, 0, 0);
  return draw;
}

let theme = null;
export function forgetTheme() { theme = null; }
export function colours() {
  if (theme) return theme;
  const of = (selector) => getComputedStyle(document.querySelector(selector)).backgroundColor;
  const body = getComputedStyle(document.body);
  theme = { ink: body.color, muted: getComputedStyle($("version")).color, line: getComputedStyle($("theme")).borderTopColor,
    panel: of(".bar"), phases: ["receive", "queue", "batch", "upload", "compute", "download"].map((name) => of(`.phase-${name}`)),
    bad: of(".phase-bad"), edge: window.matchMedia("(forced-colors: active)").matches ? body.color : null };
  return theme;
}

// A bar in the pen's colour; with an edge where there are too few colours to tell one from what is beside it.
export function drawBar(pen, look, x, y, width, height) {
  pen.fillRect(x, y, width, height);
  if (!look.edge) return;
  pen.strokeStyle = look.edge;
  pen.lineWidth = 1;
  pen.strokeRect(x + 0.5, y + 0.5, Math.max(0, width - 1), Math.max(0, height - 1));
}

// One colour for each operation, the same after each start. Green, red, amber and grey belong to the states.
const PALETTE = ["#3987e5", "#9b6fe0", "#1fa5b5", "#c25a9b", "#a0714a", "#5563d6", "#6fb1e8", "#b48be8", "#127480", "#e58fc0"];
const known = [];
export function learnOps(names) { known.splice(0, known.length, ...names); }
export function opColour(name) {
  if (!known.includes(name)) known.push(name);
  return PALETTE[known.indexOf(name) % PALETTE.length];
}
export const STATE_COLOURS = { succeeded: "#199e70", failed: "#d9534f", cancelled: "#7a8794", expired: "#e0982a" };
