# SPDX-License-Identifier: Apache-2.0
"""--watch: the pictures that come into a folder, each once it is whole."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator

from tflite_opencl.pictures.find_pictures import picture_paths

_LOOK_S = 0.2  # between two looks: a picture that is the same in both is whole

log = logging.getLogger("label_image")


def watch_folder(folder: str) -> Iterator[str | None]:
    """Yield each picture that is there or comes, and again when it is another; None: none now.

    It ends when the folder is gone. What is remembered is of the files that are there.
    """
    # By path: when a picture was written, and its bytes; at the last look, and when it was yielded.
    seen: dict[str, tuple[int, int]] = {}
    given: dict[str, tuple[int, int]] = {}
    while os.path.isdir(folder):
        before, seen = seen, {}
        for path in picture_paths([folder]):
            try:
                facts = os.stat(path)
            except OSError:  # it is gone again
                continue
            seen[path] = facts.st_mtime_ns, facts.st_size
            if before.get(path) == seen[path] != given.get(path):
                given[path] = seen[path]
                yield path
        given = {path: at for path, at in given.items() if path in seen}
        yield None
        time.sleep(_LOOK_S)
    log.warning("the folder %s is gone", folder)
