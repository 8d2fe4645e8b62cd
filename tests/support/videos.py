# SPDX-License-Identifier: Apache-2.0
"""Videos of test frames, and a local RTSP server that plays one."""

from __future__ import annotations

import io
import re
import socket
import struct
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

av = pytest.importorskip("av", reason="PyAV, the extra [video], is not installed")

COLOURS = ((204, 102, 51), (51, 204, 102), (51, 102, 204))  # mostly red, green and blue
_SDP = """v=0
o=- 0 0 IN IP4 127.0.0.1
s=test
t=0 0
m=video 0 RTP/AVP 96
a=rtpmap:96 H264/90000
a=fmtp:96 packetization-mode=1
a=framerate:30
a=control:track1
"""


def frames(count: int, size: tuple[int, int] = (12, 16)) -> list[NDArray[np.uint8]]:
    """Return frames of one colour each, plus noise. Shapes: (h, w, 3)."""
    noise = np.random.default_rng(3).integers(0, 16, (count, *size, 3))
    colours = np.array([COLOURS[number % 3] for number in range(count)])
    return list((noise + colours[:, np.newaxis, np.newaxis]).astype(np.uint8))


def write_video(path: Path, images: Sequence[NDArray[np.uint8]], rate: int = 10) -> None:
    """Write a lossless video."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=rate)
        stream.height, stream.width = images[0].shape[:2]
        stream.pix_fmt = "bgr0"
        for image in images:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())


def jpeg(image: NDArray[np.uint8]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=95)
    return file.getvalue()


def read_video(path: str) -> list[NDArray[np.uint8]]:
    """Return all frames of a video as RGB."""
    with av.open(path) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


class RtspServer(threading.Thread):
    """Plays frames as H.264 to one client, then closes the connection, or stalls."""

    def __init__(self, count: int, stalls: bool = False) -> None:
        super().__init__(daemon=True)
        self._count, self._stalls = count, stalls
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"rtsp://me:secret@127.0.0.1:{self._socket.getsockname()[1]}/camera"
        self.ended = threading.Event()

    def __enter__(self) -> RtspServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._socket.close()

    def run(self) -> None:
        client, _ = self._socket.accept()
        with client, client.makefile("rb") as words:
            while request := words.readline().decode().split():
                lines = {}
                while line := words.readline().decode().strip():
                    name, _, value = line.partition(":")
                    lines[name.lower()] = value.strip()
                body, more = "", "Session: 1\r\n"
                if request[0] == "DESCRIBE":
                    body, more = _SDP, "Content-Type: application/sdp\r\n"
                if request[0] == "SETUP":
                    more += "Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n"
                head = f"RTSP/1.0 200 OK\r\nCSeq: {lines['cseq']}\r\n{more}"
                client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
                if request[0] == "PLAY":
                    self._play(client)
                    return

    def _play(self, client: socket.socket) -> None:
        stream = av.CodecContext.create("libx264", "w")
        stream.height, stream.width, stream.pix_fmt = 48, 64, "yuv420p"
        stream.framerate, stream.options = 30, {"preset": "ultrafast", "tune": "zerolatency"}
        number = 0
        for at, image in enumerate(frames(self._count, (48, 64))):
            for packet in stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")):
                units = [*filter(None, re.split(b"\0\0\0?\x01", bytes(packet)))]
                for unit in units:
                    kind = 96 | (0x80 if unit is units[-1] else 0)
                    head = struct.pack(">BBHII", 0x80, kind, number, at * 3000, 7)
                    number += 1
                    client.sendall(struct.pack(">cBH", b"$", 0, 12 + len(unit)) + head + unit)
            time.sleep(0.02)
        if self._stalls:
            self.ended.wait()
