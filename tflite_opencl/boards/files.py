# SPDX-License-Identifier: Apache-2.0
"""Reads the files of a machine below a root; a missing one is None or empty."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path


def text_of(path: Path) -> str | None:
    """Return a file's text without surrounding white space; None: it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except (OSError, ValueError):
        return None


def strings_of(path: Path) -> tuple[str, ...]:
    """Return the zero-terminated strings of a device tree property."""
    text = text_of(path)
    return () if text is None else tuple(filter(None, text.split("\0")))


def uevent(path: Path) -> Mapping[str, str]:
    """Return a device's properties; empty: the file is missing."""
    pairs = (line.partition("=") for line in (text_of(path) or "").splitlines())
    return {key: value for key, _, value in pairs}


def link(path: Path) -> str | None:
    """Return the last part of what a link points to; None: it is no link."""
    try:
        return os.path.basename(os.readlink(path))
    except OSError:
        return None


def matching(base: Path, patterns: Iterable[str]) -> list[Path]:
    """Return the existing files that match, each once."""
    found: dict[Path, Path] = {}
    for pattern in patterns:
        for path in sorted(base.glob(pattern)):
            if os.path.exists(path):  # the link may be broken
                found.setdefault(path.resolve(), path)
    return list(found.values())


def shown(base: Path, path: Path) -> str:
    """Return a path as the machine itself names it."""
    return "/" + path.relative_to(base).as_posix()
