# SPDX-License-Identifier: Apache-2.0
"""Device profiles: the limits of other devices, one TOML file each beside this one.

`delegate.run` enforces them; this module reads and writes the files.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from delegate.errors import ProfileError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_FOLDER = Path(__file__).resolve().parent
_TYPES = ("gpu", "accelerator", "cpu", "custom")
_KINDS = {"str": str, "int": int, "bool": bool, "tuple[str, ...]": list}


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """Upper limits of a device; sizes in bytes where the name says so."""

    name: str  # the file's, without .toml
    description: str  # of the device, for messages
    device_type: str  # "gpu", "accelerator", "cpu" or "custom"
    int_vector_width: int  # native lanes of a 32-bit integer vector
    max_work_group_size: int  # work-items
    registers: int  # 32-bit values that a work-item is certain to keep in them; 0: unknown
    local_mem_bytes: int  # per work-group
    max_alloc_bytes: int  # per buffer
    max_argument_bytes: int  # total of a kernel's arguments
    # Alignment of sub-buffers. None are created here: tensors are offsets in one buffer.
    sub_buffer_align_bytes: int
    has_int64: bool  # `long` in kernels
    has_fp64: bool  # `double`
    has_fp16: bool  # `half` beyond a storage format
    has_images: bool
    isa: tuple[str, ...]  # features that self-tests may prove, see kernels/README.md

    @property
    def identity(self) -> str:
        """Cache key of kernels and timings: all limits, not only the name."""
        limits = repr([getattr(self, field.name) for field in fields(self)])
        return f"{self.name}-{hashlib.sha256(limits.encode()).hexdigest()[:16]}"


def device_profile_names() -> tuple[str, ...]:
    """Return the names of the profiles in this package."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def read_device_profile(name: str) -> DeviceProfile:
    """Return a profile by name, or from a file whose name ends in .toml.

    Raises:
        ProfileError: no such name, or the file cannot be read or is invalid.
    """
    path = Path(name) if name.endswith(".toml") else _FOLDER / f"{name}.toml"
    if not name.endswith(".toml") and name not in device_profile_names():
        known = ", ".join(device_profile_names())
        raise ProfileError(f"no device profile '{name}': one of {known}, or a FILE.toml")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ProfileError(f"device profile {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise ProfileError(f"device profile {path}: {error}") from error
    try:
        return _checked(path.stem, tomllib.loads(text))
    except ValueError as error:
        raise ProfileError(f"device profile {path.stem}: {error}") from error


def device_profile_text(profile: DeviceProfile, sources: Mapping[str, str]) -> str:
    """Return the file's text; `sources`: field name -> origin of its value."""
    lines = ["# SPDX-License-Identifier: Apache-2.0"]
    for field in fields(profile):
        if field.name == "name":
            continue
        source = f"  # {sources[field.name]}" if field.name in sources else ""
        lines.append(f"{field.name} = {_toml(getattr(profile, field.name))}{source}")
    return "\n".join(lines) + "\n"


def _toml(value: str | int | bool | tuple[str, ...]) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        # TOML's basic strings exclude control characters, which a driver's strings may contain.
        return '"' + re.sub(r'["\\]', r"\\\g<0>", re.sub(r"[\x00-\x1f\x7f]", " ", value)) + '"'
    return "[" + ", ".join(_toml(each) for each in value) + "]"


def _checked(name: str, values: Mapping[str, Any]) -> DeviceProfile:
    expected = {field.name: str(field.type) for field in fields(DeviceProfile)}
    del expected["name"]
    if unknown := sorted(values.keys() - expected.keys()):
        raise ProfileError(f"device profile {name}: unknown key '{unknown[0]}'")
    if missing := sorted(expected.keys() - values.keys()):
        raise ProfileError(f"device profile {name}: '{missing[0]}' is missing")
    for key, kind in expected.items():
        value = values[key]
        if type(value) is not _KINDS[kind]:
            raise ProfileError(f"device profile {name}: {key} = {value!r} is no {kind}")
        least = 0 if key == "registers" else 1
        if kind == "int" and values[key] < least:
            raise ProfileError(f"device profile {name}: {key} = {value} is less than {least}")
    if values["device_type"] not in _TYPES:
        raise ProfileError(
            f"device profile {name}: device_type = {values['device_type']!r} is none of "
            f"{', '.join(_TYPES)}"
        )
    if wrong := [each for each in values["isa"] if not isinstance(each, str)]:
        raise ProfileError(f"device profile {name}: isa has {wrong[0]!r}, which is no word")
    return DeviceProfile(name=name, **{**values, "isa": tuple(sorted(values["isa"]))})
