// What the page asks of the service. A key, where there is one, lies in the tab's sessionStorage and nowhere else.
const SLOT = "blasd-key";

export const key = {
  get: () => sessionStorage.getItem(SLOT),
  set: (text) => sessionStorage.setItem(SLOT, text),
  forget: () => sessionStorage.removeItem(SLOT),
};

export class Problem extends Error {
  constructor(status, document) {
    super(document.detail || document.title || `the service answered ${status}`);
    this.status = status;
    this.document = document;
  }
}

export function headers(more = {}) {
  const secret = key.get();
  return secret ? { ...more, Authorization: `Bearer ${secret}` } : more;
}

// A response that went well; else a Problem is thrown.
export async function fetchGood(path, options = {}) {
  const response = await fetch(path, { ...options, headers: headers(options.headers), cache: "no-store" });
  if (response.ok) return response;
  let document = {};
  try { document = await response.json(); } catch { /* it was no problem document */ }
  throw new Problem(response.status, document);
}

export async function getJson(path, options) {
  return (await fetchGood(path, options)).json();
}

const sleep = (ms) => new Promise((done) => { setTimeout(done, ms); });

// Reads one stream of server-sent events to its end: each(type, text, id).
async function readStream(response, each) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const event = { type: "message", text: "", id: null };
      for (const line of block.split("\n")) {
        if (line.startsWith("event: ")) event.type = line.slice(7);
        else if (line.startsWith("id: ")) event.id = line.slice(4);
        else if (line.startsWith("data: ")) event.text += line.slice(6);
      }
      if (event.text) each(event);
    }
  }
}

// Follows GET /events for ever, going on where it stood. (EventSource cannot send a key.)
// onEvent(type, document); onLink("live" | "connecting" | "refused", why).
export async function follow(onEvent, onLink) {
  let last = null;
  let pause = 500;
  for (;;) {
    try {
      const response = await fetchGood("/events", { headers: last ? { "Last-Event-ID": last } : {} });
      onLink("live");
      pause = 500;
      await readStream(response, (event) => {
        if (event.id) last = event.id;
        onEvent(event.type, JSON.parse(event.text));
      });
      onLink("connecting", "the stream ended");
    } catch (why) {
      if (why.status === 401 || why.status === 403) {
        onLink("refused", why);
        return;
      }
      onLink("connecting", why.message);
    }
    await sleep(pause);
    pause = Math.min(pause * 2, 8000);
  }
}
