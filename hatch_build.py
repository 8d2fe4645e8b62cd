# SPDX-License-Identifier: Apache-2.0
"""What pyproject.toml cannot say: TFLite's runtime is needed where it has wheels, which want glibc.

No marker of a dependency tells musl (Alpine, postmarketOS) from glibc. So a wheel that is built
there needs no TFLite, nor does one made for there: MUSL_ARCH=aarch64 python -m build --wheel
"""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_FOR = os.environ.get("MUSL_ARCH", "")
_IS_MUSL = bool(_FOR) or (sys.platform == "linux" and platform.libc_ver()[0] != "glibc")


class Dependencies(MetadataHookInterface):
    """The dependencies of pyproject.toml's table, TFLite's runtime among them or not."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in the field that is dynamic."""
        runtime = [] if _IS_MUSL else self.config["runtime"]
        metadata["dependencies"] = [*self.config["dependencies"], *runtime]


class Tag(BuildHookInterface[Any]):
    """The platform of a wheel that is made for another one."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Say so in the wheel's name, which pip prefers there to one for any platform."""
        if _FOR:
            build_data["tag"] = f"py3-none-musllinux_1_2_{_FOR}"
