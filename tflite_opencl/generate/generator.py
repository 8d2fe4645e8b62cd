# SPDX-License-Identifier: Apache-2.0
"""class Generator: tokens that follow tokens, by a .tflite file with prefill and decode."""

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
from tflite_opencl.generate.runner import Runner
from tflite_opencl.generate.sampling import Sampler
from tflite_opencl.generate.tokens import Message, Tokens
from tflite_opencl.generate.weights import KINDS

Array = NDArray[Any]


class Full(CommandError):
    """The caches have no room for a prompt; the text says how much there is."""


@dataclass(frozen=True, slots=True)
class State:
    """What a generator knows of the tokens so far; `caches`: by name, as far as they are filled."""

    tokens: tuple[int, ...]
    caches: Mapping[str, Array]


class Generator:
    """A language model, ready to go on from any tokens.

    What the caches hold is used again: of tokens that begin as those of the call before did, only
    the others are run.

    Attributes:
        text: turns text into tokens and back, and conversations into text: a Tokens.
        places: how many tokens there is room for.
        device, nodes, load_s: what runs it, how many nodes are on the device, and how long the
            start took.
    Raises:
        CommandError: the file is no such model, or does not run. DelegateError: no device.
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
        """Open a .tflite file, with tokenizer.json beside it, or what is made of a .gguf file.

        None: the default model, where its weights are installed or were downloaded. `weights`,
        `places`: how matrices of what is made are stored, "q4_1" or "int8", and for how many tokens
        it has room.
        `device`, `options`, `keywords`: as of OpenCLDelegate. `cpu_kernels`: run TFLite's own,
        "auto" (with XNNPACK), "builtin" or "reference", and no delegate. `threads`: of those.
        """
        told = None if cpu_kernels else options or Options(device, **keywords)
        name = None if path is None else os.fspath(path)
        if name is None or name.endswith(".gguf"):
            name = str(model_of_gguf(name, weights, places))
        if told is not None and told.in_child_first:
            start_early()
        self.text = Tokens(Path(name).parent)
        runner = Runner(name, told, cpu_kernels or "builtin", threads)
        self._form, self._close = runner.form, runner.close
        self.places = runner.form.places
        self.device, self.nodes, self.load_s = runner.device, runner.nodes, runner.load_s
        self._held: list[int] = []  # the tokens whose keys and values are in the caches

    def logits(self, tokens: Sequence[int]) -> Array:
        """Return the logits of what follows these tokens: all of them, from the first on.

        Shapes: -> (vocabulary,). Raises: ValueError: there is no token, or one that the model has
            not. Full: there is no room for so many. CommandError: the run fails.
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
        del self._held[known:]  # what comes behind is not known if the run fails
        found = self._form.run(new, known)
        self._held = ahead
        return found

    def _known(self, tokens: list[int]) -> int:
        """Count the tokens that the caches hold; the last one is run, as its logits are wanted."""
        most = min(len(self._held), len(tokens) - 1)
        if self._held[:most] == tokens[:most]:  # as it is at nearly each token
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
        """Yield the tokens that follow, up to the end of an answer, `count`, or the last place.

        `temperature`: 0 takes the best token each time; more draws, among `top_k` of the best (0:
        all). `seed`: the same one draws the same again.
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
        """Yield the text that answers a conversation, or one prompt, piece by piece.

        `messages`: {"role": "system", "user" or "assistant", "content": text} each. `how`: as of
        `generate`. Raises: as `generate`.
        """
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        stream = self.text.stream()
        for token in self.generate(self.text.conversation(messages), **how):
            if piece := stream(token):
                yield piece

    def state(self) -> State:
        """Return what is known of the tokens so far, for `set_state` of a generator of this file.

        Raises: CommandError: the file has no graph for that.
        """
        return State(tuple(self._held), self._form.save(len(self._held)))

    def set_state(self, state: State) -> None:
        """Go on from there. Raises: ValueError: it is of another model."""
        self._held = []
        self._form.restore(state.caches)
        self._held = list(state.tokens)

    def reset(self) -> None:
        """Forget all tokens: what comes is computed anew."""
        self._held = []

    def close(self) -> None:
        """Give the device's memory back; later runs fail."""
        self._close()

    def __enter__(self) -> Generator:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
