"""Scenarios of page_driver.py: what the page says while things come and go."""
import os
import signal


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


SCENARIOS = {one.__name__: one for one in (redis_away,)}
