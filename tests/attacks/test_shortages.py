# SPDX-License-Identifier: Apache-2.0
"""Accidental deaths of child processes do not affect later starts; those by kernels are banned.

Each of these once banned kernels permanently, or ended the command with a signal.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from delegate import DeviceInfo
from delegate.guard.children.trials import SELF_TEST
from delegate.guard.store import stores
from tests.attacks.bed import (
    COMMAND_LINE,
    CPU,
    LOST,
    RIGHT,
    WORK,
    FinishedRun,
    forget,
    proofs_in,
    run_label_image,
    write_files,
)
from tests.attacks.faults import CHILDREN, Fault
from tests.support.process import ROOT
from tests.support.tiers import slow

pytestmark = slow

STOP_SECONDS = 17  # more than COMMAND_LINE allows for a step


class Place:
    """A folder with a model, and a cache with facts about the device, but not about the model."""

    def __init__(self, folder: Path, library: Path, device: str) -> None:
        self.folder, self._device = folder, device
        self.cache = folder / "cache"
        self._variables = {
            "LD_PRELOAD": str(library),
            "TFLITE_OPENCL_CACHE": str(self.cache),
            "POCL_CACHE_DIR": str(folder / "pocl"),
        }
        write_files(folder)
        (folder / "pocl").mkdir()
        assert self.run().outcome == RIGHT
        self.proof = self._proof()
        forget(self.cache, *WORK)
        shutil.rmtree(folder / "pocl")
        (folder / "pocl").mkdir()

    def _proof(self) -> list[dict[str, str]]:
        with patch.dict(os.environ, TFLITE_OPENCL_CACHE=str(self.cache)):
            return [proofs_in(store) for store in stores()]

    def run(self, fault: Fault | None = None, **variables: str) -> FinishedRun:
        """Run label_image with a fault in its child processes."""
        planted = {} if fault is None else fault.environment
        return run_label_image(self.folder, self._device, **self._variables, **planted, **variables)

    def command(self, *arguments: str) -> str:
        """Return the output of tflite-opencl."""
        done = subprocess.run(
            [sys.executable, "-m", "tflite_opencl", *arguments],
            cwd=ROOT, env=os.environ | self._variables, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    def limited(self, limit: int, most: int) -> subprocess.CompletedProcess[str]:
        """Run label_image with a low limit."""
        return subprocess.run(
            [*COMMAND_LINE, "--device", self._device], cwd=self.folder, check=False,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | self._variables | {"LD_PRELOAD": ""},
            capture_output=True, text=True, timeout=240,
            preexec_fn=lambda: resource.setrlimit(limit, (most, most)),
        )  # fmt: skip

    def stopped(self, fault: Fault) -> FinishedRun:
        """Run label_image; send SIGCONT some seconds after the fault has stopped it."""
        environment = os.environ | {"PYTHONPATH": str(ROOT)} | self._variables | fault.environment
        with subprocess.Popen(
            [*COMMAND_LINE, "--device", self._device], cwd=self.folder, env=environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        ) as ran:  # fmt: skip
            while not Path(fault.once).exists():
                assert ran.poll() is None
                time.sleep(0.1)
            time.sleep(STOP_SECONDS)
            os.killpg(ran.pid, signal.SIGCONT)
            _, errors = ran.communicate(timeout=240)
        return FinishedRun(ran.returncode, tuple(errors.splitlines()))

    @property
    def has_no_ban(self) -> bool:
        """Whether no kernel is banned; some drivers crash on unsupported instructions."""
        return "to build" not in self.command("info", "--bans")


PlaceOf = Callable[[DeviceInfo], Place]


@pytest.fixture
def place_of(faults: Path, tmp_path: Path) -> PlaceOf:
    """Return a function that makes the `Place` of a device."""
    return lambda info: Place(tmp_path, faults, str(info.index))


def test_start_without_linker_bans_nothing(device: DeviceInfo, place_of: PlaceOf) -> None:
    place = place_of(device)
    ran = place.run(PATH=str(place.folder / "nothing"))
    assert ran.outcome in (RIGHT, CPU)  # some drivers do not need one
    if ran.outcome == CPU:
        assert "does not work in this environment: its self-test died" in "".join(ran.lines)
    assert place.has_no_ban
    assert place.run().outcome == RIGHT


def test_one_killed_child_bans_nothing(device: DeviceInfo, place_of: PlaceOf) -> None:
    place = place_of(device)
    died = str(place.folder / "died")
    ran = place.run(Fault("clCreateKernel", 1, "kill", place=CHILDREN, once=died, kernel="_2d"))
    assert ran.outcome == RIGHT
    assert any("died with SIGKILL, as it tried to" in line for line in ran.lines)
    assert place.has_no_ban


def test_repeatedly_killed_children_ban_nothing(device: DeviceInfo, place_of: PlaceOf) -> None:
    place = place_of(device)
    ran = place.run(Fault("clCreateKernel", 1, "kill", place=CHILDREN, kernel="_2d"))
    assert ran.outcome in (CPU, LOST)
    assert any("the machine is short of memory" in line for line in ran.lines)
    assert place.has_no_ban
    assert place.run().outcome == RIGHT


def test_child_killed_in_self_tests_loses_no_instruction(
    device: DeviceInfo, place_of: PlaceOf
) -> None:
    place = place_of(device)
    for nth in (1, 2, 4):
        forget(place.cache, SELF_TEST)
        died = str(place.folder / f"died{nth}")
        ran = place.run(Fault("clCreateKernel", nth, "kill", place=CHILDREN, once=died))
        assert ran.outcome == RIGHT
        assert place._proof() == place.proof


def test_stopped_child_is_no_hang(device: DeviceInfo, place_of: PlaceOf) -> None:
    place = place_of(device)
    once = str(place.folder / "stopped")
    fault = Fault("clCreateKernel", 1, "stop", place=CHILDREN, once=once, kernel="_2d")
    assert place.stopped(fault).outcome == RIGHT
    assert place.has_no_ban


@pytest.mark.parametrize(
    ("limit", "most", "words"),
    [
        (resource.RLIMIT_NOFILE, 8, "no more than 8 open files (ulimit -n): raise that"),
        (resource.RLIMIT_AS, 600 << 20, "no more than 600 MiB of address space (ulimit -v)"),
    ],
    ids=["files", "memory"],
)
def test_commands_survive_low_limits(
    device: DeviceInfo, place_of: PlaceOf, limit: int, most: int, words: str
) -> None:
    place = place_of(device)
    ran = place.limited(limit, most)
    assert FinishedRun(ran.returncode, tuple(ran.stderr.splitlines())).outcome == CPU
    assert words in ran.stderr
    assert place.has_no_ban


def test_kernel_that_kills_children_is_banned_until_lifted(
    device: DeviceInfo, place_of: PlaceOf
) -> None:
    place = place_of(device)
    deadly = Fault("clCreateKernel", 1, "abort", place=CHILDREN, lasts=True, kernel="_2d")
    ran = place.run(deadly)
    assert ran.outcome == LOST
    assert "the CPU ran 2 of 3 nodes, because child processes died" in ran.lines[-1]
    # Later starts omit it, and no child dies.
    ran = place.run()
    assert ran.outcome == LOST
    assert not any("a child process died" in line for line in ran.lines)
    # Once, although the comparison opens the device again.
    assert sum("kernels are left out on this device" in line for line in ran.lines) == 1
    listed = place.command("info", "--bans")
    assert "pool_2d.cl" in listed
    assert "died with SIGABRT" in listed
    # It is tried again in another environment, and after the ban is lifted.
    assert place.run(POCL_DEBUG="").outcome == RIGHT
    assert "lifted: the next starts try again" in place.command("info", "--lift_bans")
    assert place.has_no_ban
    assert place.run().outcome == RIGHT
