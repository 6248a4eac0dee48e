"""Chromium, driven through chromedriver from a virtual environment that has Selenium and axe-core: the page as its user has it.

    page_driver.py SCENARIO URL [JSON]      prints a JSON object

The tests run this with the environment's Python (`venv("browser")`), for their own has no Selenium.
"""
import importlib.util
import json
import pathlib
import sys
import tempfile
import time
import urllib.parse
import urllib.request

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

AXE = next(pathlib.Path(importlib.util.find_spec("axe_playwright_python").origin).parent.rglob("axe.min.js"))


class Page:
    def __init__(self, url, folder, width=1360, height=1000, theme="light"):
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
                     "--disable-background-networking", "--disable-component-update", f"--user-data-dir={folder}"):
            options.add_argument(word)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
        self.size(width, height, theme)
        self.url = url
        self.driver.get(url)

    def size(self, width, height, theme="light"):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1,
                                                                           "mobile": False})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]})

    def run(self, script, *words):
        return self.driver.execute_script(script, *words)

    def one(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector):
        """What is seen of it, empty for what is hidden; read in one step, for the page draws anew what it likes when it likes."""
        return self.run("const one = document.querySelector(arguments[0]); return one.checkVisibility() ? one.innerText.trim() : ''", selector)

    def visible(self, selector):
        return self.run("return Boolean(document.querySelector(arguments[0])?.checkVisibility())", selector)

    def click(self, selector):
        """Where it was drawn anew between being found and being clicked, it is found again."""
        while True:
            try:
                return self.one(selector).click()
            except StaleElementReferenceException:
                continue

    def until(self, what, why, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            got = what()
            if got:
                return got
            time.sleep(0.1)
        raise AssertionError(f"{why}: not within {seconds} s; console: {self.complaints()}")

    def live(self):
        self.until(lambda: self.text("#link-text") == "live", "the page is live")
        self.until(lambda: self.run("return document.querySelectorAll('.device').length") > 0, "it shows devices")

    def complaints(self):
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def counts(self):
        return self.run("return window.blasd.counts()")

    def totals(self):
        return self.run("return Object.fromEntries([...document.querySelectorAll('#totals tbody tr')].map((row) => [row.dataset.op,"
                        " Object.fromEntries([...row.cells].slice(2).map((cell) => [cell.dataset.state, Number(cell.textContent.replaceAll(',', ''))]))]))")

    def rows(self):
        return self.run("return [...document.querySelectorAll('#jobs tbody tr')].map((row) => [row.dataset.id, row.cells[1].textContent,"
                        " row.cells[2].textContent])")

    def set(self, selector, value):
        self.run("const field = document.querySelector(arguments[0]); field.value = arguments[1];"
                 " field.dispatchEvent(new Event('input', {bubbles: true})); field.dispatchEvent(new Event('change', {bubbles: true}))",
                 selector, value)

    def axe(self):
        if not self.run("return Boolean(window.axe)"):
            self.run(AXE.read_text())
        found = self.driver.execute_async_script("const done = arguments[0]; axe.run().then(done)")
        return [f"{one['id']}: {node['html'][:200]} {node.get('failureSummary', '')}" for one in found["violations"] for node in one["nodes"]]

    def picture(self, path):
        pathlib.Path(path).write_bytes(self.driver.get_screenshot_as_png())


def shows(page, wanted):
    """While a load runs it is told of it; once the file is there, which says how that ended, it shows that."""
    page.live()
    page.until(lambda: page.counts()["bars"] > 0, "bars are drawn")
    events = page.counts()["events"]
    file = pathlib.Path(wanted["file"])
    page.until(lambda: file.exists() and file.read_text(), "the load ends", 400)
    expected = json.loads(file.read_text())
    page.until(lambda: page.totals() == expected["totals"], f"{page.totals()} becomes {expected['totals']}")
    page.until(lambda: page.counts()["running"] == 0, "no bar still runs")
    page.until(lambda: sum(cell["queued"] for cell in queue(page)) == 0, "the queue runs empty")
    page.until(lambda: {row[0] for row in page.rows()} <= set(expected["jobs"]) and all(row[2] in ("succeeded", "failed") for row in page.rows()),
               "its jobs are those of the list, as they ended")
    return {"events": events, "totals": page.totals(), "rows": page.rows(), "counts": page.counts(), "queue": queue(page),
            "batches": page.text("#batches-note"), "devices": page.run("return [...document.querySelectorAll('.device[data-worker]')].map((one) => one.dataset.worker)")}


def queue(page):
    return page.run("return [...document.querySelectorAll('#queue td')].map((cell) => ({queued: Number(cell.dataset.queued)}))")


def forms(page, wanted):
    """Sends a small job of each operation with the form, as it is filled in; how each ended."""
    page.live()
    ends = {}
    for name in page.run("return [...document.querySelectorAll('#send-op option')].map((one) => one.value)"):
        Select(page.one("#send-op")).select_by_visible_text(name)
        page.click("#send button[type=submit]")
        page.until(lambda: page.run("return document.querySelector('#job').open || !document.querySelector('#send-error').hidden"),
                   f"{name}: something comes of it")
        assert not page.run("return document.querySelector('#job').open === false"), page.text("#send-error")
        title = page.until(lambda: next((text for text in [page.text("#job-title")] if text.startswith(name) and text.split(" – ")[1] in
                                         ("succeeded", "failed")), None), f"{name} ends")
        page.until(lambda: '"outputs"' in page.text("#job-document") or "failed" in title, f"{name}: its outputs are told")
        ends[name] = {"title": title, "curl": page.text("#job-curl"), "phases": page.run("return document.querySelectorAll('#job tbody tr').length"),
                      "document": page.text("#job-document")}
        page.click("#job-close")
    page.set("#send-op", "matmul")
    page.set("#send-input-b", "[[1, 2]")
    page.click("#send button[type=submit]")
    wrong = page.until(lambda: page.text("#send-error"), "it says what is no JSON")
    page.set("#send-input-b", "[[1, 2]]")
    page.click("#send button[type=submit]")
    refused = page.until(lambda: next((text for text in [page.text("#send-error")] if text != wrong and text), None), "it shows a refusal")
    complaints = page.complaints()  # a refusal is logged by the browser itself
    assert all("422" in one for one in complaints), complaints
    return {"ends": ends, "wrong": wrong, "refused": refused}


def cancels(page, wanted):
    """Opens a queued job by its row and cancels it."""
    page.live()
    page.until(lambda: any(row[0] == wanted["job"] for row in page.rows()), "the job is in the list")
    page.run("document.querySelector(`#jobs button[data-id='${arguments[0]}']`).click()", wanted["job"])
    before = page.until(lambda: page.text("#job-title"), "it opens")
    page.click("#job-cancel")
    page.until(lambda: "cancelled" in page.text("#job-title"), "it is cancelled")
    problem = page.until(lambda: page.run("return document.querySelector('#job-body .problem')?.innerText"), "it says why")
    page.click("#job-close")
    page.set("#filter-state", "cancelled")
    page.until(lambda: [row[2] for row in page.rows()] == ["cancelled"], "the filter leaves that one")
    page.set("#filter-text", "nothing has this")
    page.until(lambda: page.rows() == [], "a search that nothing fits")
    return {"before": before, "problem": problem}


def signs_in(page, wanted):
    page.until(lambda: page.visible("#sign-in"), "it asks for a key")
    at_first = page.axe()
    page.one("#key").send_keys("no-such-key")
    page.click("#sign-in button")
    refused = page.until(lambda: page.text("#sign-in-error"), "it says that this is none")
    page.one("#key").send_keys(wanted["key"])
    page.click("#sign-in button")
    page.live()
    page.until(lambda: page.rows(), "its jobs are there")
    held = page.run("return [Object.values(sessionStorage), Object.values(localStorage), document.cookie, document.body.innerHTML]")
    rows, note = page.rows(), page.text("#queue-note")
    page.run("document.querySelector('#jobs button').click()")
    curl = page.until(lambda: page.text("#job-curl"), "a job opens")
    page.click("#job-close")
    page.driver.refresh()
    page.live()  # the tab still has it
    page.click("#sign-out")
    page.until(lambda: page.visible("#sign-in"), "it asks again")
    return {"axe": at_first, "refused": refused, "held": held, "rows": rows, "note": note, "curl": curl, "totals": page.totals(),
            "after": page.run("return Object.values(sessionStorage)")}


def looks(page, wanted):
    """In both themes and three widths: nothing that axe-core finds, nothing wider than the window; also with a job open."""
    page.live()
    page.until(lambda: page.rows(), f"jobs are there; {page.text('#jobs-note')}")
    found = {}
    for theme in ("light", "dark"):
        for width in (1360, 800, 360):
            page.size(width, 900, theme)
            time.sleep(0.3)
            wide = page.run("return [document.documentElement.scrollWidth, window.innerWidth,"
                            " [...document.querySelectorAll('main *')].filter((one) => one.getBoundingClientRect().right > window.innerWidth + 1"
                            " && !one.classList.contains('sr') && !one.closest('.sr')).slice(0, 5).map((one) => one.outerHTML.slice(0, 120)).concat("
                            "[...document.querySelectorAll('#jobs td:nth-child(2), #jobs td:nth-child(3), #jobs td:nth-child(6)')]"
                            ".filter((one) => one.scrollWidth > one.clientWidth).map((one) => `cut off: ${one.textContent}`))]")
            found[f"{theme} {width}"] = {"axe": page.axe(), "wide": wide}
            if wanted.get("folder"):
                page.picture(f"{wanted['folder']}/{theme}-{width}.png")
        page.run("document.querySelector('#jobs button').click()")
        page.until(lambda: page.visible("#job-document"), "a job opens")
        time.sleep(0.3)
        found[f"{theme} job"] = {"axe": page.axe(), "wide": page.run("return [document.querySelector('#job').scrollWidth, document.querySelector('#job').clientWidth, []]")}
        if wanted.get("folder"):
            page.picture(f"{wanted['folder']}/{theme}-job.png")
        page.click("#job-close")
    page.size(1360, 900)
    page.run("document.querySelector('#theme').click()")
    light = page.run("return document.documentElement.dataset.theme")
    return {"found": found, "theme": light}


def long_work(page, wanted):
    """With the keyboard alone: a job that runs is found by its label and opened, looked at, and cancelled; another is opened by its id."""
    page.live()
    keys = lambda *words: ActionChains(page.driver).send_keys(*words).perform()
    focus = lambda: page.run("return document.activeElement.dataset.part || document.activeElement.id || document.activeElement.className")

    def tab_to(name, most=120):
        """Stops on the way there; each of them shows that it has the focus. (Behind the last comes the browser's own.)"""
        for stops in range(1, most):
            keys(Keys.TAB)
            assert page.run("const one = document.activeElement; return one === document.body || getComputedStyle(one).outlineStyle !== 'none'"), focus()
            if focus() == name:
                return stops
        raise AssertionError(f"{most} stops do not lead to {name}")
    keys(Keys.TAB)
    first = page.run("return document.activeElement.textContent")
    keys(Keys.ENTER)
    skipped = focus()
    card = page.until(lambda: next((text for text in [page.text(".device .state")] if "regression" in text), None), "its device says what it runs")
    tab_to("filter-text")
    keys(wanted["label"])
    page.until(lambda: [row[0] for row in page.rows()] == [wanted["job"]], "a search for its label leaves that job")
    tab_to("plain")
    keys(Keys.ENTER)
    page.until(lambda: page.visible("#job progress"), "it opens, with its progress")
    left = page.until(lambda: next((text for text in [page.text("#job-body")] if "to go" in text), None), "it says how long it will take")
    # however often it is drawn anew, what has the focus keeps it
    tab_to("document")
    for _ in range(3):
        drawn = page.text("#job-body")
        page.until(lambda: page.text("#job-body") != drawn, "it is drawn anew")
    stays = focus()
    tab_to("cancel")
    keys(Keys.ENTER)
    page.until(lambda: "cancelled" in page.text("#job-title"), "it is cancelled")
    said = page.run("return document.querySelector('#say').textContent")
    keys(Keys.ESCAPE)
    page.until(lambda: not page.visible("#job"), "Escape closes it")
    page.set("#filter-text", "")
    tab_to("filter-text")
    keys(wanted["other"], Keys.ENTER)
    page.until(lambda: wanted["other"] in page.text("#job-document") and page.visible("#job-curl"), "an id and Enter open its job")
    return {"first": first, "skipped": skipped, "card": card, "left": left, "stays": stays, "said": said, "curl": page.text("#job-curl")}


def hostile(page, wanted):
    """Texts that would like to be markup, in each place that the page shows one: what they became."""
    page.live()
    page.until(lambda: page.rows(), "the job is there")
    page.until(lambda: page.counts()["bars"] > 0, "its bar is drawn")
    page.run("document.querySelector('#jobs button').click()")
    page.until(lambda: page.visible("#job-document") and "Save" in page.text("#job-body"), "it opens")
    box = page.one("#tasks").rect
    ActionChains(page.driver).send_keys(Keys.ESCAPE).perform()
    for x in range(int(box["width"]) - 8, 90, -3):  # wherever the bar is by now
        page.run("const box = arguments[0].getBoundingClientRect(); for (let y = 16; y < box.height; y += 6) arguments[0].dispatchEvent("
                 "new MouseEvent('mousemove', {clientX: box.left + arguments[1], clientY: box.top + y}))", page.one("#tasks"), x)
        if page.run("return !document.querySelector('#tip').hidden"):
            break
    tip = page.run("return document.querySelector('#tip').textContent")
    page.run("document.querySelector('#jobs button').click()")
    page.until(lambda: page.visible("#job-document"), "it opens again")
    return {"tip": tip, "made": page.run("return [...document.querySelectorAll('[src=x], b.evil, script:not(:first-of-type), iframe, [onerror]')]"
                                         ".map((one) => one.outerHTML)"),
            "hacked": page.run("return window.hacked || null"), "body": page.text("#job-body"), "card": page.text(".device"),
            "totals": page.text("#totals"), "row": page.run("return document.querySelector('#jobs tbody tr').innerText")}


def goes_wrong(page, wanted):
    """Through all phases of the server that the test has for it."""
    def phase(name=""):
        with urllib.request.urlopen(f"{page.url}phase?{name}") as answer:
            return json.load(answer)

    def sign_in(key):
        page.until(lambda: page.visible("#sign-in"), "it asks for a key")
        page.one("#key").send_keys(key)
        page.click("#sign-in button")

    def state_of(job):
        return next((row[2] for row in page.rows() if row[0] == job), None)

    def open_streams():
        return phase()["asked"].count("/events")
    said = {}
    # no key, and two tries to sign in while the service is away
    page.until(lambda: page.visible("#sign-in"), "it asks for a key")
    sign_in("good\u200b")
    said["no_key"] = page.until(lambda: page.text("#sign-in-error"), "it says that this is no key")
    phase("down")
    sign_in("good")
    page.until(lambda: page.text("#link-text") == "not yet", "it says that the service is not there")
    sign_in("good")
    tries = phase()["asked"].count("/ops")
    page.until(lambda: phase()["asked"].count("/ops") >= tries + 4, "it asks again and again")
    phase("first")
    page.live()
    page.until(lambda: state_of(wanted["quiet"]) == "running", "a job runs")
    said["time"] = page.until(lambda: page.run("return [...document.querySelectorAll('#jobs tbody tr')].find((row) => row.dataset.id === arguments[0])"
                                               "?.cells[5].textContent", wanted["twice"]), "another has ended")
    said["devices"] = page.text("#devices")
    page.set("#send-op", "distance")
    page.set("#send-param-p", "Infinity")
    page.run("document.querySelector('#send button[type=submit]').click()")
    page.until(lambda: page.visible("#job-document"), "it opens")
    page.click("#job-close")
    # the stream goes on elsewhere, once there is room
    phase("full")
    said["full"] = page.until(lambda: next((text for text in [page.text("#tasks-note")] if "Nothing" in text), None), "it says why nothing comes")
    streams = open_streams()
    phase("again")
    page.until(lambda: open_streams() > streams, "it comes again")
    page.until(lambda: state_of(wanted["quiet"]) == "succeeded", "the end that nobody told of is asked for")
    page.until(lambda: page.counts()["running"] == 0, "no bar still runs")
    said["totals"] = page.totals()
    # with the focus in the list
    page.click(f"#jobs button[data-id='{wanted['twice']}']")
    page.until(lambda: page.visible("#job-document") and wanted["twice"] in page.text("#job-document"), "it opens")
    # the answer to its opening comes while a button is pressed
    ActionChains(page.driver, duration=0).click_and_hold(page.one("#job [data-part=forget]")).perform()
    urllib.request.urlopen(f"{page.url}pressed", timeout=30).close()
    time.sleep(1)
    ActionChains(page.driver, duration=0).release().move_to_element(page.one("header")).perform()
    page.until(lambda: state_of(wanted["twice"]) is None, "what is forgotten leaves the list")
    page.one("#older").send_keys(Keys.ENTER)
    said["focus"] = page.run("return document.activeElement.id")
    # a list that was made before it was forgotten
    lists = phase()["asked"].count("/jobs")
    page.set("#filter-op", "matmul")
    page.until(lambda: phase()["asked"].count("/jobs") > lists, "the list is asked for")
    time.sleep(1)
    said["stays_away"] = state_of(wanted["twice"]) is None
    page.set("#filter-op", "")
    page.one("#filter-text").send_keys("s" + "a" * 40, Keys.ENTER)
    page.until(lambda: page.visible("#job .problem"), "it says that there is no such job")
    said["unknown"] = page.text("#job")
    page.click("#job-close")
    page.set("#filter-text", "")
    # a filter while very many jobs come
    page.set("#filter-state", "failed")
    page.until(lambda: [row[0] for row in page.rows()] == [wanted["failed"]], "the filter leaves that one")
    phase("many")
    before = page.counts()["events"]
    page.until(lambda: page.counts()["events"] > before + 2000, "many jobs come")
    page.set("#filter-text", "matmul")
    page.until(lambda: page.counts()["rows"] < 2, "the list is drawn anew")
    time.sleep(1)
    said["kept"] = [row[0] for row in page.rows()]
    # a key that is revoked while a job is open
    page.set("#filter-state", "")
    page.until(lambda: len(page.rows()) > 1, "all are there again")
    page.run("document.querySelector('#jobs button').click()")
    page.until(lambda: page.visible("#job-document") or page.visible("#job .problem"), "a job opens")
    phase("revoked")
    page.until(lambda: page.visible("#sign-in"), "it asks for a key again")
    said["dialog"] = page.run("return document.querySelector('#job').open")
    # and another key, on a connection that says nothing any more; half a minute is a second here
    page.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source":
        "const wait = window.setTimeout; window.setTimeout = (then, ms) => wait(then, ms > 30000 ? 1000 : ms)"})
    phase("silent")
    sign_in("other")
    page.until(lambda: page.text("#link-text") == "live", "the page is live")
    said["rows"] = page.rows()
    streams = open_streams()
    page.until(lambda: open_streams() > streams + 1, "it does not wait for ever")
    said["posted"] = phase()["posted"]
    return said


def answers_late(page, wanted):
    """Each answer held back while something changes: a key, a filter, what is told, which job is open, who is signed in."""
    ids = ["s" + f"{number:040x}" for number in range(1, 5)]

    def late(what, words=""):
        with urllib.request.urlopen(f"{page.url}{what}?{urllib.parse.quote(words)}") as answer:
            return json.load(answer)

    def asked(words):
        return page.until(lambda: next((one for one in reversed(late("asked")) if words in one), None), f"{words} is asked for")

    def held(words, do):
        """Does what asks for it, and waits until that is held."""
        late("hold", words)
        count = sum(words in one for one in late("asked"))
        do()
        page.until(lambda: sum(words in one for one in late("asked")) > count, f"{words} is asked for")

    def let_go(words):
        late("go", words)
        time.sleep(0.7)  # it has come, and was made use of

    def sign_in(key):
        page.one("#key").send_keys(key)
        page.click("#sign-in button")

    def state_of(job):
        return next((row[2] for row in page.rows() if row[0] == job), None)

    def open_job(job):
        page.run("document.querySelector(`#jobs button[data-id='${arguments[0]}']`).click()", job)
        page.until(lambda: page.visible("#job") and job in page.text("#job-document"), "it opens")

    def let_draw():
        """No row is drawn anew under a hand, or with the focus in it."""
        page.run("document.activeElement.blur()")
        ActionChains(page.driver).move_to_element(page.one("header")).perform()
        time.sleep(0.7)

    def shown():
        """Whether a job is open, and which."""
        return [page.visible("#job"), next((i + 1 for i, one in enumerate(ids) if one in page.text("#job-body")), None)]
    said = {}
    # another key is given before the first one is refused
    page.until(lambda: page.visible("#sign-in"), "it asks for a key")
    held("/ops wrong", lambda: sign_in("wrong"))
    sign_in("good")
    page.live()
    let_go("/ops wrong")
    said["signed_in"] = [page.run("return Object.values(sessionStorage)"), page.visible("#console")]
    # the list goes on where that of this filter ends
    page.until(lambda: len(page.rows()) == 3, "its jobs are there")
    held("state=failed", lambda: page.set("#filter-state", "failed"))
    page.set("#filter-state", "")
    page.until(lambda: len(page.rows()) == 3, "all are there again")
    let_go("state=failed")
    page.click("#older")
    said["older"] = asked("cursor=")
    let_draw()
    # a list that was asked for later knows better, one job that was asked for before does not
    late("say", "queued")
    page.until(lambda: state_of(ids[3]) == "queued", "it is told of")
    page.set("#filter-op", "matmul")
    asked("op=matmul")
    time.sleep(1)
    said["states"] = [state_of(ids[3])]
    held(f"/jobs/{ids[3]}", lambda: page.run("document.querySelector(`#jobs button[data-id='${arguments[0]}']`).click()", ids[3]))
    late("say", "running")
    time.sleep(0.5)
    let_go(f"/jobs/{ids[3]}")
    said["states"] += [page.run("return JSON.parse(document.querySelector('#job-document').textContent).state")]
    page.click("#job-close")
    let_draw()
    said["states"] += [state_of(ids[3])]
    # another job is open by the time the first one is forgotten, or something of it could not be had
    open_job(ids[0])
    held("DELETE", lambda: page.click("#job [data-part=forget]"))
    page.click("#job-close")
    open_job(ids[1])
    let_go("DELETE")
    said["forgotten"] = shown()
    page.click("#job-close")
    open_job(ids[2])
    held("/outputs/", lambda: page.click("#job [data-part=save-c]"))
    page.click("#job-close")
    open_job(ids[1])
    let_go("/outputs/")
    said["complaint"] = page.run("return document.querySelectorAll('#job .problem.done').length")
    page.click("#job-close")
    # or one is sent
    held("POST", lambda: page.run("document.querySelector('#send button[type=submit]').click()"))
    open_job(ids[1])
    let_go("POST")
    said["sent"] = shown()
    page.click("#job-close")
    held("POST", lambda: page.run("document.querySelector('#send button[type=submit]').click()"))
    late("revoke")
    page.until(lambda: page.visible("#sign-in"), "it asks for a key again")
    let_go("POST")
    said["signed_out"] = page.visible("#job")
    return said


def frames(page, wanted):
    """While jobs come for some seconds: pictures drawn, what is kept and drawn, events that came."""
    page.live()
    page.run("window.gaps = []; let last = performance.now(); const tick = (at) => { window.gaps.push(at - last); last = at;"
             " requestAnimationFrame(tick) }; requestAnimationFrame(tick)")
    before = page.counts()
    page.until(lambda: page.counts()["events"] >= before["events"] + wanted["events"], "the events come", 120)
    after = page.counts()
    gaps = sorted(page.run("return window.gaps"))
    return {"before": before, "after": after, "frames": len(gaps), "median_gap_ms": gaps[len(gaps) // 2], "worst_gap_ms": gaps[-1],
            "nodes": page.run("return document.querySelectorAll('*').length")}


def picture(page, wanted):
    """A screenshot, after some seconds of whatever goes on."""
    page.size(wanted.get("width", 1360), wanted.get("height", 1000), wanted["theme"])
    page.live()
    page.set("#span", str(wanted.get("span", 15)))
    time.sleep(wanted.get("seconds", 20))
    page.run("window.scrollTo(0, arguments[0])", wanted.get("scroll", 0))
    page.picture(wanted["path"])
    return {}


SCENARIOS = {"shows": shows, "forms": forms, "cancels": cancels, "signs_in": signs_in, "looks": looks, "long_work": long_work, "hostile": hostile, "goes_wrong": goes_wrong, "answers_late": answers_late, "frames": frames, "picture": picture}

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as profile:
        scenario = sys.argv[1]
        opened = Page(sys.argv[2], profile)
        try:
            said = SCENARIOS[scenario](opened, json.loads(sys.argv[3]) if len(sys.argv) > 3 else {})
            said["complaints"] = opened.complaints()
            print(json.dumps(said))
        finally:
            opened.driver.quit()
