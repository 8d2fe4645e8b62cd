# SPDX-License-Identifier: Apache-2.0
"""Plans from a plan file: nothing is lowered or measured, and missing plans are an error."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.errors import PlanError
from delegate.guard import cache
from delegate.guard.isolation.backend import AnyDevice
from delegate.options import Options
from delegate.plan.codec import UnreadablePlan, contents_of
from delegate.plan.contents import MissingContent, load
from delegate.plan.file import PlanFile, read_plan, write_plan
from delegate.plan.key import code_digest
from delegate.plan.planners.plan_reader import Parse, PlanReader, ResultT
from delegate.run.programs import MissingBinary, binary_name


@dataclass(frozen=True, slots=True)
class _FileSource:
    """A plan file as the source of contents and binaries."""

    file: PlanFile

    def content(self, digest: str, size_bytes: int) -> NDArray[np.uint8]:
        return self.file.content(digest, size_bytes)

    def binary(self, file: str, digest: str) -> bytes | None:
        found = self.file.part(binary_name(file, digest))
        return None if found is None else found.tobytes()


class FilePlanner(PlanReader):
    """A PlanReader of a plan file.

    Raises: PlanError: it cannot be read, or was made for another device, driver or version.
    """

    def __init__(self, options: Options, device: AnyDevice, path: str | os.PathLike[str]) -> None:
        super().__init__(options, device)
        self._file = read_plan(path)
        about, own = self._file.about, _about(device)
        for what, words in (
            ("code", "another version of this package"),
            ("device", f"another device or driver, {about.get('device')}"),
            ("proven", "a device with other instructions"),
        ):
            if about.get(what) != own[what]:
                raise PlanError(f"plan {self._file.path}: it is of {words}; make it again here")
        self._answers = self._file.answers

    def _answer(
        self, name: str, call: str, arguments: tuple[object, ...], read: Parse[ResultT]
    ) -> ResultT:
        path = self._file.path
        content = self._answers.get(name)
        if content is None:
            raise PlanError(
                f"plan {path}: it is of another model, shape, batch, TFLite or options than these"
            )
        with self._lock:
            try:
                return self._parse(name, content, _FileSource(self._file), read)
            except (UnreadablePlan, MissingContent, MissingBinary, ValueError, TypeError) as error:
                raise PlanError(f"plan {path}: it is damaged ({error}); make it again") from error

    def _measured(
        self, name: str, threads: int, read: Parse[ResultT], measure: Callable[[], bytes]
    ) -> ResultT:
        # What was measured with other threads holds as well: the file's partitions follow from it.
        return self._answer(name, "placement", (), read)


def write_answers(
    path: str | os.PathLike[str], device: AnyDevice, answers: Mapping[str, bytes]
) -> None:
    """Write a file of all plans made on a device. Raises: PlanError."""
    parts: dict[str, NDArray[np.uint8]] = {}
    for name, content in answers.items():
        parts[f"answers/{name}"] = np.frombuffer(content, np.uint8)
        constants, binaries = contents_of(content.partition(b"\n")[2])
        for digest, size in constants:
            try:
                parts[f"constants/{digest}"] = load(digest, size)
            except MissingContent as error:
                raise PlanError("constants are missing in the read-only cache") from error
        for each in binaries:
            binary = cache.load(binary_name(*each))
            if binary is None:
                raise PlanError(f"the binary of {each[0]}.cl is gone from the cache")
            parts[binary_name(*each)] = np.frombuffer(binary, np.uint8)
    write_plan(path, _about(device), parts)


def _about(device: AnyDevice) -> dict[str, Any]:
    proven = sorted(device.proven)
    return {"code": code_digest(), "device": device.identity, "proven": proven}
