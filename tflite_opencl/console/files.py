# SPDX-License-Identifier: Apache-2.0
"""Output files that are replaced atomically, and checks whether they can be written.

Input files, registered with `keep`, are never overwritten.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

_DENIED = "permission denied"
_INPUT = "it is an input of this command"
_STDOUT, _NO_STDOUT = "-", "it cannot be stdout; ./- is a file of this name"
_kept_files: set[tuple[int, int]] = set()  # device and inode, the same for all links to a file
_kept_folders: list[Path] = []
_ERRORS = "backslashreplace"  # file names may not be valid UTF-8


def keep(names: Iterable[str]) -> None:
    """Protect these files, and the models and pictures in these folders, from being overwritten.

    So is the file that stdin reads. Files protected before may be written again. Missing files
    are ignored.
    """
    _kept_files.clear()
    _kept_folders.clear()
    for name in ("/dev/stdin", *names):
        with contextlib.suppress(OSError, ValueError):
            status = os.stat(name)
            if stat.S_ISREG(status.st_mode):
                _kept_files.add((status.st_dev, status.st_ino))
            elif stat.S_ISDIR(status.st_mode):
                _kept_folders.append(Path(os.path.realpath(name)))


def _is_kept(target: Path) -> bool:
    """Whether a file, not a link, is an input under any of its names."""
    try:
        status = target.stat()
    except OSError:
        return False
    if (status.st_dev, status.st_ino) in _kept_files:
        return True
    is_inside = any(target.is_relative_to(folder) for folder in _kept_folders)
    return is_inside and _is_input_name(target.name)


def _is_input_name(name: str) -> bool:
    # Here, because this file is imported before Ctrl-C is handled.
    import mimetypes

    is_picture = (mimetypes.guess_type(name)[0] or "").startswith("image/")
    return is_picture or name.lower().endswith(".tflite")


def file_obstacle(path: str) -> str | None:
    """Return why a file cannot be written there, as far as can be checked; else None."""
    if path == _STDOUT:
        return _NO_STDOUT
    target = Path(os.path.realpath(path))
    try:
        if target.is_dir():
            return "it is a folder"
        if _is_kept(target):
            return _INPUT
        if not target.parent.is_dir():
            return f"there is no folder {target.parent}"
        is_writable = os.access(target if target.exists() else target.parent, os.W_OK)
    except OSError:
        return _DENIED
    return None if is_writable else _DENIED


def write_file(path: str, content: str | bytes) -> None:
    """Write text as UTF-8, or bytes, atomically: a reader sees the old file or the new one.

    Raises: OSError: it cannot be written.
    """
    data = content.encode("utf-8", _ERRORS) if isinstance(content, str) else content
    with replaced_file(path, "wb") as file:
        file.write(data)


@contextlib.contextmanager
def replaced_file(path: str, mode: str = "w") -> Iterator[IO[Any]]:
    """Yield a file that replaces an old one atomically when closed; text is UTF-8.

    Raises: OSError: it cannot be written.
    """
    target = Path(os.path.realpath(path))
    encoding, errors = (None, None) if "b" in mode else ("utf-8", _ERRORS)
    if target.exists() and not target.is_file():  # /dev/null or a pipe must not be replaced
        with target.open(mode, encoding=encoding, errors=errors) as file:
            yield file
        return
    if _is_kept(target):
        raise OSError(errno.EPERM, _INPUT)
    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with part.open(mode, encoding=encoding, errors=errors) as file:
            yield file
        os.replace(part, target)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def folder_obstacle(path: str) -> str | None:
    """Return why files cannot be written to this folder, which may not exist yet; else None."""
    if path == _STDOUT:
        return _NO_STDOUT
    there = wanted = Path(os.path.realpath(path))
    try:
        while not there.exists():
            there = there.parent
    except OSError:
        return _DENIED
    if not there.is_dir():
        return "it is not a folder" if there == wanted else f"{there} is not a folder"
    return None if os.access(there, os.W_OK | os.X_OK) else _DENIED
