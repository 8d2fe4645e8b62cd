# SPDX-License-Identifier: Apache-2.0
"""Lets a language model answer in this process, after an error by a new generator.

    python -m tests.attacks.answering '{"model": ..., "device": 0, "prompt": [1], "count": 20}'

It prints the tokens, and each error with how many tokens there were before.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from delegate import DelegateError
from tflite_opencl.console.errors import CommandError
from tflite_opencl.generate import Generator

_MOST_ERRORS = 3
WENT_ON = "it went on"
Errors = list[tuple[int, str]]


def answered(
    model: str, device: int, prompt: Sequence[int], count: int
) -> tuple[list[int], Errors]:
    """Return the tokens that follow a prompt, and the errors on the way."""
    made, errors = list[int](), Errors()
    while len(made) < count and len(errors) < _MOST_ERRORS:
        try:
            with Generator(model, device, min_nodes_per_partition=1, tune="off") as generator:
                try:
                    for token in generator.generate([*prompt, *made], count - len(made)):
                        made.append(token)
                except CommandError as error:
                    errors.append((len(made), str(error)))
                    generator.logits([*prompt, *made])  # which may have half of its state
                    errors.append((len(made), WENT_ON))
        except (CommandError, DelegateError) as error:
            errors.append((len(made), str(error)))
    return made, errors


if __name__ == "__main__":
    print(json.dumps(answered(**json.loads(sys.argv[1]))))
