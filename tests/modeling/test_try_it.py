"""modeling.try_it as users run it: from the command line to an answer and Ctrl-C."""

import json
import re
import signal
import socket
import time
import urllib.request

import pytest

from tests.modeling.serving.page import exports
from tests.modeling.serving.page.chromium import DONE, ENTER, Chromium, open_page
from tests.scripts import Script, fail, messages

COMMAND = ("-m", "modeling.try_it")


def opened(script: Script, seconds: float = 120) -> str:
    """The address that the command says."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and script.poll() is None:
        if found := re.search(r"^Open (http://127\.0\.0\.1:\d+) ", script.read("stdout"), re.M):
            return found[1]
        time.sleep(0.05)
    raise AssertionError(script.read("stderr"))


@pytest.mark.slow
def test_from_the_command_line_to_ctrl_c(tmp_path):
    makers = exports.makers(tmp_path)
    makers["classes"](), makers["number"]()
    folders = f"{tmp_path}/classes/export,{tmp_path}/number/export"
    script = Script(*COMMAND, f"--saved_model={folders}", "--port=0")
    address = opened(script)
    log = script.read("stderr")
    assert "Loaded classes (classes)" in log and "Loaded number (number)" in log
    body = json.dumps({"model": 1, "inputs": {"text_a": "the film"}}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{address}/answer", body, headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        assert list(json.load(response)["outputs"]) == ["score"]
    port = address.rpartition(":")[2]
    said = fail(*COMMAND, f"--saved_model={folders}", f"--port={port}")
    assert f"port {port} of 127.0.0.1: another program has it. Name another with --port" in said
    script.send_signal(signal.SIGINT)
    result = script.wait(60)
    assert result.returncode == 0 and "Traceback" not in result.stderr
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", int(port)))


@pytest.mark.slow
def test_in_a_browser_until_the_command_ends(tmp_path):
    exports.makers(tmp_path)["classes"]()
    with Chromium(tmp_path / "profile") as browser:
        script = Script(*COMMAND, f"--saved_model={tmp_path}/classes/export", "--port=0")
        open_page(browser, opened(script))
        browser.keys(ENTER)
        browser.until(DONE)
        said = browser.script("return document.querySelector('.big').textContent")
        assert said in ("negative", "neutral", exports.HOSTILE_LABEL)
        script.send_signal(signal.SIGINT)
        assert script.wait(60).returncode == 0
        browser.keys(ENTER)
        browser.until("document.querySelector('.error')")
        assert "is the command still running?" in browser.page_text()


def test_what_is_wrong(tmp_path):
    cases = [
        ((f"--saved_model={tmp_path}", "--port=0"), "isn't a SavedModel"),
        ((f"--saved_model={tmp_path}/absent", "--port=0"), "doesn't exist"),
    ]
    said = messages("modeling.try_it", *(line for line, _ in cases))
    for message, (_, part) in zip(said, cases, strict=True):
        assert part in message
