# SPDX-License-Identifier: Apache-2.0
"""Logits -> the next token: the best one, or one that is drawn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Sampler:
    """How a token is chosen.

    Attributes:
        temperature: 0 takes the best token; 1 draws by the model's own shares; more is bolder.
        top_k: draw among that many of the best; 0: among all.
        seed: the same one draws the same again; None: each time others.
    Raises:
        ValueError: temperature or top_k is below 0, or no number.
    """

    temperature: float = 0.0
    top_k: int = 0
    seed: int | None = None
    _drawn: np.random.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the numbers."""
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
        # The best one is taken off before the division, which may be by very little.
        shares = np.exp((scores - scores.max()) / self.temperature)
        return int(self._drawn.choice(scores.size, p=shares / shares.sum()))
