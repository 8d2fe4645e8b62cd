# SPDX-License-Identifier: Apache-2.0
"""--show: a local web page with the live picture, its results and the times.

Each client gets the newest picture after finishing the previous one: slow ones delay nobody.
"""

from __future__ import annotations

import http.server
import io
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image

from tflite_opencl.console.errors import RunError

_HOST = "127.0.0.1"
_NAMES = (_HOST, "localhost")  # accepted Host headers: rejects DNS rebinding by other sites
_LARGEST = 1280  # pixels of the longer side
_WAIT_S = 1.0
_BORDER = "frame"

_PAGE = Path(__file__).with_name("page.html")


class Page:
    """The page's server, in separate threads, as a context manager.

    Attributes:
        url: where the page is.
    """

    def __init__(self, port: int, title: str) -> None:
        """`port`: 0: any free one. Raises: RunError: it is in use."""
        self._title = title
        self._changed = threading.Condition()
        self._picture = b""  # as JPEG
        self._state: dict[str, Any] = {"title": title, "results": [], "times": ""}
        self._number = self._readers = 0
        self._is_over = False
        try:
            self._server = http.server.ThreadingHTTPServer((_HOST, port), _handler(self))
        except OSError as error:
            raise RunError(f"--show: port {port} cannot be taken: {error.strerror}") from error
        self._server.daemon_threads = True
        self.url = f"http://{_HOST}:{self._server.server_address[1]}/"

    def __enter__(self) -> Page:
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def show(self, draw: Callable[[], Image.Image], results: list[str], frame: str) -> None:
        """Show a frame; `draw` is called only if the page has viewers."""
        with self._changed:
            self._state |= {"results": results, "frame": frame}
            if self._picture and not self._readers:
                return
        image = draw()
        image.thumbnail((_LARGEST, _LARGEST))
        file = io.BytesIO()
        image.save(file, "JPEG", quality=80)
        with self._changed:
            self._picture = file.getvalue()
            self._number += 1
            self._changed.notify_all()

    def tell(self, times: str) -> None:
        """Show the times of the last second."""
        with self._changed:
            self._state["times"] = times

    def state(self) -> bytes:
        with self._changed:
            return json.dumps(self._state).encode()

    def pictures(self, write: Callable[[bytes], object]) -> None:
        """Write each newest picture as a part, until the end or until the client disconnects."""
        last = -1
        with self._changed:
            self._readers += 1
        try:
            while not self._is_over:
                with self._changed:
                    if self._number == last:
                        self._changed.wait(_WAIT_S)
                        continue
                    last, data = self._number, self._picture
                if data:
                    head = f"Content-Type: image/jpeg\r\nContent-Length: {len(data)}\r\n\r\n"
                    write(head.encode() + data + f"\r\n--{_BORDER}\r\n".encode())
        finally:
            with self._changed:
                self._readers -= 1


def _handler(page: Page) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = 30  # of a client that stops reading

        def do_GET(self) -> None:
            name = self.headers.get("Host", "").rpartition(":")[0]
            if name not in _NAMES:
                self.send_error(403)
            elif self.path == "/":
                self._send("text/html; charset=utf-8", _PAGE.read_bytes())
            elif self.path == "/state":
                self._send("application/json", page.state())
            elif self.path == "/picture":
                self._head(f"multipart/x-mixed-replace; boundary={_BORDER}")
                self.wfile.write(f"--{_BORDER}\r\n".encode())
                page.pictures(self.wfile.write)
            else:
                self.send_error(404)

        def _send(self, kind: str, content: bytes) -> None:
            self._head(kind, len(content))
            self.wfile.write(content)

        def _head(self, kind: str, length: int | None = None) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Cache-Control", "no-store")
            if length is not None:
                self.send_header("Content-Length", str(length))
            self.end_headers()

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:  # the client disconnected
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
