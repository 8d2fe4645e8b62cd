# SPDX-License-Identifier: Apache-2.0
"""The same prompt on the device and on TFLite's CPU, side by side."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tflite_opencl.common.tables import columns, render, terminal_width
from tflite_opencl.generate.generator import Generator


@dataclass(slots=True)
class Measured:
    """What came of a prompt; times are filled in while tokens come."""

    path: str
    nodes: str
    load_s: float
    prompt_tokens: int
    first_token_s: float = 0.0  # after the load
    decode_s: float = 0.0  # of all tokens but the first
    prefill_s: float | None = None  # of the prompt once more
    tokens: list[int] = field(default_factory=list)

    @property
    def prefill_rate(self) -> float:
        """Give the prompt's tokens a second."""
        return self.prompt_tokens / max(self.prefill_s or self.first_token_s, 1e-9)

    @property
    def decode_rate(self) -> float:
        """Give the tokens a second after the first."""
        return max(0, len(self.tokens) - 1) / max(self.decode_s, 1e-9)

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            **dataclasses.asdict(self),
            "prefill_tokens_per_s": self.prefill_rate,
            "decode_tokens_per_s": self.decode_rate,
        }


def timed(
    generator: Generator, prompt: Sequence[int], **how: Any
) -> tuple[Measured, Iterator[int]]:
    """Return the times of what follows a prompt, and its tokens, of which each adds to them."""
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


def measured(generator: Generator, prompt: Sequence[int], **how: Any) -> Measured:
    """Return what comes of a prompt, with the time of its prefill alone."""
    found, tokens = timed(generator, prompt, **how)
    for _ in tokens:
        pass
    generator.reset()
    begun = time.perf_counter()
    generator.logits(prompt)
    found.prefill_s = time.perf_counter() - begun
    return found


def text_of(found: Sequence[Measured]) -> str:
    """Return the table."""
    heads = ("path", "nodes on the device", "load s", "first token s", "prefill tokens/s",
             "decode tokens/s", "tokens alike")  # fmt: skip
    rows = [
        (each.path, each.nodes, f"{each.load_s:.2f}", f"{each.first_token_s:.3f}",
         f"{each.prefill_rate:.0f}", f"{each.decode_rate:.1f}",
         f"{alike(found[-1].tokens, each.tokens)} of {len(each.tokens)}")
        for each in found
    ]  # fmt: skip
    return render(terminal_width(), columns(heads, rows, 2))


def alike(one: Sequence[int], other: Sequence[int]) -> int:
    """Count the tokens up to the first that differs."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
