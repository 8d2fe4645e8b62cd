# SPDX-License-Identifier: Apache-2.0
"""`POST /classify`: decodes pictures to a model's inputs, and outputs to label_image's JSON.

Pictures are decoded in child processes: malicious ones crash a child, not the service.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from delegate.inspect import Graph
from label_image.decoders import Decoders
from label_image.picture_model import PictureModel
from label_image.result import Result
from tflite_opencl.console.errors import OneLineError
from tflite_opencl.serve.tensors import Arrays


class Pictures:
    """A model with a picture input."""

    def __init__(
        self,
        path: str,
        labels: str | None,
        task: str | None,
        processes: int,
        graph: Graph | None = None,
    ) -> None:
        """`processes`: for decoding. `graph`: of the file, with fixed sizes; None: the first.

        Raises: RunError: no input takes a picture, or the labels cannot be read. ModelError.
        """
        self._picture_model = PictureModel(path, labels, task, graph=graph)
        inputs = self._picture_model.meaning.view.graph.inputs
        self._others = [np.zeros(_shape(each.shape), each.dtype) for each in inputs]
        self._fed = self._picture_model.feeds.main
        self._kept = threading.local()  # one decoder per thread
        self._all: list[_PictureDecoder] = []
        self.pool = ThreadPoolExecutor(processes, "decoding")

    def inputs(self, content: bytes) -> tuple[Arrays, tuple[int, int]]:
        """Return a picture as the model's inputs, and its height and width; other inputs are zeros.

        Called in a thread of `pool`.
        Raises: OneLineError: not a picture; the text is one line.
        """
        decoder = getattr(self._kept, "decoder", None)
        if decoder is None:
            decoder = self._kept.decoder = _PictureDecoder(self._picture_model)
            self._all.append(decoder)
        tensor = np.empty_like(self._others[self._fed])
        size = decoder.decode(content, tensor)
        return [tensor if n == self._fed else each for n, each in enumerate(self._others)], size

    def entry(self, outputs: Arrays, size: tuple[int, int], most: int) -> dict[str, Any]:
        """Return the results of one picture, as in label_image's JSON.

        `most`: number of classes.
        """
        tensors = self._picture_model.meaning.view.graph.outputs
        own = [
            array if tensor.shape[:1] == (1,) else array[0]
            for array, tensor in zip(outputs, tensors, strict=True)
        ]
        return Result(self._picture_model.meaning, own, size, most).entry(None)

    def close(self) -> None:
        """End the decoders."""
        for decoder in self._all:
            decoder.close()
        self.pool.shutdown()


class _PictureDecoder:
    """A decoder process, which gets the picture as an unlinked file."""

    def __init__(self, picture_model: PictureModel) -> None:
        self._paths: deque[str] = deque()
        self._format = picture_model.meaning.format
        self._decoders = self._made()

    def decode(self, content: bytes, tensor: np.ndarray[Any, Any]) -> tuple[int, int]:
        """Fill the tensor, and return the picture's height and width; raises OneLineError."""
        with os.fdopen(os.memfd_create("picture"), "wb", buffering=0) as file:
            file.write(content)
            path = f"/proc/{os.getpid()}/fd/{file.fileno()}"
            self._paths.append(path)
            try:
                outcome = self._decoders.next_into(tensor)
            except OneLineError as error:
                self.close()
                self._paths.clear()
                self._decoders = self._made()
                raise OneLineError(str(error).replace(path, "the picture")) from error
        assert outcome is not None
        if outcome.error or outcome.size is None:
            raise OneLineError(outcome.error.replace(f"picture {path}", "the picture"))
        height, width = outcome.size
        return height, width

    def close(self) -> None:
        self._decoders.close()

    def _made(self) -> Decoders:
        return Decoders(self._waiting(), self._format, processes=1)

    def _waiting(self) -> Iterator[str | None]:
        while True:
            yield self._paths.popleft() if self._paths else None


def _shape(own: tuple[int, ...]) -> tuple[int, ...]:
    return own if own[:1] == (1,) else (1, *own)
