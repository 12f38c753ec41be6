"""A real browser without a window, and what it says of a page."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from whetstone_dev import packages


@contextmanager
def headless_browser() -> Iterator[Chrome]:
    """Start Debian's Chromium; it logs its console and every request."""
    packages.install(packages.BROWSER)
    options = ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        yield browser
    finally:
        browser.quit()


def visit(browser: Chrome, page: Path) -> list[str]:
    """Open a page and return what it asked for beyond itself, and what its console says."""
    for log in ("browser", "performance"):
        browser.get_log(log)
    address = page.resolve().as_uri()
    browser.get(address)
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    told = [entry["message"] for entry in browser.get_log("browser")]
    return [url for url in asked if url != address] + told
