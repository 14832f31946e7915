"""Chromium without a window, driven by chromedriver over W3C's WebDriver protocol."""

import base64
import json
import os
import pathlib
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from typing import Any

import pytest

_FLAGS = ("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run")
_FLAGS += ("disable-background-networking", "disable-component-update", "disable-sync")
_FLAGS += ("disable-dev-shm-usage", "hide-scrollbars")
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"

ENTER, TAB, CONTROL, SHIFT, SPACE, END_OF_CHORD = (
    "\ue007",
    "\ue004",
    "\ue009",
    "\ue008",
    " ",
    "\ue000",
)


def need_chromium() -> None:
    """Skips a test where there is none; in CI it has to be there."""
    absent = [name for name in ("chromium", "chromedriver") if not shutil.which(name)]
    if absent:
        message = f"{' and '.join(absent)} absent: apt-get install chromium chromium-driver"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(message)


class Chromium:
    """One browser with one page, and an empty profile.

    Args:
        folder: For its profile.
    """

    def __init__(self, folder: pathlib.Path):
        need_chromium()
        self._driver = subprocess.Popen(
            [shutil.which("chromedriver"), "--port=0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            for line in self._driver.stdout:
                if port := re.search(r"started successfully on port (\d+)", line):
                    break
            self._base = f"http://127.0.0.1:{port[1]}/session"
            flags = [f"--{flag}" for flag in _FLAGS] + [f"--user-data-dir={folder}"]
            options = {"binary": shutil.which("chromium"), "args": flags}
            capabilities = {"goog:chromeOptions": options}
            capabilities["goog:loggingPrefs"] = {"browser": "ALL", "performance": "ALL"}
            made = self._call("POST", "", {"capabilities": {"alwaysMatch": capabilities}})
            self._base += f"/{made['sessionId']}"
        except BaseException:
            self._driver.kill()
            raise

    def __enter__(self) -> "Chromium":
        return self

    def __exit__(self, *_) -> None:
        try:
            self._call("DELETE", "")
        finally:
            self._driver.kill()
            self._driver.wait()

    def _call(self, method: str, path: str, body: dict | None = None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, content, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from None

    def open(self, address: str) -> None:
        self._call("POST", "/url", {"url": address})

    def script(self, source: str, *arguments) -> Any:
        """What a function's body returns in the page; promises are waited for."""
        body = {"script": source, "args": list(arguments)}
        return self._call("POST", "/execute/sync", body)

    def keys(self, text: str) -> None:
        """Typed where the focus is; control and shift hold until `END_OF_CHORD`."""
        element = self._call("GET", "/element/active")[_ELEMENT]
        self._call("POST", f"/element/{element}/value", {"text": text})

    def until(self, source: str, seconds: float = 60) -> Any:
        """What an expression gives in the page as soon as that is true."""
        end = time.monotonic() + seconds
        while not (value := self.script(f"return {source}")):
            if time.monotonic() > end:
                raise AssertionError(f"{source} didn't become true:\n{self.page_text()}")
            time.sleep(0.02)
        return value

    def page_text(self) -> str:
        return self.script("return document.body.innerText")

    def protocol(self, command: str, **parameters) -> Any:
        """A command of the DevTools protocol."""
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def size(self, width: int, height: int, dark: bool = False) -> None:
        """Of the page that is seen, a phone's if it is narrow; light or dark."""
        self.protocol(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.protocol("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: pathlib.Path) -> bytes:
        """The whole page, as PNG."""
        content = self.protocol("Page.getLayoutMetrics")["cssContentSize"]
        clip = content | {"scale": 1}
        shot = self.protocol("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        content = base64.b64decode(shot["data"])
        path.write_bytes(content)
        return content

    def console(self) -> list[str]:
        """What the page has logged since the last call, errors and violations of its policy too."""
        return [entry["message"] for entry in self._call("POST", "/se/log", {"type": "browser"})]

    def addresses(self) -> set[str]:
        """Of all that was requested since the last call."""
        log = self._call("POST", "/se/log", {"type": "performance"})
        events = [json.loads(entry["message"])["message"] for entry in log]
        names = ("Network.requestWillBeSent", "Network.webSocketCreated")
        return {
            (event["params"].get("request") or event["params"])["url"]
            for event in events
            if event["method"] in names
        }


WIDE = (1100, 800)
DONE = "[...document.querySelectorAll('.card')].every((card) => card.dataset.state === 'done')"
"""True in the page once every model has answered."""


def open_page(browser: Chromium, address: str, size=WIDE) -> None:
    """The page of a server, with its first example in the fields."""
    browser.open("about:blank")
    browser.console(), browser.addresses()
    browser.size(*size)
    browser.open(address)
    browser.until("document.querySelector('#field0')?.value")
