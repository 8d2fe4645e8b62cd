# SPDX-License-Identifier: Apache-2.0
"""--output_video: the annotated frames, as a video with the same time stamps."""

from __future__ import annotations

import logging
from fractions import Fraction
from types import TracebackType
from typing import TextIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from label_image.console import writing
from label_image.prepare import PreparedRun
from tflite_opencl.console.errors import RunError
from tflite_opencl.console.start import lead_nowhere

_PER_SECOND = 90_000  # time base of time stamps
_H264 = "libx264"
_OPTIONS = {"preset": "veryfast", "tune": "zerolatency"}
# Fragments that can be played independently, in case the writer is killed.
_PIECES = {"movflags": "frag_keyframe+empty_moov+default_base_moof"}
_BY_PIECES = ("mp4", "mov")

log = logging.getLogger("label_image")


class _Stdout:
    """stdout as FFmpeg's file. Discards data after an error, which FFmpeg would report differently.

    Attributes:
        error: the error raised by writing.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        if self.error is None:
            try:
                self._out.buffer.write(data)
                self._out.buffer.flush()
            except OSError as error:
                self.error = error
                lead_nowhere(self._out)
        return len(data)


class VideoFile:
    """A video written frame by frame, as a context manager; "-" is stdout, as Matroska.

    Its size is the first frame's. All methods raise RunError if it cannot be written.
    """

    def __init__(self, path: str, out: TextIO) -> None:
        # An optional dependency; frames.py has checked for it.
        import av

        self._path, self._av = path, av
        self._stdout = _Stdout(out) if path == "-" else None
        # PyAV 14 refuses subclasses of str, as the flags' output paths are.
        file, kind = (self._stdout, "matroska") if self._stdout else (str(path), None)
        with writing(path):
            try:
                container = av.open(file, "w", format=kind)
                if container.format.name in _BY_PIECES:
                    container.close()
                    container = av.open(file, "w", options=_PIECES)
            except ValueError:
                raise RunError(f"cannot write {path}: FFmpeg knows no such format") from None
        self._container = container
        self._stream: av.VideoStream | None = None
        self._size = (0, 0)  # width and height
        self._last = -1
        self._announced = (0, 0)

    def __enter__(self) -> VideoFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        if self._stream is None:
            return  # a video without frames cannot be closed
        with writing(self._path):
            self._container.mux(self._stream.encode())
            self._container.close()

    @property
    def is_read(self) -> bool:
        """Whether the output still has a reader; not so after `| head`."""
        return self._stdout is None or not isinstance(self._stdout.error, BrokenPipeError)

    def add(self, image: Image.Image, seconds: float) -> None:
        """Write a frame with this presentation time."""
        if self._stream is None:
            self._begin(*image.size)
        assert self._stream is not None
        if image.size != self._size:
            if self._announced not in (image.size, self._size) or self._announced == (0, 0):
                text = "frames of %d x %d pixels are resized to %d x %d in %s"
                log.warning(text, *image.size, *self._size, self._path)
            self._announced = image.size
            image = image.resize(self._size)
        stamp = max(round(seconds * _PER_SECOND), self._last + 1)
        self._last = stamp
        frame = self._av.VideoFrame.from_ndarray(_even(np.asarray(image)), format="rgb24")
        frame.pts, frame.time_base = stamp, Fraction(1, _PER_SECOND)
        with writing(self._path):
            self._container.mux(self._stream.encode(frame))
            if self._stdout is not None and self._stdout.error is not None and self.is_read:
                raise self._stdout.error

    def _begin(self, width: int, height: int) -> None:
        is_h264 = _H264 in self._av.codecs_available
        is_h264 = is_h264 and "h264" in self._container.supported_codecs
        codec = _H264 if is_h264 else self._container.default_video_codec
        with writing(self._path):
            stream = self._container.add_stream(
                codec, rate=30, options=_OPTIONS if is_h264 else None
            )
            self._size = width, height
            stream.width, stream.height = width - width % 2, height - height % 2
            stream.pix_fmt = (
                "yuv420p" if is_h264 else stream.codec_context.codec.video_formats[0].name
            )
            # Frames have time stamps. One thread, so that `showing` covers the whole time.
            stream.codec_context.time_base = Fraction(1, _PER_SECOND)
            stream.codec_context.thread_count = 1
        self._stream = stream


def check_output(prepared: PreparedRun) -> None:
    """Raise RunError if --output_video is given for a model whose results cannot be drawn."""
    if prepared.settings.output_video is not None and prepared.meaning.head is None:
        raise RunError(f"--output_video: what {prepared.model.name} gives cannot be drawn")


def _even(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the pixels cropped to an even size, as H.264 requires."""
    height, width = pixels.shape[:2]
    return np.ascontiguousarray(pixels[: height - height % 2, : width - width % 2])
