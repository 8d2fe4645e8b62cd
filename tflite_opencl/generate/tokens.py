# SPDX-License-Identifier: Apache-2.0
"""Tokenisation and chat formatting, configured by the files next to a model.

tokenizer.json and tokenizer_config.json have Hugging Face's format.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tflite_opencl.console.errors import CommandError, cannot_read, one_line
from tflite_opencl.generate.llama import Llama
from tflite_opencl.models.chat_template import rendered

FILE, CONFIG_FILE = "tokenizer.json", "tokenizer_config.json"
Message = Mapping[str, str]  # "role": "system", "user" or "assistant"; "content"
MOST_LETTERS = 1 << 24  # of a text: far more than any model's capacity
_MOST_TEMPLATE = 1 << 20
_CONTROL, _USERS = 3, 4  # GGUF token types that are matched literally in a text
_DEFAULT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class Tokens:
    """Encodes text to a model's tokens, and decodes it.

    Attributes:
        ends: the tokens that end an answer.
    """

    def __init__(self, folder: Path) -> None:
        """Read both files. Raises: CommandError: one is missing or damaged."""
        tokenizers = _tokenizers()
        path = folder / FILE
        try:
            self._own = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
            config = self._config(folder / CONFIG_FILE)
        except OSError as error:
            raise cannot_read(path, error) from error
        except Exception as error:  # tokenizers has no exception type of its own
            raise CommandError(f"{path} is no tokenizer: {one_line(error)}") from error
        self._new_stream = tokenizers.decoders.DecodeStream
        self._template = _template(config.get("chat_template") or _DEFAULT_TEMPLATE)
        self._names = {name: _text(config.get(name)) for name in ("bos_token", "eos_token")}
        self._begins = bool(config.get("add_bos_token"))
        ends = (self._own.token_to_id(name) for name in (self._names["eos_token"], "<|im_end|>"))
        self.ends = frozenset(end for end in ends if end is not None)

    @property
    def count(self) -> int:
        """The vocabulary's size."""
        return int(self._own.get_vocab_size())

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text; invalid Unicode becomes question marks.

        Raises: CommandError: it is too long for any model.
        """
        if len(text) > MOST_LETTERS:
            raise CommandError(f"the text has more than {MOST_LETTERS} letters")
        clean = text.encode("utf-8", "replace").decode("utf-8")
        found = list(self._own.encode(clean, add_special_tokens=False).ids)
        first = self._own.token_to_id(self._names["bos_token"]) if self._begins else None
        return found if first is None or found[:1] == [first] else [first, *found]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without special tokens."""
        return str(self._own.decode(list(tokens), skip_special_tokens=True))

    def stream(self) -> Callable[[int], str]:
        """Return an incremental decoder: takes tokens, and returns text once it is complete."""
        own = self._new_stream(skip_special_tokens=True)
        return lambda token: own.step(self._own, token) or ""

    def conversation(self, messages: Sequence[Message]) -> list[int]:
        """Return the tokens of a conversation, up to the model's answer.

        Raises: CommandError: the template cannot be used.
        """
        if importlib.util.find_spec("jinja2") is None:
            raise _missing("jinja2")
        values = {"messages": [*map(dict, messages)], "add_generation_prompt": True}
        text = rendered(self._template, values | self._names)
        return self.encode(text)

    @staticmethod
    def _config(path: Path) -> dict[str, Any]:
        if not path.is_file():
            return {}
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise TypeError(f"{path.name} is no table")
        return found


def _template(found: Any) -> str:
    if not isinstance(found, str) or len(found) > _MOST_TEMPLATE:
        raise CommandError(f"the chat template is no text of at most {_MOST_TEMPLATE} letters")
    return found


def files_of(llama: Llama) -> dict[str, bytes]:
    """Return the contents of both files, by name, from a GGUF file.

    Raises: CommandError: its tokenizer is unsupported or damaged.
    """
    try:
        tokens = llama.field("tokenizer.ggml.tokens")
        own = _tokenizer(llama, tokens)
        config = {
            "add_bos_token": bool(llama.field("tokenizer.ggml.add_bos_token", False)),
            "bos_token": tokens[llama.whole("tokenizer.ggml.bos_token_id", 0)],
            "eos_token": tokens[llama.whole("tokenizer.ggml.eos_token_id")],
            "chat_template": _template(llama.field("tokenizer.chat_template", _DEFAULT_TEMPLATE)),
        }
    except CommandError:
        raise
    except Exception as error:  # tokenizers has no exception type of its own
        raise CommandError(
            f"{llama.path} has a tokenizer that cannot be used: {one_line(error)}"
        ) from error
    return {
        FILE: own.to_str().encode(),
        CONFIG_FILE: json.dumps(config, indent=2, ensure_ascii=False).encode(),
    }


def _tokenizer(llama: Llama, tokens: Sequence[str]) -> Any:
    """Return the tokenizer of a GGUF file: byte-level BPE, as in GPT-2."""
    library = _tokenizers()
    kind, cut = llama.field("tokenizer.ggml.model"), llama.field("tokenizer.ggml.pre", "default")
    cuts = library.pre_tokenizers
    before = [cuts.ByteLevel(add_prefix_space=False, use_regex=True)]
    if cut == "smollm":
        before.insert(0, cuts.Digits(individual_digits=True))
    elif cut not in ("default", "gpt-2"):
        raise ValueError(f"it cuts texts as {cut!r} does, which is not known")
    if kind != "gpt2":
        raise ValueError(f"it is of the kind {kind!r}, and only 'gpt2' is known")
    merges = [tuple(merge.split(" ")) for merge in llama.field("tokenizer.ggml.merges")]
    numbers = {token: number for number, token in enumerate(tokens)}
    made = library.Tokenizer(library.models.BPE(vocab=numbers, merges=merges))
    made.pre_tokenizer = cuts.Sequence(before)
    made.decoder = library.decoders.ByteLevel()
    kinds = llama.field("tokenizer.ggml.token_type")
    made.add_special_tokens(
        [
            library.AddedToken(token, special=kind == _CONTROL)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind in (_CONTROL, _USERS)
        ]
    )
    return made


def _tokenizers() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise _missing("tokenizers") from error
    return tokenizers


def _missing(package: str) -> CommandError:
    return CommandError(f"{package} is not installed: pip install 'tflite-opencl[generate]'")


def _text(token: Any) -> str:
    """Return a token's text: a string, or an entry of a table."""
    return str(token.get("content", "") if isinstance(token, dict) else token or "")
