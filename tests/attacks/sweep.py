# SPDX-License-Identifier: Apache-2.0
"""Makes every OpenCL call of a run fail, one a run, and reports the outcomes.

    python -m tests.attacks.sweep --device pocl --most 2    some calls of each function
    python -m tests.attacks.sweep --docs                    all: half an hour

label_image runs a small model while faults.c fails, lies, dies or hangs at one call.
A run must print the right rows (exit code 0, or 3 if the CPU has most nodes), or an error, the
CPU's rows and exit code 2. `--docs` writes each device's totals into docs/reliability.md. Exit
code: 0 if all did, 1 otherwise.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.attacks.bed import ALLOWED, ATTACKS, CPU, LEFT, LOST, RIGHT, Attack, Bed
from tests.attacks.faults import NO_COMPILER, Fault, build_library
from tests.support.process import ROOT

DOCUMENT = ROOT / "docs/reliability.md"
_BEGIN, _END = "<!-- swept: begin -->", "<!-- swept: end -->"
# A death takes seconds, so only the first, the last and some calls between are tested.
MOST_DEATHS = 4

Outcomes = Mapping[tuple[str, str], Counter[str]]  # (attack, function) -> counts of outcomes


def main(arguments: Sequence[str] | None = None) -> int:
    """Sweep, print findings and tables; return the exit code."""
    given = _parser().parse_args(arguments)
    totals, is_fine = [], True
    with tempfile.TemporaryDirectory(prefix="sweep-") as scratch:
        library = build_library(Path(scratch))
        if library is None:
            print(NO_COMPILER)
            return 1
        for device in given.device:
            folder = Path(scratch, device)
            folder.mkdir()
            bed = Bed(folder, library, device)
            outcomes = sweep(bed, given.attack, given.most, given.jobs)
            print(f"{device}:\n\n{table(bed, outcomes)}", flush=True)
            totals = [*(totals or _head("driver", outcomes)), _total(device, bed, outcomes)]
            is_fine &= all(set(ended) <= set(ALLOWED) for ended in outcomes.values())
    if given.docs:
        part = "\n\n".join([_BEGIN, _scope(given.most), "\n".join(totals), _END])
        text = re.sub(f"{_BEGIN}.*{_END}", lambda _: part, DOCUMENT.read_text(), flags=re.DOTALL)
        DOCUMENT.write_text(text)
    return 0 if is_fine else 1


def _scope(most: int | None) -> str:
    if most is None:
        return f"At every call of each function; deaths at up to {MOST_DEATHS} calls of each."
    return f"At up to {most} calls of each function, the first and the last among them."


def sweep(bed: Bed, names: Sequence[str], most: int | None, jobs: int) -> Outcomes:
    """Run every fault of these attacks; print findings."""
    outcomes: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)

    def tried(entry: tuple[Attack, Fault]) -> None:
        attack, fault = entry
        ran = bed.run(attack, fault)
        outcomes[attack.name, fault.call][ran.outcome] += 1
        if ran.outcome not in ALLOWED:
            print(f"{attack.name}: {fault}: {ran.outcome}", flush=True)

    entries = [
        (attack, fault)
        for attack in ATTACKS
        if attack.name in names
        for fault in bed.faults(attack, most or (MOST_DEATHS if "death" in attack.name else None))
    ]
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(tried, entries))
    return outcomes


def table(bed: Bed, outcomes: Outcomes) -> str:
    """Return the outcomes as a Markdown table: functions as rows, attacks as columns."""
    functions = sorted({function for _, function in outcomes})
    rows = [_row(each, bed, outcomes, [each]) for each in functions]
    return "\n".join([*_head("function", outcomes), *rows, _total("all", bed, outcomes)])


def _attacks(outcomes: Outcomes) -> list[str]:
    return [a.name for a in ATTACKS if any(name == a.name for name, _ in outcomes)]


def _head(what: str, outcomes: Outcomes) -> list[str]:
    attacks = _attacks(outcomes)
    return [
        f"| {what} | calls | {' | '.join(attacks)} | neither |",
        "|---|---|" + "---|" * len(attacks) + "---|",
    ]


def _total(name: str, bed: Bed, outcomes: Outcomes) -> str:
    """Return the row of all functions."""
    functions = {*bed.calls(ATTACKS[0]), *(function for _, function in outcomes)}
    return _row(name, bed, outcomes, functions)


def _row(name: str, bed: Bed, outcomes: Outcomes, functions: Collection[str]) -> str:
    """Return the outcomes of runs with a fault at a call of these functions."""
    calls = sum(bed.calls(ATTACKS[0])[each] for each in functions)
    ended = [
        sum((outcomes.get((attack, each), Counter()) for each in functions), Counter[str]())
        for attack in _attacks(outcomes)
    ]
    neither = sum(
        count for each in ended for outcome, count in each.items() if outcome not in ALLOWED
    )
    return f"| {name} | {calls} | {' | '.join(map(_cell, ended))} | {neither} |"


def _cell(ended: Counter[str]) -> str:
    """Return the counts of right rows, of nodes on the CPU, and of exit code 2."""
    if not ended:
        return "-"
    return f"{ended[RIGHT]} / {ended[LEFT] + ended[LOST]} / {ended[CPU]}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.attacks.sweep",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [attack.name for attack in ATTACKS]
    add = parser.add_argument
    add("--device", nargs="+", default=["pocl", "rusticl"], metavar="WORD", help="of their names")
    add("--attack", nargs="+", default=names, choices=names, help="all unless some are named")
    add("--most", type=int, metavar="N", help="at so many calls of each function, not at all")
    add("--jobs", type=int, default=2, metavar="J", help="runs at a time")
    add("--docs", action="store_true", help="write the totals into docs/reliability.md")
    return parser


if __name__ == "__main__":
    sys.exit(main())
