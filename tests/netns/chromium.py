"""Headless Chromium in a namespace, and what a person does with it."""

import contextlib
import shutil

import wait
from isolation import inside


def missing():
    """What is not here, if anything."""
    try:
        import selenium.webdriver  # noqa: F401
    except ImportError:
        return "python3-selenium"
    return next((tool for tool in ("chromedriver", "chromium") if not shutil.which(tool)), None)


@contextlib.contextmanager
def at(address, namespace, profile, *more):
    """A browser at an address, with more options. At the end its console has no errors but those of requests that are refused on purpose."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for word in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,900",
                 f"--user-data-dir={profile}", "--no-proxy-server", "--disable-background-networking", *more]:
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with inside(namespace):
        driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        try:
            driver.set_page_load_timeout(30)
            driver.get(address)
            yield driver
            wanted = ("401", "409", "422", "TrustedHTML")
            faults = [line for line in driver.get_log("browser") if line["level"] == "SEVERE" and not any(word in line["message"] for word in wanted)]
            assert not faults, faults
        finally:
            driver.quit()


class Person:
    """What a person does with the page: reads, presses keys, waits."""

    def __init__(self, driver):
        self.driver = driver

    def find(self, selector):
        from selenium.webdriver.common.by import By

        return wait.until(lambda: next(iter(self.driver.find_elements(By.CSS_SELECTOR, selector)), None), selector, 15)

    def clicks(self, selector, word="", inside=None):
        """Clicks on the first element with that word in it, or on what is inside it. A view is drawn anew each second, also between a look and a click."""
        from selenium.common.exceptions import StaleElementReferenceException
        from selenium.webdriver.common.by import By

        def is_clicked():
            try:
                found = next((element for element in self.driver.find_elements(By.CSS_SELECTOR, selector) if word in element.text), None)
                if found is None:
                    return False
                (found.find_element(By.CSS_SELECTOR, inside) if inside else found).click()
                return True
            except StaleElementReferenceException:
                return False

        wait.until(is_clicked, f"{selector} {word}", 15)

    def text(self):
        return self.find("body").text

    def sees(self, *words):
        wait.until(lambda: all(word in self.text() for word in words), f"{words} on the page", 15)

    def login(self, token):
        from selenium.webdriver.common.keys import Keys

        # By the keyboard alone: the field has the focus.
        self.find("#login input")
        self.driver.switch_to.active_element.send_keys(token + Keys.ENTER)
        self.find("#views a")

    def goes(self, view):
        self.driver.execute_script("location.hash = arguments[0]", view)
        wait.until(lambda: self.find("nav a[aria-current]").get_attribute("href").endswith(f"#{view}"), view)
        filled = "return document.querySelector('main > div')?.childElementCount"
        wait.until(lambda: self.driver.execute_script(filled), f"something in {view}", 15)
