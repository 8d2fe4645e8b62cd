# SPDX-License-Identifier: Apache-2.0
"""A local HTTP server in a thread, with configurable faults."""

from __future__ import annotations

import http.server
import re
import threading
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Page:
    """The server's answer for one path."""

    content: bytes = b""
    status: int = 200
    knows_ranges: bool = True
    has_length: bool = True  # sends Content-Length
    cut_after: int | None = None  # bytes sent before the connection is closed
    stalls: bool = False  # sends nothing after cut_after bytes, but keeps the connection open
    redirect: str | None = None


@dataclass
class Server:
    """A server; `pages` may change while it runs."""

    pages: dict[str, Page] = field(default_factory=dict)
    ranges: list[str | None] = field(default_factory=list)  # the Range header of each request
    url: str = ""
    stopped: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Server:
        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


def _handler(server: Server) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.ranges.append(self.headers.get("Range"))
            page = server.pages.get(self.path, Page(status=404))
            if page.redirect is not None:
                self.send_response(302)
                self.send_header("Location", page.redirect)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if page.status != 200:
                self.send_error(page.status)
                return
            start = self._start(page)
            if start >= len(page.content) > 0:
                self.send_error(416)
                return
            body = page.content[start:]
            self.send_response(206 if start else 200)
            if page.has_length:
                self.send_header("Content-Length", str(len(body)))
            if start:
                last = len(page.content) - 1
                self.send_header("Content-Range", f"bytes {start}-{last}/{last + 1}")
            self.end_headers()
            self.wfile.write(body[: page.cut_after])
            if page.stalls:
                self.wfile.flush()
                server.stopped.wait()

        def _start(self, page: Page) -> int:
            match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
            return int(match[1]) if match and page.knows_ranges else 0

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
