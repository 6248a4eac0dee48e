"""Scenarios of page_driver.py: hostile texts, what goes wrong, and answers that come late."""
import json
import time
import urllib.parse
import urllib.request

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys


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
    card, totals = page.text(".device"), page.text("#totals")
    page.run("document.querySelector('#jobs button').click()")
    page.until(lambda: page.visible("#job-document"), "it opens again")
    return {"tip": tip, "made": page.run("return [...document.querySelectorAll('[src=x], b.evil, script:not(:first-of-type), iframe, [onerror]')]"
                                         ".map((one) => one.outerHTML)"),
            "hacked": page.run("return window.hacked || null"), "body": page.text("#job-body"), "card": card,
            "totals": totals, "row": page.run("return document.querySelector('#jobs tbody tr').innerText")}


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
    said["full"] = page.until(lambda: next((text for text in [page.text("#tasks-note")] if "No job events" in text), None), "it says why nothing comes")
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


SCENARIOS = {one.__name__: one for one in (hostile, goes_wrong, answers_late)}
