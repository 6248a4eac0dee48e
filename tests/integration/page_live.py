"""Scenarios of page_driver.py: what the page says while things come and go."""
import json
import os
import signal
import urllib.request

from selenium.webdriver.common.action_chains import ActionChains

def control(page, **what):
    """Tells the stand-in (page_standins.Told) what there is now."""
    with urllib.request.urlopen(f"{page.url}control", json.dumps(what).encode()) as answer:
        return json.load(answer)


def state_of(page, job):
    return next((row[2] for row in page.rows() if row[0] == job), None)


def redis_away(page, wanted):
    """Redis stands still, and goes on: what the page says of its figures."""
    page.live()
    said = {"at_first": page.visible("#old")}
    os.kill(wanted["redis"], signal.SIGSTOP)
    try:
        said["link"] = page.until(lambda: next((text for text in [page.text("#link-text")] if text != "live"), None), "it is not called live any more")
        said["old"] = page.until(lambda: next((text for text in [page.text("#old")] if "edis" in text), None), f"it says why: {page.text('#old')}")
        said["axe"] = page.axe()
    finally:
        os.kill(wanted["redis"], signal.SIGCONT)
    page.live()
    said["at_last"] = page.visible("#old")
    return said


def runs_already(page, wanted):
    """Jobs of which no event tells that they run; one of them is given back, another ends while the list is on its way."""
    page.live()
    page.until(lambda: page.counts()["running"] == len(wanted["running"]), f"their bars are drawn: {page.counts()}")
    page.until(lambda: ":" in page.text(".device .state"), "the card names what runs")
    said = {"states": [state_of(page, job["id"]) for job in wanted["running"]], "card": page.text(".device .state")}
    control(page, tell=["job", {**wanted["running"][0], "state": "queued", "started_at": None}])
    page.until(lambda: page.counts()["running"] == len(wanted["running"]) - 1, "the bar of what is given back vanishes")
    control(page, tell=["job", {**wanted["running"][1], "state": "succeeded"}])
    page.until(lambda: page.counts()["running"] == 0, "no bar runs")
    return said


def selects(page, wanted):
    """What is selected in a row, a device's card and a job's document while each of them is drawn anew."""
    job = wanted["job"]
    page.live()
    page.until(lambda: state_of(page, job["id"]), "its row is there")

    def select(selector, begin=0, end=None):
        page.reveal(selector)
        page.run("const one = document.querySelector(arguments[0]), text = one.firstChild, range = document.createRange();"
                 " range.setStart(text, arguments[1]); range.setEnd(text, arguments[2] ?? text.data.length);"
                 " getSelection().removeAllRanges(); getSelection().addRange(range)", selector, begin, end)
        return selected()

    def selected():
        return page.run("return getSelection().toString()")
    said = {"row": [select(f"#jobs tr[data-id='{job['id']}'] td:nth-child(2)")]}
    control(page, tell=["job", document_of(job, 9, "queued")])
    page.until(lambda: page.rows()[0][2] == "queued", "another one's row comes before it")
    control(page, tell=["job", {**job, "progress": 0.5}], jobs=[{**job, "progress": 0.5}])
    page.until(lambda: state_of(page, job["id"]) == "running 50 %", "its own is drawn anew")
    said["row"].append(selected())
    said["card"] = [select(".device h3")]
    events = page.counts()["events"]
    page.until(lambda: page.counts()["events"] >= events + 3, "the devices are told of again")
    said["card"].append(selected())
    page.run("document.querySelector(`#jobs button[data-id='${arguments[0]}']`).click()", job["id"])
    page.until(lambda: '"progress": 0.5' in page.text("#job-document"), "it opens")
    said["document"] = [select("#job-document", 11, 52)]
    for number in (6, 7, 8):
        control(page, tell=["job", {**job, "progress": number / 10}])
        page.until(lambda: f'"progress": 0.{number}' in page.text("#job-document"), "it is drawn anew")
    said["document"].append(selected())
    control(page, tell=["job", {**job, "state": "succeeded", "progress": 1}])
    page.until(lambda: "succeeded" in page.text("#job-title"), "it ends")
    page.until(lambda: page.visible("#job [data-part=forget]") and not page.visible("#job-cancel"), "what can be done is of a job that has ended")
    return said


def stands_still(page, wanted):
    """The list under a hand, and while the stream is away: whether it says that it stands still."""
    page.live()
    page.until(lambda: state_of(page, wanted["job"]["id"]), "its row is there")
    said = {"at_first": page.text("#jobs-still")}
    ActionChains(page.driver).move_to_element(page.one("#jobs tbody td:nth-child(2)")).perform()
    control(page, tell=["job", document_of(wanted["job"], 1, "queued")])
    said["pointed"] = page.until(lambda: page.text("#jobs-still"), "it says so")
    said["rows"] = len(page.rows())
    ActionChains(page.driver).move_to_element(page.one("header")).perform()
    page.until(lambda: len(page.rows()) == 2 and not page.text("#jobs-still"), "it goes on")
    control(page, deaf=True)
    said["away"] = page.until(lambda: page.text("#jobs-still"), "it says so again")
    said["axe"] = page.axe()
    control(page, deaf=False)
    page.live()
    page.until(lambda: not page.text("#jobs-still"), "it goes on once more")
    return said


def numbers(page, wanted):
    """Sends numbers that JavaScript has no equals of: what travels, and what the command says."""
    page.live()
    page.set("#send-op", wanted["op"])
    for field, text in wanted["fields"].items():
        page.set(f"#send-{field}", text)
    page.run("document.querySelector('#send button[type=submit]').click()")
    page.until(lambda: page.visible("#job-curl"), "it is sent, and opens")
    return {"posted": control(page)["posted"], "curl": page.text("#job-curl")}


def linked(page, wanted):
    """One job by its link: at first, while the page is open, and with a way back; and the link of one that is opened otherwise."""
    first, second = wanted["jobs"]

    def shown(job):
        return page.visible("#job-document") and job in page.text("#job-document")

    def at():
        return page.run("return location.hash")
    page.driver.get("about:blank")
    page.driver.get(f"{page.url}#job={first}")
    page.until(lambda: shown(first), "it opens")
    page.run("location.hash = arguments[0]", f"job={second}")
    page.until(lambda: shown(second), "the other one opens")
    page.driver.back()
    page.until(lambda: shown(first), "the first one is open again")
    page.click("#job-close")
    said = {"closed": at()}
    page.until(lambda: page.rows(), "the list is there")
    page.run("document.querySelector(`#jobs button[data-id='${arguments[0]}']`).click()", second)
    page.until(lambda: shown(second), "it opens by its row")
    said["opened"] = at()
    said["link"] = page.run("return document.querySelector('#job-body a')?.href")
    page.run("location.hash = ''")
    page.until(lambda: not page.visible("#job"), "without a job in the address none is open")
    page.run("location.hash = 'job=nonsense'")
    page.run("location.hash = arguments[0]", "job=s" + "a" * 40)
    said["unknown"] = page.until(lambda: page.text("#job .problem"), "it says that there is no such job")
    return said


def pages_back(page, wanted):
    """Older jobs again and again, while others come; which rows there are at last."""
    page.live()
    page.until(lambda: page.counts()["rows"] == 50, "the newest are there")
    for i, job in enumerate(wanted["new"]):
        page.run("document.querySelector('#older').click()")
        page.until(lambda: page.counts()["rows"] == 100 + 50 * i, f"older ones are there: {page.counts()} {i}")
        control(page, tell=["job", job], jobs=[job])
        page.until(lambda: page.rows()[0][0] == job["id"], "a new one is there")
    said = {"rows": [row[0] for row in page.rows()], "kept": page.counts()["kept"]}
    # a stream that begins anew has all of these again
    control(page, deaf=True)
    page.until(lambda: page.text("#link-text") != "live", "the stream is away")
    control(page, jobs=wanted["missed"], deaf=False)
    page.until(lambda: page.rows()[0][0] == wanted["missed"][-1]["id"], "what was missed is there")
    page.until(lambda: page.counts()["rows"] == len(said["rows"]), "so are the others")
    return {**said, "again": [row[0] for row in page.rows()]}


def document_of(job, number, state):
    return {**job, "id": "s" + "9" * 39 + str(number), "op": "solve", "state": state, "created_at": job["created_at"].replace("2026", "2027"), "progress": 0}


SCENARIOS = {one.__name__: one for one in (redis_away, runs_already, selects, stands_still, numbers, linked, pages_back)}
