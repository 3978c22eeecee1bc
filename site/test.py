#!/usr/bin/env python3
"""Reads the site in headless Chromium: a page is found by the search, and shows what it is to show.

The argument is the directory of the site. Needs selenium, Chromium and its driver, as the tests of the gateway's page do.
"""

import functools
import http.server
import shutil
import sys
import threading

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files, and says nothing."""

    def log_message(self, *_):
        pass


def main():
    handler = functools.partial(Quiet, directory=sys.argv[1])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,900", "--no-proxy-server"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        read(driver, f"http://127.0.0.1:{server.server_port}")
        faults = [line["message"] for line in driver.get_log("browser") if line["level"] == "SEVERE"]
        assert not faults, faults
    finally:
        driver.quit()
        server.shutdown()
    print("site: the search finds pages, and they show")


def read(driver, address):
    """What a reader does."""
    find = lambda selector: WebDriverWait(driver, 20).until(lambda _: next(iter(driver.find_elements(By.CSS_SELECTOR, selector)), None), selector)
    driver.get(address)
    find("input[name=query]").send_keys("keepalived")
    result = find(".md-search-result__link[href*='docs/sync.html']")
    driver.get(result.get_attribute("href"))
    assert "keepalived" in find("article").text
    # Commands, as they say themselves.
    driver.get(f"{address}/reference/commands/replay.html")
    assert "wirerate replay policies/home-office.toml" in find("article").text
    # A picture, and a policy that a page leads to.
    driver.get(f"{address}/docs/wan.html")
    driver.get(find("a[href*='policies/two-wans']").get_attribute("href"))
    assert "[wan." in find("article").text
    driver.get(f"{address}/docs/qos.html")
    width = driver.execute_script("return Math.min(...[...document.querySelectorAll('article img')].map(image => image.naturalWidth))")
    assert width > 0, width


if __name__ == "__main__":
    main()
