"""Scenarios of page_driver.py: the page as it is used from day to day."""
import json
import pathlib
import time

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select


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
        if "succeeded" in title:
            page.until(lambda: page.run("const one = document.querySelector('#job-answer'); return one && one.getBoundingClientRect().bottom <= innerHeight"),
                       f"{name}: its outputs are shown, without scrolling")
        ends[name] = {"title": title, "curl": page.text("#job-curl"), "phases": page.run("return document.querySelectorAll('#job tbody tr').length"),
                      "document": page.text("#job-document")}
        page.click("#job-close")
    page.until(lambda: page.run("return [...document.querySelectorAll('#jobs tbody tr')].every((row) => Number(row.cells[4].innerText) >= 1)"), "batches are told of")
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
    page.until(lambda: not page.run("return location.hash"), "its address no longer names the job")
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
    tab_to("view-devices")
    keys(Keys.ARROW_LEFT)
    assert focus() == "view-jobs"
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


SCENARIOS = {one.__name__: one for one in (shows, forms, cancels, signs_in, looks, long_work, frames, picture)}
