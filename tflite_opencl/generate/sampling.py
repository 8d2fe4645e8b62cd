# SPDX-License-Identifier: Apache-2.0
"""Selects the next token from logits: the best one, or a random sample."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Sampler:
    """How tokens are selected.

    Attributes:
        temperature: 0 takes the best token; 1 samples the model's distribution; more flattens it.
        top_k: sample among this many of the best; 0: among all.
        seed: makes sampling reproducible; None: random.
    Raises:
        ValueError: temperature or top_k is negative or NaN.
    """

    temperature: float = 0.0
    top_k: int = 0
    seed: int | None = None
    _drawn: np.random.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Validate the fields."""
        if not 0 <= self.temperature < np.inf or self.top_k < 0:
            raise ValueError(f"{self}: temperature and top_k are 0 or more")
        object.__setattr__(self, "_drawn", np.random.default_rng(self.seed))

    def token(self, logits: NDArray[Any]) -> int:
        """Return the next token. Shapes: logits (vocabulary,)"""
        if self.temperature == 0:
            return int(logits.argmax())
        scores = logits.astype(np.float64)
        if 0 < self.top_k < scores.size:
            least = np.partition(scores, -self.top_k)[-self.top_k]
            scores = np.where(scores >= least, scores, -np.inf)
        # Subtract the maximum before dividing by a possibly tiny number.
        shares = np.exp((scores - scores.max()) / self.temperature)
        return int(self._drawn.choice(scores.size, p=shares / shares.sum()))
