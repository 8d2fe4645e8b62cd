# SPDX-License-Identifier: Apache-2.0
"""llama.cpp instead of a .tflite file: python -m benchmarks.language_peer.

It has the protocol of tflite_opencl/generate/path_child.py. All but places and threads are
llama-cpp-python's defaults. There is no other peer: tinygrad 0.14's wheel lacks a part of its llm.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.measure import Skipped, imported
from tflite_opencl.console.errors import CommandError
from tflite_opencl.generate import path_child
from tflite_opencl.generate.forms import Array
from tflite_opencl.generate.generator import Generator
from tflite_opencl.generate.tokens import Tokens

NAME = "llama.cpp"


class LlamaCpp(Generator):
    """A generator that runs on llama.cpp."""

    def __init__(self, gguf: str, folder: str, places: int, threads: int) -> None:
        """Open a GGUF file, whose tokenizer.json lies in `folder`.

        Raises: CommandError: llama.cpp is not installed, or refuses the file.
        """
        self.text, begun = Tokens(Path(folder)), time.perf_counter()
        try:
            self._form = _Form(gguf, places, threads)
        except (Skipped, ValueError) as error:
            raise CommandError(str(error)) from error
        self._close = self._form.close
        self.places, self.device, self.nodes = places, NAME, ""
        self.load_s = time.perf_counter() - begun
        self._held = []


class _Form:
    """The KV cache, and runs of tokens."""

    def __init__(self, gguf: str, places: int, threads: int) -> None:
        self._library = imported("llama_cpp", "llama-cpp-python")
        how = {"n_ctx": places, "n_threads": threads, "n_threads_batch": threads}
        self._made = self._library.Llama(gguf, **how, verbose=False)
        self.close = self._made.close
        self.places, self.vocabulary = places, self._made.n_vocab()

    def run(self, tokens: Sequence[int], place: int) -> Array:
        """Shapes: -> (vocabulary,)"""
        self._made.n_tokens = place
        self._made.eval(tokens)
        logits = self._library.llama_get_logits_ith(self._made.ctx, -1)
        return np.ctypeslib.as_array(logits, (self.vocabulary,))

    def save(self, count: int) -> dict[str, Array]:
        """Say that no benchmark needs it."""
        raise NotImplementedError

    def restore(self, state: Mapping[str, Array]) -> None:
        """Say that no benchmark needs it."""
        raise NotImplementedError


if __name__ == "__main__":
    sys.exit(path_child.main(LlamaCpp))
