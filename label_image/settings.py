# SPDX-License-Identifier: Apache-2.0
"""The parsed command line: the value of each flag, and properties derived from several flags."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass

from label_image.flag_table import ALL, Flags

_RUN_SECONDS = 60.0  # time limit of a run where nobody watches


@dataclass(frozen=True, repr=False, eq=False)
class Settings(Flags):
    """The flags as given.

    Attributes:
        pictures: files and folders to classify in order; () = `image`. asked: the flags
            given, in order. command: the arguments.
    """

    pictures: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    command: tuple[str, ...] = ()

    @property
    def is_image_asked(self) -> bool:
        """Whether a picture is given."""
        return "image" in self.asked or bool(self.pictures)

    @property
    def is_for_several(self) -> bool:
        """Whether a folder is given, or a flag that requires several pictures."""
        asked = (
            self.pictures, self.batch, self.video, self.watch, *self.documents.values(),
            self.expect, self.shard, self.scheduler,
        )  # fmt: skip
        return any(asked) or os.path.isdir(self.image)

    @property
    def num_results_of_several(self) -> int:
        """Results per picture, for several pictures."""
        return self.num_results if "num_results" in self.asked else 5 if self.expect else 1

    @property
    def compares_all(self) -> bool:
        """Whether each of many pictures is compared, not just a sample."""
        return self.compare == "all"

    @property
    def table_flag(self) -> str | None:
        """The flag that would show the table of the comparison; None: it is shown."""
        if self.verbose or self.compare in (True, "all"):
            return None
        return "" if self.quiet else "--compare" if self.compare else "--verbose 1"

    @property
    def cpu_threads(self) -> int | None:
        """Threads of the CPU's kernels; None: TFLite's default."""
        # As in label_image, XNNPACK requested by -x uses -t; otherwise --num_threads is its number.
        is_of_xnnpack = self.num_threads != -1 and not self.xnnpack_delegate
        threads = self.num_threads if is_of_xnnpack else self.threads
        return None if threads == -1 else threads

    @property
    def announce_xnnpack(self) -> bool:
        """Whether XNNPACK is requested by name, and runs."""
        return (self.xnnpack_delegate or self.use_xnnpack) and self.cpu_kernels == "auto"

    @property
    def is_external_last(self) -> bool:
        """Whether the external delegate chooses nodes after OpenCL.

        As in label_image, delegates choose nodes in the order of their flags.
        """
        order = [name for name in self.asked if name in ("use_gpu", "external_delegate_path")]
        return order[:1] == ["use_gpu"]

    @property
    def is_endless(self) -> bool:
        """Whether the run has no end of its own."""
        return bool(self.video or self.watch)

    @property
    def isolates(self) -> bool:
        """Whether OpenCL runs in a child process: for endless runs and runs with a time limit."""
        if self.isolate is None:
            return self.is_endless or bool(self.device_timeout)
        return self.isolate

    @property
    def run_timeout(self) -> float:
        """Time limit of a run on OpenCL in seconds; 0: none."""
        if self.device_timeout is None:
            return _RUN_SECONDS if self.is_endless and self.isolates else 0.0
        return self.device_timeout

    @property
    def documents(self) -> dict[str, str]:
        """Return the output files of a run on several pictures by flag; "-" is stdout."""
        flags = {"json_lines": self.json_lines, "csv": self.csv, "coco": self.coco}
        return {flag: path for flag, path in flags.items() if path is not None}

    @property
    def profiles(self) -> tuple[str, ...]:
        """The flags given that time each launch."""
        return tuple(name for name, row in ALL.items() if row.is_profile and getattr(self, name))

    @property
    def level(self) -> int:
        """The lowest level that is logged."""
        return logging.WARNING if self.quiet else logging.DEBUG if self.verbose else logging.INFO

    @property
    def is_on_stdout(self) -> bool:
        """Whether stdout carries nothing but a document."""
        return "-" in (self.json, self.output_video, *self.documents.values())

    @property
    def warnings(self) -> tuple[str, ...]:
        """A line for each flag that is accepted without effect."""
        lines = []
        for name, row in ALL.items():
            value = getattr(self, name)
            if value == row.default:
                continue
            if row.no_effect:
                lines.append(f"--{name} does nothing: {row.no_effect}")
            elif row.needs and value is not False and not getattr(self, row.needs):
                lines.append(f"--{name} does nothing without --{row.needs}")
        if self.gpu_backend == "gl":
            lines.append("--gpu_backend=gl does nothing: there is no OpenGL here, OpenCL is used")
        if (self.xnnpack_delegate or self.use_xnnpack) and self.cpu_kernels != "auto":
            lines.append(f"--cpu_kernels={self.cpu_kernels} turns XNNPACK off")
        elif self.use_gpu and self.placement != "device" and self.cpu_kernels != "auto":
            lines.append(f"--cpu_kernels={self.cpu_kernels} runs what --placement={self.placement} "
                         "leaves to the CPU, and XNNPACK is what it times")  # fmt: skip
        return tuple(lines)
