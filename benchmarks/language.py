# SPDX-License-Identifier: Apache-2.0
"""A language model on the device, on TFLite's CPU and in llama.cpp, with the same weights.

Each contender is a process; runs are interleaved. Each gets the same prompt, and continues with
the best tokens by its own logits.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.language_peer import NAME
from delegate import Options
from delegate.guard.children.child import command_of
from tflite_opencl.console.errors import CommandError
from tflite_opencl.console.tables import markdown_table
from tflite_opencl.generate.compare import PathCommand, compared, own_path, rows_of
from tflite_opencl.generate.maker import PLACES, model_of_gguf
from tflite_opencl.generate.tokens import Tokens
from tflite_opencl.generate.weights import KINDS

PROMPT = "What is gravity?"
ROUNDS = 9  # interleaved rounds, whose medians count


def language_model(
    gguf: str, count: int, threads: int, options: Options, tell: Callable[[str], None]
) -> str:
    """Return a table in Markdown: a prompt's tokens, and `count` that follow.

    `tell`: gets progress messages. Raises: CommandError: the file cannot be used.
    """
    paths = {}
    for kind in KINDS:
        model = model_of_gguf(gguf, kind, PLACES)
        paths[f"OpenCL, {kind}"] = own_path(str(model), threads, options)
        paths[f"XNNPACK, {kind}"] = own_path(str(model), threads, None)
    words = {"gguf": gguf, "folder": str(model.parent), "places": PLACES, "threads": threads}
    paths[NAME] = PathCommand(command_of("benchmarks.language_peer"), words)
    tokens = Tokens(model.parent).conversation([{"role": "user", "content": PROMPT}])
    missing: list[str] = []

    def failed(name: str, error: CommandError) -> None:
        missing.append(f"without {name}: {error}")

    result = compared(paths, {"prompt": tokens, "count": count}, tell, failed, ROUNDS)
    if not result:
        return "\n".join(missing)
    rows = rows_of([*result.values()])
    heads = ["path", *(name for name, _ in rows)]
    lines = [[name, *(cells[at] for _, cells in rows)] for at, name in enumerate(result)]
    begin = f"{len(tokens)} tokens, and {count} that follow"
    return "\n".join([begin, "", markdown_table(heads, lines), *missing])
