# SPDX-License-Identifier: Apache-2.0
"""The tokens and times of an answer, and of a turn in a comparison."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tflite_opencl.generate.generator import Generator
from tflite_opencl.timing.machine import peak_bytes
from tflite_opencl.timing.timing import Load, cores

_PLACES = (64, 511)  # positions where a comparison times a token; at most the last one
_TOKENS = 8  # timed at each


@dataclass(slots=True)
class Measured:
    """The result for a prompt; times are updated while tokens arrive.

    Attributes:
        first_token_s: after the load. decode_s: of all tokens but the first.
        prefill_s, decode_rates, cpu_load, gpu_load, peak_bytes: of a comparison. The time of a
            repeated prefill; tokens per second at positions; average busy cores and GPU engines
            during the answer, None: not reported; and the process's peak memory.
    """

    path: str
    nodes: str
    load_s: float
    prompt_tokens: int
    first_token_s: float = 0.0
    decode_s: float = 0.0
    tokens: list[int] = field(default_factory=list)
    prefill_s: float | None = None
    decode_rates: dict[str, float] = field(default_factory=dict)
    cpu_load: float | None = None
    gpu_load: float | None = None
    peak_bytes: int | None = None

    @property
    def prefill_rate(self) -> float:
        """The prompt's tokens per second."""
        return self.prompt_tokens / max(self.prefill_s or self.first_token_s, 1e-9)

    @property
    def decode_rate(self) -> float:
        """Tokens per second after the first."""
        return max(0, len(self.tokens) - 1) / max(self.decode_s, 1e-9)

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            **dataclasses.asdict(self),
            "prefill_tokens_per_s": self.prefill_rate,
            "decode_tokens_per_s": self.decode_rate,
        }


def timed(
    generator: Generator, prompt: Sequence[int], **how: Any
) -> tuple[Measured, Iterator[int]]:
    """Return the times after a prompt, and its tokens, which update them as they are consumed."""
    found = Measured(generator.device, generator.nodes, generator.load_s, len(prompt))

    def tokens() -> Iterator[int]:
        before = begun = time.perf_counter()
        for token in generator.generate(prompt, **how):
            now = time.perf_counter()
            if found.tokens:
                found.decode_s += now - before
            else:
                found.first_token_s = now - begun
            found.tokens.append(token)
            yield token
            before = time.perf_counter()

    return found, tokens()


def turn(generator: Generator, prompt: Sequence[int], **how: Any) -> Measured:
    """Return the result for a prompt from a cold start, with all measurements of a comparison."""
    generator.reset()
    load, begun = Load(), time.perf_counter()
    found, tokens = timed(generator, prompt, **how)
    for _ in tokens:
        pass
    seconds = max(time.perf_counter() - begun, 1e-9)
    cpu_s, gpu_s = load.until_now()
    found.cpu_load, found.gpu_load = cores(cpu_s, seconds), gpu_s and gpu_s / seconds
    for place in sorted({min(place, generator.places - 1) for place in _PLACES}):
        found.decode_rates[str(place)] = _rate(generator, prompt, place)
    found.peak_bytes = peak_bytes()
    return found


def _rate(generator: Generator, prompt: Sequence[int], place: int) -> float:
    """Return the tokens per second at a fixed position."""
    ahead = (list(prompt) * (place // len(prompt) + 1))[: place + 1]
    generator.logits(ahead)  # from now on all but the last are cached
    begun = time.perf_counter()
    for _ in range(_TOKENS):
        generator.logits(ahead)
    return _TOKENS / max(time.perf_counter() - begun, 1e-9)
