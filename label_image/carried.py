# SPDX-License-Identifier: Apache-2.0
"""What a model's file carries beside its graph: labels, normalisation, thresholds, its task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Carried:
    """What is known of a model by its own words; all empty where it says nothing."""

    outputs: Sequence[str] = ()  # what it calls each output
    threshold: float | None = None  # scores below are of no use
