"""The page's server: what it answers, refuses and survives."""

import collections
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import socket
import time

import pytest

from modeling.errors import ModelingError
from modeling.serving.page import server as page_server
from modeling.serving.page.server import PageServer
from tests.modeling.serving.page import exports
from tests.modeling.serving.page.conftest import MOST_BYTES, each_family, serving
from tests.modeling.serving.page.hostile import broken, hostile_texts
from tests.modeling.serving.page.test_page_models import inputs_of

JSON = {"Content-Type": "application/json"}


class Client:
    """One connection that stays open."""

    def __init__(self, server: PageServer):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=120)

    def request(self, method: str, path: str, body=None, headers=()) -> tuple[int, bytes, dict]:
        self.connection.request(method, path, body, dict(headers))
        response = self.connection.getresponse()
        return response.status, response.read(), dict(response.headers)

    def ask(self, number: int, inputs) -> tuple[int, dict]:
        body = json.dumps({"model": number, "inputs": inputs})
        status, answer, headers = self.request("POST", "/answer", body, JSON)
        assert headers["Content-Type"] == "application/json"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert b"<" not in answer and b"&" not in answer and answer.isascii()
        return status, json.loads(answer)


@pytest.fixture
def client(server) -> Client:
    return Client(server)


def refused(answer: tuple[int, bytes, dict]) -> tuple[int, str]:
    status, body, headers = answer
    document = json.loads(body)
    assert list(document) == ["error"] and headers["Content-Type"] == "application/json"
    return status, document["error"]


def test_the_page_loads_nothing_and_nothing_may_run_in_it(client):
    status, page, headers = client.request("GET", "/")
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8"
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-") and "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy and headers["Cache-Control"] == "no-store"
    text = page.decode()
    assert text.count("<script") == text.count("<style") == 1
    assert not re.search(r"\son\w+\s*=|innerHTML|insertAdjacent|document\.write|\beval\b", text)
    assert not re.findall(r"https?:(?!//www\.w3\.org/2000/svg)", text)


@each_family(*exports.QUICK)
def test_a_model_and_its_examples(name, models):
    model = models[name]
    with serving([models["number"], model]) as server:
        client = Client(server)
        status, body, _ = client.request("GET", "/models")
        described = json.loads(body)
        assert status == 200 and [one["name"] for one in described] == ["number", name]
        for number, example in enumerate(described[1]["examples"]):
            inputs = dict(zip(described[1]["fields"], example, strict=True))
            status, answer = client.ask(1, inputs)
            assert status == 200 and answer["milliseconds"] > 0
            assert answer["outputs"] == model.answer(inputs_of(model, number))[0]


@pytest.mark.parametrize(
    ("headers", "status", "says"),
    [
        ({"Host": "attacker.example"}, 421, "called 127.0.0.1 or localhost only"),
        ({"Host": "127.0.0.1.attacker.example:8000"}, 421, "called"),
        ({"Host": "localhost@attacker.example"}, 421, "called"),
        ({"Host": ""}, 421, "called"),
        ({"Origin": "http://attacker.example"}, 403, "Other sites"),
        ({"Origin": "null"}, 403, "Other sites"),
        ({"Origin": "http://127.0.0.1:1"}, 403, "Other sites"),
        ({"Sec-Fetch-Site": "cross-site"}, 403, "Other sites"),
        ({"Sec-Fetch-Site": "same-site"}, 403, "Other sites"),
        ({"Content-Type": "text/plain"}, 415, "Expected JSON"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415, "Expected JSON"),
        ({"Content-Length": "-5"}, 411, "Content-Length"),
        ({"Content-Length": "1_0"}, 411, "Content-Length"),
        ({"Content-Length": "9" * 30}, 411, "Content-Length"),
    ],
)
def test_other_senders(client, headers, status, says):
    body = json.dumps({"model": 0, "inputs": {"text_a": "a"}})
    got = refused(client.request("POST", "/answer", body, JSON | headers))
    assert got[0] == status and says in got[1]
    assert client.ask(0, {"text_a": "a"})[0] == 200  # on a connection of its own


def test_senders_that_are_welcome(client, server):
    body = json.dumps({"model": 0, "inputs": {"text_a": "a"}})
    for headers in (
        {"Host": f"localhost:{server.server_port}"},
        {"Host": "LOCALHOST:9999", "Origin": "http://LOCALHOST:9999"},
        {"Origin": server.address, "Sec-Fetch-Site": "same-origin"},
        {"Content-Type": "application/json; charset=utf-8"},
    ):
        assert client.request("POST", "/answer", body, JSON | headers)[0] == 200


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"", 400, "isn't JSON"),
        (b"{", 400, "isn't JSON"),
        (b'{"model": 0, "inputs": {"text_a": "\xff"}}', 400, "isn't JSON in UTF-8"),
        (b'{"model": 0, "inputs": {"text_a": "\xed\xa0\x80"}}', 400, "isn't JSON in UTF-8"),
        (b"[" * 40_000, 400, "isn't JSON"),
        (b'{"model": ' + b"9" * 5000 + b', "inputs": {}}', 400, ""),
        (b"[]", 400, "model and inputs"),
        (b'{"model": 0}', 400, "model and inputs"),
        (b'{"model": 0, "inputs": {}, "more": 1}', 400, "model and inputs"),
        (b'{"model": 99, "inputs": {}}', 400, "a number from 0 to 3"),
        (b'{"model": -1, "inputs": {}}', 400, "a number from 0 to 3"),
        (b'{"model": true, "inputs": {}}', 400, "a number from 0"),
        (b'{"model": "0", "inputs": {}}', 400, "a number from 0"),
        (b'{"model": 0, "inputs": null}', 422, "takes text_a, but got something else"),
        (b'{"model": 0, "inputs": {"text_a": NaN}}', 422, "takes a text"),
        (b"x" * (MOST_BYTES + 1), 413, "50,001 bytes, but 50,000 are the most"),
        (b"x" * 5_000_000, 413, "--max_request_bytes"),
    ],
)
def test_other_bodies(client, body, status, says):
    got = refused(client.request("POST", "/answer", body, JSON))
    assert got[0] == status and says in got[1]


def test_the_longest_body(client):
    frame = len(json.dumps({"model": 0, "inputs": {"text_a": ""}}))
    assert client.ask(0, {"text_a": "x" * (MOST_BYTES - frame)})[0] == 200
    assert client.ask(0, {"text_a": "x" * (MOST_BYTES - frame + 1)})[0] == 413


def test_other_paths_and_methods(client):
    for method, path, status in (
        ("GET", "/favicon.ico", 404),
        ("GET", "/../../etc/passwd", 404),
        ("GET", "//127.0.0.1/", 404),
        ("GET", "/answer", 404),
        ("GET", "/<script>", 404),
        ("POST", "/", 404),
        ("PUT", "/answer", 501),
        ("OPTIONS", "/answer", 501),
        ("TRACE", "/", 501),
    ):
        assert refused(client.request(method, path))[0] == status, (method, path)


def raw(server: PageServer, *parts: bytes, pause: float = 0.0) -> bytes:
    """What comes back for bytes that may not be HTTP."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=30) as connection:
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
            with contextlib.suppress(OSError):  # it isn't connected any more
                connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(65536), b""))
        except ConnectionError:
            return b""


def test_what_is_not_http(server, client):
    head = b"POST /answer HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    for sent, status in (
        # http.server takes these for HTTP/0.9, in which answers have no first line.
        (b"<script>alert(1)</script>\r\n\r\n", None),
        (b"GET <script> HTTP/9.9\r\n\r\n", None),
        (b"GET / HTTP/1.1\r\n\r\n", b"421"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: attacker.example\r\n\r\n", b"421"),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 300 + b"\r\n", b"431"),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (head + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"411"),
        (head + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}", b"411"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b""),
        (b"\x00" * 100, b""),
        (b"", b""),
    ):
        got = raw(server, sent)
        assert b"<" not in got, sent
        assert b'"error"' in got if status is None else status in got.split(b"\r\n")[0], sent
    assert client.ask(0, {"text_a": "a"})[0] == 200


def test_slow_senders_are_not_waited_for(server, client, monkeypatch):
    """However steadily they send."""
    monkeypatch.setattr(page_server, "READING_SECONDS", 0.5)
    head = b"POST /answer HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    got = raw(server, head, b"Content-Length: 1000\r\n\r\n", *[b" "] * 12, pause=0.1)
    assert b"408" in got.split(b"\r\n")[0] or got == b""
    raw(server, b"GET / HTTP/1.1\r\n", *[b"a: b\r\n"] * 12, pause=0.1)
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=30) as idle:
        assert idle.recv(10) == b""
    assert client.ask(0, {"text_a": "a"})[0] == 200


def test_connections_are_bounded(models, monkeypatch):
    monkeypatch.setattr(page_server, "MOST_CONNECTIONS", 3)
    with serving([models["classes"]]) as server:
        address = ("127.0.0.1", server.server_port)
        idle = [socket.create_connection(address, timeout=30) for _ in range(3)]
        time.sleep(0.2)
        assert raw(server, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""
        for connection in idle:
            connection.close()
        time.sleep(0.2)
        assert Client(server).ask(0, {"text_a": "a"})[0] == 200


def well_formed(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def check(family: str, text: str, outputs: dict) -> None:
    """That what is shown of a hostile text is of that text."""
    text = well_formed(text)
    if family == "questions":
        places = zip(outputs["answers"], outputs["starts"], outputs["ends"], strict=True)
        for answer, start, end in places:
            assert answer == (text[start:end] if start >= 0 else "")
    if family == "tags":
        places = (outputs[f"entity_{name}"] for name in ("texts", "starts", "ends"))
        for entity, start, end in zip(*places, strict=True):
            assert entity == text[start:end] != ""
    if family == "choices":
        assert outputs["choice_text"] == ["a", text, "b"][outputs["choice"]]


def resident_bytes() -> int:
    """Memory of this process, the server's too."""
    pages = pathlib.Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("count", "names"),
    [(400, exports.QUICK), pytest.param(3000, exports.FAMILIES, marks=pytest.mark.slow)],
)
def test_hostile_texts(count, names, models):
    """Each to one family after the other, every fourth in a request that is broken itself."""
    texts, draw = hostile_texts(count), random.Random(count)
    statuses, after_some = collections.Counter(), 0
    with serving([models[name] for name in names]) as server:
        client = Client(server)
        for place, text in enumerate(texts):
            number = place % len(names)
            model = models[names[number]]
            inputs = inputs_of(model) | {model.family.fields[-1]: text}
            if model.family.name == "choices":
                inputs["choices"] = ["a", text, "b"]
            elif model.family.name == "similar":
                inputs["texts"] = [text, "a", text]
            if place % 4 == 3:
                body = broken({"model": number, "inputs": inputs}, MOST_BYTES, draw)
                status, answer, _ = client.request("POST", "/answer", body, JSON)
                answer = json.loads(answer)
                assert status in (200, 400, 413, 422), (status, answer, body)
            else:
                status, answer = client.ask(number, inputs)
                assert status in (200, 413, 422), (status, answer, text)
            statuses[status] += 1
            if status != 200:
                assert list(answer) == ["error"] and "." in answer["error"]
                assert "Traceback" not in answer["error"]
            elif place % 4 != 3:
                check(model.family.name, text, answer["outputs"])
            if place == count // 4:
                after_some = resident_bytes()
        assert client.ask(0, {"text_a": "a"})[0] == 200
    assert statuses[200] > count / 2 and statuses[400] > count / 10 and statuses[413] > count / 100
    assert resident_bytes() - after_some < 2**26


def test_two_clients_at_once(server, models):
    """Each gets its own answers, also while the other asks the same model."""
    texts = [f"the tower {'was good ' * (n % 7)} {n}" for n in range(40)]
    wanted = [models["classes"].answer({"text_a": text})[0] for text in texts]

    def ask(order: int) -> list[tuple]:
        client = Client(server)
        return [client.ask(0, {"text_a": text}) for text in texts[::order]][::order]

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for answers in pool.map(ask, (1, -1)):
            assert [status for status, _ in answers] == [200] * len(texts)
            assert [answer["outputs"] for _, answer in answers] == wanted


def test_a_client_that_goes_away(server, client, capfd):
    head = b"POST /answer HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    assert raw(server, head + b"Content-Length: 100\r\n\r\n{") == b""
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", server.server_port)) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50)
    assert client.ask(0, {"text_a": "a"})[0] == 200
    assert "Traceback" not in capfd.readouterr().err


def test_a_model_that_breaks(models, monkeypatch):
    def broken(inputs):
        raise RuntimeError("<secret>")

    model = models["number"]
    monkeypatch.setattr(model, "answer", broken)
    with serving([model]) as server:
        status, answer = Client(server).ask(0, {"text_a": "a"})
    assert status == 500 and "RuntimeError" in answer["error"] and "secret" not in answer["error"]


def test_a_port_in_use(server):
    with pytest.raises(ModelingError, match=f"port {server.server_port} of 127.0.0.1: another"):
        PageServer(server.server_port, 100)


def test_only_this_machine_is_served(server):
    assert server.socket.getsockname()[0] == "127.0.0.1"
