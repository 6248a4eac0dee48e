// The form that sends a small job of any operation: all it knows of them it has from GET /ops.
import { getJson } from "./api.js";
import { $, learnOps, make } from "./page.js";

let ops = [];

// Sizes for the letters in shapes: small, with more equations than unknowns.
const SIZES = { m: 4, n: 3, k: 3, p: 2, t: 1 };

function numbers(shape, seed) {
  if (shape.length === 0) return Math.round(((Math.sin(seed * 12.9898) * 43758.5453) % 1) * 80) / 10;
  return Array.from({ length: shape[0] }, (_, i) => numbers(shape.slice(1), seed * 7 + i + 1));
}

// Symmetric, and with a diagonal that makes it positive definite: whatever wants a square matrix takes it.
function square(n) {
  return Array.from({ length: n }, (_, i) => Array.from({ length: n }, (__, j) => (i === j ? 4 + i : 1 / (1 + Math.abs(i - j)))));
}

// Inputs for a job that the operation takes: the required ones, of the first shape that its description names.
export function sample(name) {
  const op = ops.find((one) => one.name === name);
  const inputs = {};
  if (!op) return inputs;
  const tall = op.inputs.some((port) => port.shape.includes("p")); // observations, one a row
  op.inputs.forEach((port, i) => {
    if (port.optional && !port.required_unless) return;
    const letters = (port.shape.match(/\(([^)]*)\)/)?.[1] || "").split(",").map((part) => part.trim()).filter((part) => part && part !== "...");
    const shape = letters.map((letter) => (/^\d+$/.test(letter) ? Number(letter) : letter === "n" && tall ? 6 : SIZES[letter] || 3));
    inputs[port.name] = letters.length === 2 && letters[0] === letters[1] ? square(shape[0]) : numbers(shape, i + 1);
  });
  return inputs;
}

// A matrix with a row a line.
export function written(value) {
  if (Array.isArray(value) && Array.isArray(value[0])) return `[${value.map((row) => JSON.stringify(row)).join(",\n ")}]`;
  return JSON.stringify(value);
}

function paramField(param) {
  const id = `send-param-${param.name}`;
  let field;
  if (param.type === "choice" || param.type === "bool") {
    field = make("select", { id, "data-param": param.name, "data-type": param.type }, make("option", { value: "" }, `default (${param.default})`),
      ...(param.type === "bool" ? ["true", "false"] : param.choices).map((choice) => make("option", {}, choice)));
  } else {
    field = make("input", { id, "data-param": param.name, "data-type": param.type, inputmode: "decimal", placeholder: `${param.default}` });
  }
  return make("div", { title: param.doc }, make("label", { for: id }, param.name), field);
}

function choose() {
  const op = ops.find((one) => one.name === $("send-op").value);
  if (!op) return;
  const inputs = sample(op.name);
  $("send-summary").textContent = op.summary;
  $("send-inputs").replaceChildren(...op.inputs.flatMap((port) => {
    const id = `send-input-${port.name}`;
    const field = make("textarea", { id, "data-input": port.name, rows: "4", spellcheck: "false", placeholder: port.optional ? "left out" : "" });
    field.value = inputs[port.name] === undefined ? "" : written(inputs[port.name]);
    return [make("label", { for: id, title: port.doc }, `${port.name}  ${port.shape}${port.optional ? ", optional" : ""}`), field];
  }));
  $("send-params").replaceChildren(...op.params.map(paramField));
}

// JSON, of a parameter as of an input in the words that were typed: JavaScript's numbers have no 2^53 + 1, and no 1e400.
function readParam(field) {
  const text = field.value.trim().replace(/^(-?)\./, "$10.").replace(/\.$/, "");
  if (field.dataset.type === "bool" || (field.dataset.type !== "choice" && /^-?(0|[1-9]\d*)(\.\d+)?(e[-+]?\d+)?$/i.test(text))) return text;
  return JSON.stringify(field.value.trim()); // "Infinity" travels as text, and nonsense the service explains
}

function readInput(field) {
  try {
    JSON.parse(field.value);
    return field.value.trim();
  } catch (why) {
    field.focus();
    throw new Error(`${field.dataset.input} is not JSON: ${why.message}`);
  }
}

function objectOf(members) {
  return `{${members.map(([name, text]) => `${JSON.stringify(name)}:${text}`).join(",")}}`;
}

// The body of the request.
function request() {
  const given = (selector) => [...$("send").querySelectorAll(selector)].filter((field) => field.value.trim() !== "");
  const inputs = given("[data-input]").map((field) => [field.dataset.input, readInput(field)]);
  const params = given("[data-param]").map((field) => [field.dataset.param, readParam(field)]);
  const job = [["op", JSON.stringify($("send-op").value)], ["inputs", objectOf(inputs)]];
  if (params.length > 0) job.push(["params", objectOf(params)]);
  if ($("send-priority").value !== "normal") job.push(["priority", JSON.stringify($("send-priority").value)]);
  if ($("send-device").value !== "auto") job.push(["device", JSON.stringify($("send-device").value)]);
  return objectOf(job);
}

async function submit(body) {
  return getJson("/jobs", { method: "POST", body, headers: { "Content-Type": "application/json" } });
}

export function start(list, onSent) {
  ops = list;
  learnOps(ops.map((op) => op.name));
  $("send-op").replaceChildren(...ops.map((op) => make("option", {}, op.name)));
  $("filter-op").append(...ops.map((op) => make("option", {}, op.name)));
  if (ops.some((op) => op.name === "matmul")) $("send-op").value = "matmul";
  $("send-op").addEventListener("change", choose);
  choose();
  $("send").addEventListener("submit", async (event) => {
    event.preventDefault();
    const error = $("send-error");
    error.hidden = true;
    try {
      const body = request();
      const asked = performance.now();
      onSent(await submit(body), body, asked);
    } catch (why) {
      const { document } = why;
      error.textContent = [document?.code, why.message, document?.field && `(${document.field})`, document?.advice].filter(Boolean).join(" ");
      error.hidden = false;
    }
  });
}
