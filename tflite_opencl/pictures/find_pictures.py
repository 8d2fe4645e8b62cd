# SPDX-License-Identifier: Apache-2.0
"""Resolves names to pictures: files, folders of pictures, and the sample picture."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tflite_opencl.console.errors import RunError
from tflite_opencl.models.default_model import sample_picture
from tflite_opencl.pictures.decode import is_picture_name, missing_reader
from tflite_opencl.pictures.image import STDIN, is_file, load_picture

log = logging.getLogger("tflite_opencl")


def find_picture(name: str) -> str:
    """Return the picture's path: the name itself, or the sample picture of that name.

    Raises: DefaultModelError: the name is the sample's, which is not installed.
    """
    if name == STDIN or os.path.exists(name) or (sample := sample_picture(name)) is None:
        return name
    log.info("there is no file %s: using the sample picture %s", name, sample)
    return str(sample)


def find_pictures(names: Sequence[str]) -> list[str]:
    """Return the files and folders; warn about folders without a picture.

    Raises: RunError: only folders without a picture. DefaultModelError: as
        find_picture.
    """
    found, empty = [], []
    for name in names:
        if not os.path.isdir(name):
            found.append(find_picture(name))
            continue
        skipped: Counter[str] = Counter()
        if next(picture_paths([name], skipped), None) is not None:
            found.append(name)
            continue
        text = f"there is no picture in the folder {name}"
        empty.append(f"{text} that can be read: {skipped_text(skipped)}" if skipped else text)
    if not found:
        raise RunError("; ".join(empty))
    for text in empty:
        log.warning("%s", text)
    return found


def picture_paths(found: Sequence[str], skipped: Counter[str] | None = None) -> Iterator[str]:
    """Yield each file, and every picture in each folder, sorted by file name.

    Sub-folders follow a folder's files; an unreadable one is yielded itself. Hidden files and
    folders are skipped, and so are pipes and devices.
    `skipped`: counts pictures that no installed decoder supports, by the decoder they need.
    """
    for name in found:
        if not os.path.isdir(name):
            yield name
            continue
        errors: list[OSError] = []
        for parent, folders, files in os.walk(name, onerror=errors.append):
            folders[:] = sorted(folder for folder in folders if not folder.startswith("."))
            for file in sorted(files):
                if file.startswith(".") or not is_picture_name(file):
                    continue
                path = os.path.join(parent, file)
                if reader := missing_reader(file):
                    if skipped is not None:
                        skipped[f"{reader.format} ({reader.install})"] += 1
                elif is_file(path):
                    yield path
        yield from (error.filename for error in errors)


def skipped_text(skipped: Counter[str]) -> str:
    """Return what was skipped, for people: "2 HEIC (pip install pillow-heif)"."""
    return ", ".join(f"{count} {what}" for what, count in skipped.items())


def read_picture(path: str, has_alpha: bool = False) -> NDArray[np.uint8]:
    """Return the pixels of the run's only picture, which may be a pipe.

    `has_alpha`: as for `load_picture`.

    Raises: RunError: there is no such file. PictureError: it cannot be used.
    """
    try:
        return load_picture(path, may_wait=True, has_alpha=has_alpha)
    except FileNotFoundError as error:
        raise RunError(f"input file {path} not found", logging.CRITICAL) from error
