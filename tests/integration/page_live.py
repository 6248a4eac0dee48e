"""Scenarios of page_driver.py: what the page says while things come and go."""
import json
import os
import signal
import urllib.request


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
    said = {"states": [state_of(page, job["id"]) for job in wanted["running"]], "card": page.text(".device .state")}
    control(page, tell=["job", {**wanted["running"][0], "state": "queued", "started_at": None}])
    page.until(lambda: page.counts()["running"] == len(wanted["running"]) - 1, "the bar of what is given back vanishes")
    control(page, tell=["job", {**wanted["running"][1], "state": "succeeded"}])
    page.until(lambda: page.counts()["running"] == 0, "no bar runs")
    return said


SCENARIOS = {one.__name__: one for one in (redis_away, runs_already)}
