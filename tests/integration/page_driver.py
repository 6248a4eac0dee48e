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

import page_live
import page_looks
import page_troubles
import page_usual
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By

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

    def size(self, width, height, theme="light", forced="none"):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1,
                                                                           "mobile": False})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme},
                                                                                     {"name": "forced-colors", "value": forced}]})

    def run(self, script, *words):
        return self.driver.execute_script(script, *words)

    def reveal(self, selector):
        """Chooses the view in which it is, by its tab, as a user does."""
        self.run("const view = document.querySelector(arguments[0])?.closest('[role=tabpanel]');"
                 " if (view?.hidden && !document.querySelector('dialog[open]')) document.getElementById(view.getAttribute('aria-labelledby')).click()", selector)

    def one(self, selector):
        self.reveal(selector)
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector):
        """What is seen of it, empty for what is hidden; read in one step, as the page redraws at any time."""
        self.reveal(selector)
        return self.run("const one = document.querySelector(arguments[0]); return one && one.checkVisibility() ? one.innerText.trim() : ''", selector)

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
                        " Object.fromEntries([...row.cells].slice(3).map((cell) => [cell.dataset.state, Number(cell.textContent.replaceAll(',', ''))]))]))")

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


SCENARIOS = {**page_usual.SCENARIOS, **page_live.SCENARIOS, **page_looks.SCENARIOS, **page_troubles.SCENARIOS}

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
