# SPDX-License-Identifier: Apache-2.0
"""class Generator: generates tokens with a .tflite file that has prefill and decode."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from delegate import Options
from delegate.inspect import start_early
from tflite_opencl.console.errors import CommandError
from tflite_opencl.generate.maker import PLACES, model_of_gguf
from tflite_opencl.generate.runner import LlmExecutor
from tflite_opencl.generate.sampling import Sampler
from tflite_opencl.generate.tokens import Message, Tokens
from tflite_opencl.generate.weights import KINDS

Array = NDArray[Any]


class Full(CommandError):
    """The caches have no room for a prompt; the text says how much there is."""


@dataclass(frozen=True, slots=True)
class GeneratorState:
    """A generator's state after some tokens; `caches`: by name, as far as filled."""

    tokens: tuple[int, ...]
    caches: Mapping[str, Array]


class Generator:
    """A language model that continues any sequence of tokens.

    Caches are reused: tokens that share a prefix with the previous call's are not run
    again.

    Attributes:
        text: a Tokens, which encodes and decodes text and formats conversations.
        places: capacity in tokens.
        device, nodes, load_s: what runs it, how many nodes are on the device, and the
            start-up time.
    Raises:
        CommandError: the file is not such a model, or does not run. DelegateError: no device.
        RuntimeMissing: there is no TFLite.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        device: str | int | None = None,
        *,
        weights: str = KINDS[0],
        places: int = PLACES,
        cpu_kernels: str | None = None,
        threads: int | None = None,
        options: Options | None = None,
        **keywords: Any,
    ) -> None:
        """Open a .tflite file, with tokenizer.json next to it, or a converted .gguf file.

        None: the default model, if its weights are installed or downloaded. `weights`,
        `places`: for converted models, the matrices' format, "q4_1" or "int8", and the capacity in
        tokens.
        `device`, `options`, `keywords`: as for OpenCLDelegate. `cpu_kernels`: use TFLite's own,
        "auto" (with XNNPACK), "builtin" or "reference", and no delegate. `threads`: of those.
        """
        told = None if cpu_kernels else options or Options(device, **keywords)
        name = None if path is None else os.fspath(path)
        if name is None or name.endswith(".gguf"):
            name = str(model_of_gguf(name, weights, places))
        if told is not None and told.in_child_first:
            start_early()
        self.text = Tokens(Path(name).parent)
        runner = LlmExecutor(name, told, cpu_kernels or "builtin", threads)
        self._form, self._close = runner.form, runner.close
        self.places = runner.form.places
        self.device, self.nodes, self.load_s = runner.device, runner.nodes, runner.load_s
        self._held: list[int] = []  # tokens whose keys and values are cached

    def logits(self, tokens: Sequence[int]) -> Array:
        """Return the logits of the next token; `tokens`: all tokens from the start.

        Shapes: -> (vocabulary,). Raises: ValueError: no tokens, or one outside of the
            vocabulary. Full: the caches are too small. CommandError: the run fails.
        """
        ahead = list(tokens)
        if not ahead:
            raise ValueError("nothing can follow no tokens: one at least is needed")
        known = self._known(ahead)
        new = ahead[known:]
        if not 0 <= min(new) <= max(new) < self._form.vocabulary:
            raise ValueError(f"tokens are from 0 to {self._form.vocabulary - 1}")
        if len(ahead) > self.places:
            raise Full(f"there is room for {self.places} tokens, and these are {len(ahead)}")
        del self._held[known:]  # the caches are undefined from here on if the run fails
        found = self._form.run(new, known)
        self._held = ahead
        return found

    def _known(self, tokens: list[int]) -> int:
        """Count cached tokens; the last one is always run, to get its logits."""
        most = min(len(self._held), len(tokens) - 1)
        if self._held[:most] == tokens[:most]:  # the usual case
            return most
        return next(at for at in range(most) if self._held[at] != tokens[at])

    def generate(
        self,
        tokens: Sequence[int],
        count: int | None = None,
        temperature: float = 0.0,
        top_k: int = 0,
        seed: int | None = None,
    ) -> Iterator[int]:
        """Yield the next tokens until the end of an answer, `count`, or the caches' capacity.

        `temperature`: 0 always takes the best token; otherwise samples among the `top_k` best (0:
        all). `seed`: makes sampling reproducible.
        Raises: as `logits`, and ValueError: temperature or top_k is below 0.
        """
        sampler = Sampler(temperature, top_k, seed)
        so_far = list(tokens)
        made = 0
        while count is None or made < count:
            token = sampler.token(self.logits(so_far))
            if token in self.text.ends:
                return
            yield token
            made += 1
            if len(so_far) == self.places:
                return
            so_far.append(token)

    def answer(self, messages: Sequence[Message] | str, **how: Any) -> Iterator[str]:
        """Yield the text that answers a conversation, or a single prompt, piece by piece.

        `messages`: {"role": "system", "user" or "assistant", "content": text} each. `how`: as for
        `generate`. Raises: as `generate`.
        """
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        stream = self.text.stream()
        for token in self.generate(self.text.conversation(messages), **how):
            if piece := stream(token):
                yield piece

    def state(self) -> GeneratorState:
        """Return the state so far, for `set_state` of a generator with the same file.

        Raises: CommandError: the file has no graph for it.
        """
        return GeneratorState(tuple(self._held), self._form.save(len(self._held)))

    def set_state(self, state: GeneratorState) -> None:
        """Continue from a state. Raises: ValueError: it is of another model."""
        self._held = []
        self._form.restore(state.caches)
        self._held = list(state.tokens)

    def reset(self) -> None:
        """Discard all tokens and caches."""
        self._held = []

    def close(self) -> None:
        """Release the device's memory; later runs fail."""
        self._close()

    def __enter__(self) -> Generator:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
