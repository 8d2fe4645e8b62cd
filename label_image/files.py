# SPDX-License-Identifier: Apache-2.0
"""Files that are written whole or not at all, and why one cannot be written."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from label_image.errors import RunError


def file_obstacle(path: str) -> str | None:
    """Return why a file cannot be written there, as far as it can be told before; else None."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        return "it is a folder"
    if not target.parent.is_dir():
        return f"there is no folder {target.parent}"
    if not os.access(target if target.exists() else target.parent, os.W_OK):
        return "permission denied"
    return None


def write_file(path: str, text: str) -> None:
    """Write the text: a reader sees the old file or the whole new one.

    Raises: OSError: it cannot be written.
    """
    with replaced_file(path) as file:
        file.write(text + "\n")


@contextlib.contextmanager
def replaced_file(path: str, mode: str = "w") -> Iterator[IO[Any]]:
    """Give a file to write: a reader sees the old one or the whole new one.

    Raises: OSError: it cannot be written.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():  # /dev/null or a pipe must stay what it is
        with target.open(mode) as file:
            yield file
        return
    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with part.open(mode) as file:
            yield file
        os.replace(part, target)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def folder_obstacle(path: str) -> str | None:
    """Return why files cannot be written into this folder, which may be new; else None."""
    there = Path(os.path.realpath(path))
    while not there.exists():
        there = there.parent
    if not there.is_dir():
        return (
            "it is not a folder"
            if there == Path(os.path.realpath(path))
            else (f"{there} is not a folder")
        )
    return None if os.access(there, os.W_OK | os.X_OK) else "permission denied"


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """Turn an error of writing this file or folder into a RunError."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"cannot write {path}: {reason}") from error
