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

const SILENCE_MS = 45000; // the service says something at least each 15 s

// Aborts what nothing has come of for that long, for the way there may be cut without a word.
function alarm(abort) {
  let timer = 0;
  return {
    heard: () => { clearTimeout(timer); timer = setTimeout(() => abort.abort(new Error("nothing came any more")), SILENCE_MS); },
    off: () => clearTimeout(timer),
  };
}

// Reads one stream of server-sent events to its end: each({type, text}).
async function readStream(response, heard, each) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    heard();
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const event = { type: "message", text: "" };
      for (const line of block.split("\n")) {
        if (line.startsWith("event: ")) event.type = line.slice(7);
        else if (line.startsWith("data: ")) event.text += line.slice(6);
      }
      if (event.text) each(event);
    }
  }
}

// Follows GET /events for ever; a stream that comes again begins with hello. (EventSource cannot send a key.)
// onEvent(type, document); onLink("live" | "connecting" | "refused", why).
export async function follow(onEvent, onLink) {
  let pause = 500;
  for (;;) {
    const abort = new AbortController();
    const { heard, off } = alarm(abort);
    heard();
    try {
      const response = await fetchGood("/events", { signal: abort.signal });
      onLink("live");
      pause = 500;
      await readStream(response, heard, (event) => {
        onEvent(event.type, JSON.parse(event.text));
      });
      onLink("connecting");
    } catch (why) {
      if (why.status === 401 || why.status === 403) {
        onLink("refused", why);
        return;
      }
      onLink("connecting", why);
    } finally {
      off();
    }
    await sleep(pause);
    pause = Math.min(pause * 2, 8000);
  }
}
