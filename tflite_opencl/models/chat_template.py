# SPDX-License-Identifier: Apache-2.0
"""Renders a model's chat template, untrusted code, in a child process with resource limits.

`python -m tflite_opencl.models.chat_template` is the child. It is in this package because
importing `generate` would import TFLite, which takes a second.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from delegate.guard.children.channel import serve
from delegate.guard.children.child import ask_once
from delegate.guard.children.environment import resource_usage
from tflite_opencl.console.errors import CommandError, one_line

_SECONDS = 5  # a real one takes milliseconds
_MOST_BYTES = 512 << 20  # memory limit
_MOST_LETTERS = 1 << 24  # of the rendered text


def rendered(template: str, values: Mapping[str, Any]) -> str:
    """Return the rendered template for these values.

    Raises: CommandError: it is invalid, does not terminate, or exceeds a limit.
    """
    module = "tflite_opencl.models.chat_template"
    answers, ended = ask_once(module, _SECONDS, template=template, values=dict(values))
    if not answers:
        raise CommandError(f"the chat template cannot be used: it {ended}")
    text, error = answers[0]
    if error:
        raise CommandError(f"the chat template cannot be used: {error}")
    return str(text)


def _answers(template: str, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the text, or why there is none."""
    # NumPy has reserved address space per thread: more than the limit on 16 cores.
    limit = resource_usage().address_bytes + _MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    try:
        # Importing takes a tenth of a second; the parent process does not need it.
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        pieces, count = [], 0
        for piece in made.from_string(template).generate(**values):
            pieces.append(piece)
            if (count := count + len(piece)) > _MOST_LETTERS:
                raise ValueError(f"it makes more than {_MOST_LETTERS} letters")
        yield "".join(pieces), ""
    except Exception as error:  # templates may raise anything
        yield "", one_line(error)


if __name__ == "__main__":
    sys.exit(serve(_answers))
