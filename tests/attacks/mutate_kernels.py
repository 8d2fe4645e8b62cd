# SPDX-License-Identifier: Apache-2.0
"""Mutation testing of kernels: counts the mutations that tests or the suite detect.

    python -m tests.attacks.mutate_kernels --count 20 --seed 1            the op's own tests
    python -m tests.attacks.mutate_kernels --count 20 --seed 1 --full     all cases of these tests
    python -m tests.attacks.mutate_kernels --count 20 --seed 1 --suite    the conformance suite

Mutations are made in a copy of the checkout. Exit code: 0 if each was detected, 1 otherwise: then
the mutation is equivalent, or a test case is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from delegate import Options, Unsupported, ops
from delegate.engine import Engine
from delegate.format.reader import read_model
from delegate.graph.fold import fold
from delegate.host.tflite.library import installed_rules
from delegate.inspect import write_model
from tests.attacks.mutations import Mutation, drawn, includers, planted
from tests.support.kernel_use import FOLDER_VARIABLE
from tests.support.process import ROOT
from tflite_opencl.conformance.cases import all_cases

COPIED = (".ci", "assets", "delegate", "kernels", "label_image", "tests", "tflite_opencl")
# Runtime kernels belong to no op; some run in child processes, which kernel_use.py does not see.
RUNTIME_TESTS = {
    "runtime_isa": ["tests/delegate/guard/probing/test_probe.py"],
    "runtime_self_test": ["tests/delegate/guard/probing/test_probe.py"],
    "runtime_fused": ["tests/delegate/plan/dispatch/test_fused_launches.py"],
    "runtime_persistent": ["tests/delegate/plan/dispatch/test_persistent_launch.py"],
    "runtime_rates": ["tests/tflite_opencl/test_info.py"],
}
LIMIT_SECONDS = 900  # for one fault; a kernel that hangs counts as detected
SUITE_CASES = 60  # for one fault
NOTICED, UNNOTICED, UNCOMPILED = "noticed", "NOT NOTICED", "not compiled here"

Users = Mapping[str, Sequence[str]]  # a kernel file's stem -> the tests or cases that run it


@dataclass(frozen=True, slots=True)
class Judge:
    """Decides whether a fault is detected.

    Attributes:
        users: the tests or cases that run a kernel file; command: makes a command of their names;
            most: users to run for one fault, None for all; is_sound: whether the users are known
            to pass without a fault.
    """

    users: Users
    command: Callable[[Sequence[str]], list[str]]
    most: int | None
    is_sound: bool
    seed: int

    def verdict(self, fault: Mutation, copy: Path, files: frozenset[str]) -> str:
        """Plant a fault in a copy of the checkout, run its users, and restore the copy."""
        path = next(copy.glob(f"kernels/**/{fault.file}"))
        sound = path.read_text()
        command = self.command(self._chosen(files))
        if not self.is_sound and _fails(command, copy):
            raise RuntimeError(f"the users of {fault.file} fail without a fault")
        try:
            path.write_text(planted(fault, sound))
            if _fails(command, copy):
                return NOTICED
            lines = sound.splitlines(keepends=True)
            if lines[fault.line - 2].endswith("\\\n") or lines[fault.line - 1].endswith("\\\n"):
                return UNNOTICED  # a directive may not stand inside a macro
            path.write_text(
                "".join([*lines[: fault.line - 1], "#error\n", *lines[fault.line - 1 :]])
            )
            return UNNOTICED if _fails(command, copy) else UNCOMPILED
        finally:
            path.write_text(sound)

    def _chosen(self, files: frozenset[str]) -> list[str]:
        names = sorted({name for file in files for name in self.users.get(file[:-3], ())})
        return random.Random(self.seed).sample(names, min(len(names), self.most or len(names)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant the faults, print a line for each and the counts; return the exit code."""
    given = _parser().parse_args(arguments)
    texts = {path.name: path.read_text() for path in sorted((ROOT / "kernels").rglob("*.cl*"))}
    with tempfile.TemporaryDirectory(prefix="mutate-kernels-") as scratch:
        judge = _suite(given) if given.suite else _tests(given, Path(scratch))
        run = {
            name: text
            for name, text in texts.items()
            if any(file[:-3] in judge.users for file in includers(texts, name))
        }
        print("nothing here runs:", ", ".join(sorted(texts.keys() - run.keys())) or "-")
        chosen = {name: text for name, text in run.items() if re.search(given.files, name)}
        faults = drawn(chosen, given.count, given.seed)
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(given.jobs):
            copies.put(_copy(Path(scratch, f"copy{number}")))

        def judged(fault: Mutation) -> str:
            copy = copies.get()
            begin = time.monotonic()
            try:
                verdict = judge.verdict(fault, copy, includers(texts, fault.file))
            finally:
                copies.put(copy)
            line = texts[fault.file].splitlines()[fault.line - 1].strip()
            seconds = time.monotonic() - begin
            print(f"{verdict}, {seconds:.0f} s: {fault} in {line}", flush=True)
            return verdict

        with ThreadPoolExecutor(given.jobs) as pool:
            counts = Counter(pool.map(judged, faults))
    compiled = counts[NOTICED] + counts[UNNOTICED]
    print(f"{counts[NOTICED]} of {compiled} noticed, {counts[UNCOMPILED]} more not compiled here")
    return 1 if counts[UNNOTICED] else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.attacks.mutate_kernels", description=__doc__
    )
    add = parser.add_argument
    add("--count", type=int, default=10, metavar="N", help="faults to plant")
    add("--seed", type=int, default=0, metavar="S", help="which faults")
    add("--files", default="", metavar="REGEX", help="only in kernel files with such a name")
    add("--full", action="store_true", help="run all cases on all devices, not the fast tier")
    add("--suite", action="store_true", help="run the conformance suite, not the op's tests")
    add(
        "--device",
        default="",
        metavar="WORDS",
        help="of the OpenCL device's name (default: each one found; with --suite pocl)",
    )
    add("--jobs", type=int, default=2, metavar="J", help="faults at a time")
    return parser


def _tests(given: argparse.Namespace, scratch: Path) -> Judge:
    """Run the op tests once without a fault, to record which test runs which kernel file."""
    environment = os.environ | {FOLDER_VARIABLE: str(scratch)}
    pytest = [sys.executable, "-m", "pytest", *["--full"] * given.full, "-q"]
    command = [*pytest, "-n", str(given.jobs), "-p", "tests.support.kernel_use"]
    command += ["-k", given.device, "tests/delegate/ops"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    users: dict[str, set[str]] = defaultdict(set, {k: set(v) for k, v in RUNTIME_TESTS.items()})
    for path in scratch.glob("*.json"):
        for file, tests in json.loads(path.read_text()).items():
            users[file].update(tests)
    pytest += ["-x", "-p", "no:cacheprovider"]
    named = {file: sorted(tests) for file, tests in users.items()}
    return Judge(named, lambda names: [*pytest, *names], None, True, given.seed)


def _suite(given: argparse.Namespace) -> Judge:
    """Lower each case's nodes, to find the kernel files of its alternatives on this device."""
    device = given.device or "pocl"
    engine = Engine(Options(device, tune="off"))
    target = engine.target(installed_rules())
    users: dict[str, list[str]] = defaultdict(list)
    for case in all_cases():
        if case.is_heavy or case.check != "values":
            continue
        files = set()
        for node in fold(read_model(write_model(case.make()))).nodes:
            try:
                alternatives = ops.lower(node, target)
            except Unsupported:
                continue
            files |= {launch.file for each in alternatives for launch in each.launches}
        for file in files:
            users[file].append(case.name)
    return Judge(users, partial(_suite_command, device), SUITE_CASES, False, given.seed)


def _suite_command(device: str, names: Sequence[str]) -> list[str]:
    pattern = "^(" + "|".join(map(re.escape, names)) + ")$"
    command = [sys.executable, "-m", "tflite_opencl.conformance", "--device", device]
    command += [
        "--alternatives",
        "--jobs",
        "1",
        "--output",
        "results",
        "--baseline",
        ".ci/opencl-fails.txt",
    ]
    return [*command, "--filter", pattern]


def _copy(folder: Path) -> Path:
    for name in COPIED:
        shutil.copytree(
            ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".?*cache")
        )
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def _fails(command: Sequence[str], copy: Path) -> bool:
    environment = os.environ | {"PYTHONPATH": str(copy), "TFLITE_OPENCL_CACHE": str(copy / "cache")}
    # In its own process group, as a hanging test may have children.
    child = subprocess.Popen(
        command,
        cwd=copy,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return child.wait(LIMIT_SECONDS) != 0
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        return True


if __name__ == "__main__":
    sys.exit(main())
