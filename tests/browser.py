"""A real browser: Chromium without a window, driven by Selenium."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import TimeoutException, WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

PATIENCE = 120  # seconds, after which a page counts as stuck
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # it runs as root in a container
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--window-size=1280,1000",
)


class Browser:
    """One window, with what the tests do in it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        self.driver.get(url)

    def eventually(self, condition: Callable[[], Any]) -> Any:
        """What a condition returns when it holds at last; a page that changes under it is looked at again."""
        wait = WebDriverWait(self.driver, PATIENCE, 0.05, ignored_exceptions=(WebDriverException,))
        try:
            return wait.until(lambda _: condition())
        except TimeoutException as error:
            raise AssertionError(f"it did not come about; the page says:\n{self.text()}") from error

    def all(self, css: str) -> list[Any]:
        return list(self.driver.find_elements(By.CSS_SELECTOR, css))

    def one(self, css: str) -> Any:
        """The first element that is there, as soon as there is one."""
        return self.eventually(lambda: self.driver.find_element(By.CSS_SELECTOR, css))

    def texts(self, css: str) -> list[str]:
        return [element.text for element in self.all(css)]

    def text(self) -> str:
        return str(self.driver.find_element(By.TAG_NAME, "body").text)

    def fill(self, name: str, value: str) -> None:
        field = self.one(f"[name='{name}']")
        field.clear()
        field.send_keys(value)

    def follow(self, element: Any) -> None:
        """Click on what leads to another page, and wait until that is there as a whole."""
        self.driver.execute_script("window.isOld = true")
        element.click()
        self.eventually(lambda: self.driver.execute_script("return !window.isOld && document.readyState == 'complete'"))

    def complaints(self) -> list[str]:
        """What the browser's console has of errors since this was last asked."""
        errors = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
        return [error for error in errors if "/favicon.ico" not in error]  # which no page asked for


def started(folder: Path) -> Browser:
    """A browser of its own, whose files are in a folder. A user without Chromium skips what needs one."""
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not chromedriver:
        pytest.skip("chromium and chromedriver are not there: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in (*FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    return Browser(webdriver.Chrome(options=options, service=Service(chromedriver)))


@pytest.fixture(scope="session")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The browser itself: it takes seconds to start, so all tests share it."""
    browser = started(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.driver.quit()


@pytest.fixture
def browser(window: Browser) -> Iterator[Browser]:
    """A browser that knows of no site yet; at the end its console has no errors."""
    window.driver.delete_all_cookies()
    window.complaints()
    yield window
    complaints = window.complaints()
    window.open("about:blank")
    if complaints:
        pytest.fail("in the browser's console:\n" + "\n".join(complaints))
