# SPDX-License-Identifier: Apache-2.0
"""Files in /dev that give access to drivers, and whether this user may open them."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tflite_opencl.boards.files import matching, shown, text_of

# A driver is usable only with permission to open these.
_DEVICE_FILES = (
    *("dev/dri/renderD*", "dev/galcore", "dev/accel/accel*", "dev/mali*", "dev/kgsl-3d0"),
    "dev/rknpu",
)


@dataclass(frozen=True, slots=True)
class DeviceFile:
    """A file in /dev that gives access to a driver."""

    path: str
    may_open: bool  # this user has read and write permission, and it opens
    mode: str  # crw-rw----
    group: str = ""  # its owner group: a name, or a number without one
    is_member: bool = False  # /etc/group has this user in that group
    is_barred: bool = False  # the permissions allow it, and a container's device rules do not


def device_files(base: Path) -> Iterator[DeviceFile]:
    for path in matching(base, _DEVICE_FILES):
        status = path.stat()
        may_open = os.access(path, os.R_OK | os.W_OK)
        is_barred = may_open and path.name.startswith("renderD") and _is_barred(path)
        group, is_member = _group(base, status.st_gid)
        yield DeviceFile(
            shown(base, path), may_open and not is_barred, stat.filemode(status.st_mode),
            group, is_member, is_barred,
        )  # fmt: skip


def _is_barred(path: Path) -> bool:
    """Whether a node with the right permissions cannot be opened, as `--volume /dev/dri` gives."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _group(base: Path, number: int) -> tuple[str, bool]:
    """Return a group's name, or else its number, and whether it lists this user."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user may have no name
        user = ""
    for line in (text_of(base / "etc/group") or "").splitlines():
        name, _, identity, *members = (*line.split(":"), "", "")[:4]
        if identity == str(number):
            return name, bool(user) and user in "".join(members).split(",")
    return str(number), False
