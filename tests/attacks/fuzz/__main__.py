# SPDX-License-Identifier: Apache-2.0
"""Fuzzes everything that reads files, and random graphs, and reports faults.

    python -m tests.attacks.fuzz --minutes 2 --seed 7
    python -m tests.attacks.fuzz --minutes 60 --attack models caches
    python -m tests.attacks.fuzz --attack graphs --count 1000 --minutes 600 --device rusticl
    python -m tests.attacks.fuzz --attack graphs --graph 771203486215

Models go through the reader and all steps before a device, and, next to TFLite, through the
delegate; pictures and the cache folder through label_image's own code; language models and their
tokenizers through their conversion to .tflite. Graphs are drawn from numbers, and run in many
ways next to TFLite: alone, with state, and as graphs of IF, WHILE and signatures;
`state` runs only those with state. A finding is shrunk and saved as a case under tests/data/fuzz,
where test_fuzz.py runs it from then on. Exit code: 0 without findings, 1 with some.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.attacks.fuzz.attacks import Attack, BesideTFLite, InOneChild
from tests.attacks.fuzz.caches import OfCaches
from tests.attacks.fuzz.graphs import OfGraphs, OfState
from tests.attacks.fuzz.targets import KINDS
from tests.support.process import ROOT

CASES = ROOT / "tests/data/fuzz"
NAMES = (*KINDS, BesideTFLite.name, OfCaches.name, OfGraphs.name, OfState.name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz for the given time, shared between the attacks; return the exit code."""
    given = _parser().parse_args(arguments)
    if given.graph:
        given.attack = [OfState.name if [OfState.name] == given.attack else OfGraphs.name]
        given.count = len(given.graph)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        # Programs of mutated models must not fill the user's cache.
        os.environ["TFLITE_OPENCL_CACHE"] = f"{scratch}/cache"
        count = sum(_faults(name, given, Path(scratch)) for name in given.attack)
    return 1 if count else 0


def _faults(name: str, given: argparse.Namespace, scratch: Path) -> int:
    """Run one attack for its share of the time, print its findings; return their number."""
    # Separate, so that an attack's random numbers do not depend on the speed of others.
    rng = random.Random(f"{given.seed} {name}")
    attack = attack_of(name, given.device, scratch, given.graph)
    try:
        seconds = 60 * given.minutes / len(given.attack)
        for finding in attack.findings(rng, seconds, given.count):
            print(f"{finding.text}\n    {finding.save(given.save)}", flush=True)
    finally:
        attack.close()
    print(f"{name}: {attack.tried} tried, {len(attack.found)} faults", flush=True)
    if attack.summary():
        print(attack.summary(), flush=True)
    return len(attack.found)


def attack_of(name: str, device: str, scratch: Path, graphs: Sequence[int] = ()) -> Attack:
    """Return the attack of this name; `device`: words of its name; `graphs`: numbers of graphs."""
    if name in (OfGraphs.name, OfState.name):
        return (OfGraphs if name == OfGraphs.name else OfState)(device, graphs)
    if name == BesideTFLite.name:
        return BesideTFLite(device)
    if name == OfCaches.name:
        return OfCaches(device, scratch)
    return InOneChild(name)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.attacks.fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--minutes", type=float, default=2, metavar="N", help="for all attacks together")
    add("--count", type=int, metavar="N", help="so many contents of each attack at most")
    add("--graph", type=int, nargs="+", default=(), metavar="N", help="these graphs alone")
    add("--seed", default="0", metavar="S", help="any text: what is drawn")
    add("--attack", nargs="+", default=NAMES, choices=NAMES, help="all unless some are named")
    add("--device", default="pocl", metavar="WORDS", help="of the OpenCL device's name")
    add("--save", type=Path, default=CASES, metavar="DIR", help="where findings are saved")
    return parser


if __name__ == "__main__":
    sys.exit(main())
