# SPDX-License-Identifier: Apache-2.0
"""--watch: pictures that arrive in a folder, each once it is complete."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator

from tflite_opencl.pictures.find_pictures import picture_paths

_LOOK_S = 0.2  # polling interval: a picture unchanged between two polls is complete

log = logging.getLogger("label_image")


def watch_folder(folder: str) -> Iterator[str | None]:
    """Yield each existing, new or changed picture; None: none at the moment.

    Ends when the folder is gone. Only existing files are remembered.
    """
    # By path: modification time and size at the last poll, and when it was yielded.
    seen: dict[str, tuple[int, int]] = {}
    given: dict[str, tuple[int, int]] = {}
    while os.path.isdir(folder):
        before, seen = seen, {}
        for path in picture_paths([folder]):
            try:
                facts = os.stat(path)
            except OSError:  # deleted meanwhile
                continue
            seen[path] = facts.st_mtime_ns, facts.st_size
            if before.get(path) == seen[path] != given.get(path):
                given[path] = seen[path]
                yield path
        given = {path: at for path, at in given.items() if path in seen}
        yield None
        time.sleep(_LOOK_S)
    log.warning("the folder %s is gone", folder)
