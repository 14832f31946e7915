"""The server of the page: this machine only, texts in JSON in, answers in JSON out.

    GET /         the page
    GET /models   a list of `PageModel.description`
    POST /answer  {"model": 0, "inputs": {"text_a": "A delight."}} →
                  {"outputs": {"label": "1", …}, "milliseconds": 4.2}

What can't be answered is {"error": one sentence} with a status of HTTP's.
"""

import base64
import errno
import hashlib
import http.server
import importlib.resources
import io
import json
import re
import socket
import socketserver
import threading
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from absl import logging

from modeling.errors import ModelingError
from modeling.serving.page.models import BusyError, PageModel

HOST = "127.0.0.1"
HOSTS = (HOST, "localhost")
"""Names that a request may call the server by, with any port: one may lead here from another."""

READING_SECONDS = 20.0
"""So long a request may take to arrive, and an unused connection stays open."""

MOST_CONNECTIONS = 64

_STOPPING_SECONDS = 10.0
_MOST_DISCARDED = 2**26


class _RequestError(Exception):
    """A request that gets a status and a sentence instead of an answer."""

    def __init__(self, status: HTTPStatus, sentence: str):
        super().__init__(sentence)
        self.status = status


class PageServer(http.server.ThreadingHTTPServer):
    """Takes the port at once, and answers from `serve` on.

    Args:
        port: Of 127.0.0.1; 0 takes a free one.
        max_request_bytes: Longest body of a request.

    Raises:
        ModelingError: The port can't be had.
    """

    # Python 3.14 would let a second server share the port.
    allow_reuse_port = False

    def __init__(self, port: int, max_request_bytes: int):
        super().__init__((HOST, port), _Handler, bind_and_activate=False)
        self.max_request_bytes = max_request_bytes
        self.models: Sequence[PageModel] = ()
        self.page = _Page()
        self._connections = threading.BoundedSemaphore(MOST_CONNECTIONS)
        try:
            self.server_bind()
            self.server_activate()
        except OSError as error:
            self.server_close()
            reason = {
                errno.EADDRINUSE: "another program has it",
                errno.EACCES: "this user may not take it",
            }
            raise ModelingError(
                f"The page can't be served at port {port} of {HOST}: "
                f"{reason.get(error.errno, error.strerror)}. Name another with --port, or give "
                f"--port=0, which takes a free one."
            ) from error

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}"

    def serve(self, models: Sequence[PageModel]) -> None:
        """Says where the page is, and answers until it is interrupted."""
        self.models = models
        print(f"Open {self.address} in a browser on this machine; Ctrl-C ends it.", flush=True)
        try:
            self.serve_forever()
        finally:
            # A process that ends while TensorFlow computes may crash.
            for model in models:
                model.wait(_STOPPING_SECONDS)

    def server_bind(self) -> None:
        # Not HTTPServer's, which asks the network for a name.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]

    def process_request(self, request: socket.socket, client_address) -> None:
        if self._connections.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: socket.socket, client_address) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request, client_address) -> None:
        """A client that went away."""
        logging.debug("A connection ended:", exc_info=True)


class _Page:
    """The page's bytes, and the headers that keep it to what is in it."""

    def __init__(self):
        file = importlib.resources.files(__package__).joinpath("page.html")
        text = file.read_text("utf-8")
        self.content = text.encode()
        sources = {tag: _hash_of(text, tag) for tag in ("script", "style")}
        policy = (
            f"default-src 'none'; script-src {sources['script']}; style-src {sources['style']}; "
            "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
        )
        self.headers = {
            "Content-Security-Policy": policy,
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }


def _hash_of(text: str, tag: str) -> str:
    """What a policy calls the page's only element of this kind by."""
    content = re.search(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)[1]
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


class _InTime(io.RawIOBase):
    """Reads a connection until `deadline`, however slowly the bytes come."""

    def __init__(self, connection: socket.socket):
        self.deadline = 0.0
        self._connection = connection

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(READING_SECONDS)


class _Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "try_it", ""
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body in one packet
    server: PageServer

    def setup(self) -> None:
        super().setup()
        self._in_time = _InTime(self.connection)
        self.rfile = io.BufferedReader(self._in_time)

    def handle_one_request(self) -> None:
        self._in_time.deadline = time.monotonic() + READING_SECONDS
        super().handle_one_request()

    def do_GET(self) -> None:
        self._reply(self._get)

    def do_POST(self) -> None:
        self._reply(self._post)

    def log_message(self, *_) -> None:
        """Nothing of what is asked is kept."""

    def send_error(self, code, message=None, explain=None) -> None:
        """What isn't HTTP, or is a method that there isn't."""
        self.close_connection = True
        self._send_json(code, {"error": f"{HTTPStatus(code).phrase}."})

    def _reply(self, make) -> None:
        try:
            self._check_sender()
            make()
        except _RequestError as error:
            # The body may not have been read.
            self.close_connection = True
            self._send_json(error.status, {"error": str(error)})
        except (ConnectionError, TimeoutError):
            self.close_connection = True
        except Exception as error:
            logging.exception("The page's server failed")
            self.close_connection = True
            sentence = f"The model failed ({type(error).__name__}); the terminal says where."
            self._send_json(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": sentence})

    def _check_sender(self) -> None:
        """Only this page may ask: no other site, and none whose name was made to lead here."""
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or re.sub(r":\d*$", "", hosts[0]).lower() not in HOSTS:
            raise _RequestError(
                HTTPStatus.MISDIRECTED_REQUEST, f"This server is called {' or '.join(HOSTS)} only."
            )
        origin = self.headers.get("Origin")
        site = self.headers.get("Sec-Fetch-Site", "none")
        if origin not in (None, f"http://{hosts[0]}") or (
            site not in ("same-origin", "none") and self.command != "GET"
        ):
            raise _RequestError(HTTPStatus.FORBIDDEN, "Other sites may not ask this server.")

    def _get(self) -> None:
        if self.path == "/":
            self._send(HTTPStatus.OK, self.server.page.content, "text/html; charset=utf-8")
        elif self.path == "/models":
            models = [model.description() for model in self.server.models]
            self._send_json(HTTPStatus.OK, models)
        else:
            raise _RequestError(HTTPStatus.NOT_FOUND, "There is nothing here.")

    def _post(self) -> None:
        if self.path != "/answer":
            raise _RequestError(HTTPStatus.NOT_FOUND, "There is nothing to ask here.")
        request = self._body()
        if not isinstance(request, dict) or set(request) != {"model", "inputs"}:
            sentence = "Expected an object with model and inputs, nothing else."
            raise _RequestError(HTTPStatus.BAD_REQUEST, sentence)
        number, count = request["model"], len(self.server.models)
        if type(number) is not int or not 0 <= number < count:
            sentence = f"There is no such model; expected a number from 0 to {count - 1}."
            raise _RequestError(HTTPStatus.BAD_REQUEST, sentence)
        try:
            outputs, milliseconds = self.server.models[number].answer(request["inputs"])
        except ModelingError as error:
            self._send_json(HTTPStatus.UNPROCESSABLE_ENTITY, {"error": str(error)})
        except BusyError as error:
            self._send_json(HTTPStatus.SERVICE_UNAVAILABLE, {"error": str(error)})
        else:
            answer = {"outputs": outputs, "milliseconds": round(milliseconds, 3)}
            self._send_json(HTTPStatus.OK, answer)

    def _body(self) -> Any:
        """The request's JSON."""
        if self.headers.get_content_type() != "application/json":
            sentence = "Expected JSON, with the header Content-Type: application/json."
            raise _RequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, sentence)
        lengths = self.headers.get_all("Content-Length", [])
        if len(lengths) != 1 or not re.fullmatch("[0-9]{1,15}", lengths[0]):
            sentence = "Expected one Content-Length, the body's length in bytes."
            raise _RequestError(HTTPStatus.LENGTH_REQUIRED, sentence)
        length, most = int(lengths[0]), self.server.max_request_bytes
        try:
            if length > most:
                self._discard(length)
                raise _RequestError(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                    f"The request has {length:,} bytes, but {most:,} are the most that this page "
                    "takes; shorten the text, or start the command with a higher "
                    "--max_request_bytes.",
                )
            body = self.rfile.read(length)
        except TimeoutError:
            sentence = f"The request didn't arrive within {READING_SECONDS:.0f} seconds."
            raise _RequestError(HTTPStatus.REQUEST_TIMEOUT, sentence) from None
        if len(body) < length:
            raise ConnectionError("The client went away.")
        try:
            return json.loads(body.decode())
        # Brackets in brackets end in the second.
        except (ValueError, RecursionError):
            sentence = "The request isn't JSON in UTF-8."
            raise _RequestError(HTTPStatus.BAD_REQUEST, sentence) from None

    def _discard(self, length: int) -> None:
        """Reads what won't be taken: else the client sees a broken connection and no answer."""
        left = min(length, _MOST_DISCARDED)
        while left > 0 and (chunk := self.rfile.read1(min(left, 2**16))):
            left -= len(chunk)

    def _send_json(self, status: int, value: Any) -> None:
        # Nothing in it can be taken for HTML, whatever shows it.
        text = json.dumps(value, allow_nan=False).replace("<", "\\u003c").replace("&", "\\u0026")
        self._send(status, text.encode(), "application/json")

    def _send(self, status: int, content: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        for name, value in self.server.page.headers.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
