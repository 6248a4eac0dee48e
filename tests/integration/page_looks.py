"""Scenarios of page_driver.py: the page with the colours of who looks on."""
import datetime

from page_live import control

# What is told apart by colour, and where: which of these cannot be seen on what is behind them.
UNSEEN = """
const rgb = (text) => (text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
const light = ([r, g, b]) => [r, g, b].map((one) => (one /= 255) <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
  .reduce((sum, one, i) => sum + one * [0.2126, 0.7152, 0.0722][i], 0);
const clear = (one) => one.length === 4 && one[3] === 0;
const contrast = (one, other) => { const [dark, bright] = [light(one), light(other)].sort((a, b) => a - b); return (bright + 0.05) / (dark + 0.05); };
const probe = document.body.appendChild(document.createElement("i"));
probe.style.cssText = "forced-color-adjust: none; background-color: Canvas";
const canvas = rgb(getComputedStyle(probe).backgroundColor);
probe.remove();
const behind = (one) => {
  const under = one ? rgb(getComputedStyle(one).backgroundColor) : canvas;
  return clear(under) ? behind(one.parentElement) : under;
};
const seen = (look, under) => [["backgroundColor", "1px"], ["borderTopColor", look.borderTopWidth]]
  .some(([name, width]) => parseFloat(width) > 0 && !clear(rgb(look[name])) && contrast(rgb(look[name]), under) >= 3);
const unseen = arguments[0].filter((selector) => {
  const [where, pseudo] = selector.split("::");
  const one = [...document.querySelectorAll(where)].find((one) => one.checkVisibility());
  return !one || !seen(getComputedStyle(one, pseudo && `::${pseudo}`), behind(pseudo ? one : one.parentElement));
});
const strong = (name) => {
  const one = document.getElementById(name);
  if (!one.checkVisibility()) return 0;
  const { data } = one.getContext("2d").getImageData(0, 0, one.width, one.height);
  let count = 0;
  for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 200 && contrast([...data.slice(i, i + 3)], canvas) >= 3) count++;
  return count;
};
return { unseen, tasks: strong("tasks"), rates: strong("rates"), forced: matchMedia("(forced-colors: active)").matches };
"""
MARKS = {"#devices": [".dot", ".gauge > i"],
         "#jobs": ["#jobs .state.running::before", "#jobs .state.failed::before", "#jobs .state.succeeded::before"],
         "#tasks": [".bars i[style]", "#totals .swatch", ".legend .phase-queue", ".legend .phase-compute", ".legend .phase-bad", "#by-op[aria-pressed=true]",
                    "#queue td:not(.zero)"]}


def forced(page, wanted):
    """In the colours that a system forces on all pages, dark and light ones: what cannot be seen, before and after jobs have come."""
    now = datetime.datetime.now(datetime.timezone.utc)
    stamp = lambda ago: (now - datetime.timedelta(seconds=ago)).isoformat().replace("+00:00", "Z")
    page.live()
    empty, found = {}, {}
    for theme in ("light", "dark"):
        page.size(1360, 1000, theme, "active")
        page.until(lambda: page.run("return matchMedia('(forced-colors: active)').matches"), "colours are forced")
        page.run("await new Promise((done) => setTimeout(done, 500))")
        empty[theme] = page.run(UNSEEN, [])
    for i, job in enumerate(wanted["jobs"]):
        control(page, tell=["job", {**job, "created_at": stamp(8 - i), "started_at": stamp(7 - i), "finished_at": stamp(5 - i)}])
    control(page, tell=["batch", {"worker": "w", "device": "cpu", "op": "matmul", "jobs": 2, "started_at": stamp(7)}])
    for count in (0, 40):
        lane = {priority: {"queued": count, "claimed": 0} for priority in ("high", "normal", "low")}
        control(page, devices={"devices": [{"device": "cpu", "worker": "w", "running": 1, "busy_share": 0.5}],
                               "unusable": [{"device": "cuda", "reason": "no driver"}, {"device": "cuda:1", "reason": "broken"}],
                               "queue": {"any": lane, "cpu": lane, "cuda": lane, "jobs": 9, "bytes": 9, "records_bytes": 9, "running": 1},
                               "totals": {"matmul submitted": count, "matmul succeeded": count}})
        page.until(lambda: page.totals() == {"matmul": {"succeeded": count, "failed": 0, "cancelled": 0, "expired": 0}}, "its figures are shown")
    page.until(lambda: page.counts()["bars"] == 2 and page.counts()["running"] == 1, "bars are drawn")
    for theme in ("light", "dark"):
        page.size(1360, 1000, theme, "active")
        page.run("await new Promise((done) => setTimeout(done, 500))")
        unseen = []
        for where, marks in MARKS.items():  # the overview comes last, for its pictures
            page.reveal(where)
            page.run("await new Promise((done) => setTimeout(done, 500))")
            found[theme] = page.run(UNSEEN, marks)
            unseen += found[theme]["unseen"]
        found[theme]["unseen"] = unseen
        if wanted.get("folder"):
            page.picture(f"{wanted['folder']}/forced-{theme}.png")
    page.reveal("#jobs")
    page.run("document.querySelector('#jobs .state.succeeded').closest('tr').querySelector('button').click()")
    page.until(lambda: page.visible("#job-document"), "a job opens")
    return {"unusable": page.run("return [...document.querySelectorAll('#devices article:not([data-worker]) p')].map((one) => one.className)"), "empty": empty, "found": found, "timeline": page.run(UNSEEN, ["#job .timeline i", "#job .swatch"])["unseen"]}


SCENARIOS = {one.__name__: one for one in (forced,)}
