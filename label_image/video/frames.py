# SPDX-License-Identifier: Apache-2.0
"""The frames of a video, decoded by FFmpeg (PyAV) in a separate thread.

At most one frame is queued: a camera's newest, or a file's next, for which the decoder blocks.
Callers may choose either behaviour.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from label_image.video.load import ThreadTimes
from tflite_opencl.console import interrupts
from tflite_opencl.console.errors import OneLineError, RunError, one_line
from tflite_opencl.pictures.image import STDIN

if TYPE_CHECKING:
    import av

_LOOK_S = 0.2  # how often a waiting thread checks the clock and Ctrl-C
_JOIN_S = 1.0  # a thread blocked in a camera's driver is abandoned
_BETWEEN_LINES_S = 5.0  # between log lines about damaged data
_STREAM = {"rtsp_transport": "tcp"}  # FFmpeg's default, UDP, loses packets silently

log = logging.getLogger("label_image")


@dataclass(frozen=True, slots=True)
class VideoSource:
    """A video's name and how it is read."""

    name: str  # a file, a device, an address; "-" = stdin
    options: Mapping[str, str]  # FFmpeg's format options; "format" is the format's name
    every: bool | None = None  # every frame, not just the newest; None: for files only
    timeout_s: float = 0.0  # maximum time without data; 0: no limit

    @property
    def shown(self) -> str:
        """The name with the password removed."""
        return re.sub(r"(?<=://)[^/@]*@", "", self.name)


@dataclass(slots=True, eq=False)
class Frame:
    """A decoded frame."""

    number: int  # index in the video, from 1
    seconds: float  # presentation time, from the first frame on
    at_s: float  # when it was decoded or due, by time.perf_counter
    image: av.VideoFrame

    def pixels(self) -> NDArray[np.uint8]:
        """Return it as RGB, upright. Shapes: (h, w, 3)."""
        pixels = self.image.to_ndarray(format="rgb24")
        turns = round(self.image.rotation / 90) % 4
        return np.ascontiguousarray(np.rot90(pixels, turns)) if turns else pixels


def _hint(source: VideoSource) -> str:
    """Hint at the name of a camera if the user gave a number, as for other programs."""
    device = f"/dev/video{source.name}"
    return f"; a camera is named by its file: --video {device}" if source.name.isdecimal() else ""


class VideoFailed(OneLineError):
    """The video cannot be opened or read further; the text is one line that says why."""


class Frames:
    """An open video, as a context manager.

    Attributes:
        decoded, dropped, damaged: frame counts so far; the first includes the second, the last
            are those that FFmpeg could not decode. why: why it ended prematurely; "" = it did not.
        every: whether every frame is delivered, and none is dropped.
    """

    def __init__(self, source: VideoSource) -> None:
        """Open it. Raises: VideoFailed. RunError: PyAV is not installed."""
        require_pyav()
        self._source = source
        self.decoded = self.dropped = self.damaged = 0
        self._own_s, self._threads = 0.0, ThreadTimes()
        self.why, self.every = "", bool(source.every)
        self._changed = threading.Condition()
        self._waiting: Frame | None = None
        self._is_open = self._is_begun = self._is_over = self._is_closed = False
        self._reads_since: float | None = time.perf_counter()  # None: not blocked in a read
        self._warned_s = -_BETWEEN_LINES_S
        self._first_s: float | None = None  # time stamp of the first frame
        self._begun_s = 0.0
        self._thread = threading.Thread(target=self._run, name="video", daemon=True)
        self._thread.start()
        with self._changed:
            while not (self._is_open or self._is_over):
                self._wait()
        if self.why:
            self.close()
            raise VideoFailed(f"cannot open the video {source.shown}: {self.why}{_hint(source)}")

    def __enter__(self) -> Frames:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cpu_s(self) -> float:
        """Return the CPU seconds of decoding so far."""
        return self._own_s + self._threads.look()

    def begin(self) -> None:
        """Start counting; earlier frames are discarded."""
        with self._changed:
            self._is_begun, self._begun_s = True, time.perf_counter()
            if not self.every:
                self.decoded = self.dropped = 0
            self._changed.notify_all()

    def next(self) -> Frame | None:
        """Wait for a frame and return it; None: end of the video, and `why` may say why."""
        with self._changed:
            while self._waiting is None and not (self._is_over or self._is_closed):
                self._wait()
            frame, self._waiting = self._waiting, None
            self._changed.notify_all()
            return None if self._is_closed else frame

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(_JOIN_S)

    def _wait(self) -> None:
        """Wait briefly for the thread; end the video if no data came for too long."""
        self._changed.wait(_LOOK_S)
        if threading.current_thread() is threading.main_thread():
            interrupts.check()
        since, limit_s = self._reads_since, self._source.timeout_s
        if limit_s and since is not None and time.perf_counter() - since > limit_s:
            self.why = self.why or self._stalled
            self._is_over = True

    @property
    def _stalled(self) -> str:
        return f"nothing came for {self._source.timeout_s:g} s (--source_timeout)"

    # --- in the decoder thread

    def _run(self) -> None:
        try:
            self._decode()
        except Exception as error:
            with self._changed:
                if not (self._is_over or self._is_closed):
                    self.why = _reason(error, self._stalled)
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _decode(self) -> None:
        with _opened(self._source) as container:
            if not container.streams.video:
                raise VideoFailed("there is no picture in it")
            stream = container.streams.video[0]
            is_file = is_film(self._source.name) or container.duration is not None
            if self._source.every is None:
                self.every = is_file
            # Frame threading delays output by one frame per thread: too much for live pictures.
            stream.thread_type = "AUTO" if self.every else "SLICE"
            paced = is_file and not self.every
            with self._changed:
                self._is_open = True
                self._changed.notify_all()
                while (paced or self.every) and not (self._is_begun or self._is_closed):
                    self._reads_since = None
                    self._changed.wait()
            for image in self._images(container.demux(stream)):
                if not self._put(self._frame(image, stream), paced):
                    break
            self._threads.look()  # the threads end with the container

    def _images(self, packets: Iterator[av.Packet[Any]]) -> Iterator[av.VideoFrame]:
        """Yield the images of all packets; count and report damaged ones."""
        # An optional dependency; `require_pyav` has checked for it.
        import av

        while not self._is_closed:
            before_s = time.thread_time()
            with self._changed:
                self._reads_since = time.perf_counter()
            packet = next(packets, None)
            with self._changed:
                self._reads_since = None
            if packet is None:
                return
            images: list[av.VideoFrame] = []
            try:
                images = packet.decode()
            except av.error.InvalidDataError as error:
                self._tell_damaged(error.strerror or one_line(error))
            if any(image.is_corrupt for image in images):
                self._tell_damaged("some of it is missing")
            self._own_s += time.thread_time() - before_s
            yield from images

    def _tell_damaged(self, why: str) -> None:
        self.damaged += 1
        if (now := time.perf_counter()) - self._warned_s >= _BETWEEN_LINES_S:
            self._warned_s = now
            log.warning("a frame after frame %d is damaged: %s", self.decoded, why)

    def _frame(self, image: av.VideoFrame, stream: av.VideoStream) -> Frame:
        now = time.perf_counter()
        stamp, rate = image.time, stream.average_rate
        if stamp is None:
            stamp = self.decoded / float(rate) if rate else now
        if self._first_s is None:
            self._first_s = stamp
        self.decoded += 1
        return Frame(self.decoded, max(0.0, stamp - self._first_s), now, image)

    def _put(self, frame: Frame, paced: bool) -> bool:
        """Hand the frame to the consumer; False: there is none any more.

        `paced`: wait for its presentation time.
        """
        with self._changed:
            if paced:
                frame.at_s = max(frame.at_s, self._begun_s + frame.seconds)
                while not self._is_closed and (left := frame.at_s - time.perf_counter()) > 0:
                    self._changed.wait(left)
            while self.every and self._waiting and not self._is_closed:
                self._changed.wait()
            self.dropped += self._waiting is not None and self._is_begun
            self._waiting = frame
            self._changed.notify_all()
            return not (self._is_closed or self._is_over)


def is_film(name: str) -> bool:
    """Whether a video is a file, which may be paused; stdin may be one, too."""
    if name == STDIN:
        with contextlib.suppress(OSError):
            return stat.S_ISREG(os.fstat(0).st_mode)
    return os.path.isfile(name)


def require_pyav() -> None:
    """Raise RunError if PyAV is missing."""
    try:
        import av  # noqa: F401
    except ImportError as error:
        needs = "--video needs PyAV (pip install tflite-opencl[video])"
        raise RunError(needs) from error


def _opened(source: VideoSource) -> av.container.InputContainer:
    """Open the video; raises PyAV's errors."""
    # An optional dependency that takes 0.3 s to import.
    import av

    options = dict(source.options)
    kind = options.pop("format", None)
    name = source.name
    if name == STDIN:
        name = "pipe:0"
    elif os.path.exists(name):
        if name.startswith("/dev/video") and kind is None:
            kind = "v4l2"
        else:
            name = f"file:{name}"  # otherwise text before a colon would be a protocol
    elif name.startswith("rtsp"):
        options = _STREAM | options
    limit = source.timeout_s or None
    return av.open(name, "r", format=kind, options=options, timeout=(limit, limit))


def _reason(error: Exception, stalled: str) -> str:
    """Return why a video ended; `stalled`: the text for PyAV's own timeout."""
    if type(error).__name__ == "ExitError":
        return stalled
    if isinstance(error, OneLineError):
        return str(error)
    # FFmpeg's errors are OSErrors or ValueErrors defined by PyAV.
    return getattr(error, "strerror", None) or one_line(error)
