# SPDX-License-Identifier: Apache-2.0
"""Frames as the pictures of a series: each is converted to the model's input."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from label_image.compare import Outcome
from label_image.video.frames import Frame, Frames
from label_image.video.preprocessor import Preprocessor


@dataclass(slots=True, eq=False)
class InputFrame:
    """A frame submitted to the model."""

    frame: Frame
    pixels: NDArray[np.uint8]  # (h, w, 3)


class Feed:
    """A video as the source of a series.

    Attributes:
        under_way: frames from `next_into` that are not finished, in order. cpu_s: of preparing.
    """

    processes = 0  # a thread of this process decodes

    def __init__(self, frames: Frames, preprocessor: Preprocessor, name: str) -> None:
        """`name`: display name of the video."""
        self._frames, self._preprocessor, self._name = frames, preprocessor, name
        self.under_way: deque[InputFrame] = deque()
        self.cpu_s = 0.0
        self.is_closed = False

    def next_into(self, tensor: NDArray[Any]) -> Outcome | None:
        """Fill the tensor with a frame; None: end of the video."""
        frame = self._frames.next()
        if frame is None:
            return None
        begin_s = time.thread_time()
        pixels = frame.pixels()
        tensor[...] = self._preprocessor.tensor_of(pixels).reshape(tensor.shape)
        self.cpu_s += time.thread_time() - begin_s
        self.under_way.append(InputFrame(frame, pixels))
        return Outcome(f"{self._name}#{frame.number}", size=pixels.shape[:2])

    def close(self) -> None:
        self.is_closed = True
        self._frames.close()
