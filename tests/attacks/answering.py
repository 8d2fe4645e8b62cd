# SPDX-License-Identifier: Apache-2.0
"""Generates tokens with a language model in this process; a new generator resumes after an error.

    python -m tests.attacks.answering '{"model": ..., "device": 0, "prompt": [1], "count": 20}'

It prints the tokens, and each error with the number of tokens before it.
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
    """Return the tokens that follow a prompt, and the errors, each with the tokens before it."""
    tokens, errors = list[int](), Errors()
    while len(tokens) < count and len(errors) < _MOST_ERRORS:
        try:
            with Generator(model, device, min_nodes_per_partition=1, tune="off") as generator:
                try:
                    for token in generator.generate([*prompt, *tokens], count - len(tokens)):
                        tokens.append(token)
                except CommandError as error:
                    errors.append((len(tokens), str(error)))
                    generator.logits([*prompt, *tokens])  # must fail: its state may be partial
                    errors.append((len(tokens), WENT_ON))
        except (CommandError, DelegateError) as error:
            errors.append((len(tokens), str(error)))
    return tokens, errors


if __name__ == "__main__":
    print(json.dumps(answered(**json.loads(sys.argv[1]))))
