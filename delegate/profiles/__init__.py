# SPDX-License-Identifier: Apache-2.0
"""Device profiles: the limits of a device that is not here, one TOML file each beside this one.

What a profile says is enforced in `delegate.run`; this reads and writes the files.
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
    """What a device can do at most; sizes in bytes where the name says so."""

    name: str  # the file's, without .toml
    description: str  # which device, in words
    device_type: str  # "gpu", "accelerator", "cpu" or "custom"
    int_vector_width: int  # native lanes of a 32-bit integer vector
    max_work_group_size: int  # work-items
    registers: int  # 32-bit values that a work-item surely keeps in them; 0: not known
    local_mem_bytes: int  # a work-group
    max_alloc_bytes: int  # one buffer
    max_argument_bytes: int  # all arguments of a kernel together
    # Where a sub-buffer may begin. The runtime makes none: its tensors are offsets in one buffer.
    sub_buffer_align_bytes: int
    has_int64: bool  # `long` in kernels
    has_fp64: bool  # `double`
    has_fp16: bool  # `half` as more than a storage format
    has_images: bool
    isa: tuple[str, ...]  # what self-tests may prove beyond OpenCL C 1.2, see kernels/README.md

    @property
    def identity(self) -> str:
        """What makes kernels and measured times the same: all limits, not only the name."""
        limits = repr([getattr(self, field.name) for field in fields(self)])
        return f"{self.name}-{hashlib.sha256(limits.encode()).hexdigest()[:16]}"


def device_profile_names() -> tuple[str, ...]:
    """Return the profiles that come with this package."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def read_device_profile(name: str) -> DeviceProfile:
    """Return a profile by its name, or from a file, whose name ends in .toml.

    Raises:
        ProfileError: there is none of that name, or the file cannot be read or is wrong.
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
    """Return the file's text; `sources`: a field's name -> where its number is from."""
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
        # TOML's basic strings take no control characters; a driver's words may hold any.
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
