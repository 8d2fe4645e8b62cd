# SPDX-License-Identifier: Apache-2.0
"""The summary after label_image's own lines: facts and tables. Everything here returns text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rich import box
from rich.console import JustifyMethod, RenderableType
from rich.table import Table

from delegate import DeviceInfo
from delegate.inspect import Portion
from label_image.compare import CPU, Totals
from label_image.judgement import Judgement, PathResults
from label_image.run_result import RunResult
from tflite_opencl.console.tables import render
from tflite_opencl.harness.chain import share_text
from tflite_opencl.harness.job import Delegation

_PHASES = ("device", "build", "tune", "upload")
# Rows of the table for paths timed on one picture, and for paths that ran many.
_OF_TIMED = (
    ("average, ms", "{.average_ms:.3f}"),
    ("minimum, ms", "{.min_ms:.3f}"),
    ("median, ms", "{.median_ms:.3f}"),
    ("runs", "{.runs}"),
    ("CPU load", "{.cpu_load:.2f} cores"),
)
_OF_MANY = (
    ("model alone, pictures/s", "{.per_second:.1f}"),
    ("model alone, ms a picture", "{.picture_ms:.3f}"),
    ("CPU load", "{.cpu_load:.2f} cores"),
)

Facts = list[tuple[str, str]]  # labels and texts


def summary_text(
    judgement: Judgement,
    kernels: str,
    width: int = 80,
    more: Sequence[tuple[str, str]] = (),
    flag: str | None = None,
) -> str:
    """Return a table with one column per path, then facts, then the nodes left to the CPU and why.

    `kernels`: the CPU's, as named by Runtime.kernels. `more`: facts about all pictures. `flag`:
    None: all of this; else one line has the times instead of the table, facts that change neither
    the verdict nor the times are left out, and the last line names the flag that shows all, if any.
    """
    gpu, is_timed = judgement.results.gpu, judgement.results.job.is_timed
    facts = [] if is_timed else [*count_facts(judgement.totals), *more]
    shown: list[RenderableType] = []
    if flag is None:
        shown.append(_path_table(judgement.results, kernels))
        facts += speedup_facts(judgement)
    else:
        facts += _time_facts(judgement.results, kernels)
    facts += comparison_facts(judgement, kernels, is_short=flag is not None)
    shown.append(grid := Table.grid(padding=(0, 2)))
    for fact in facts:
        grid.add_row(*fact)
    if rows := refusals(gpu.delegation if gpu else None):
        shown.append(refused := table_of("left to the CPU", "count", "why", "nodes", numbers=(1,)))
        for row in rows:
            refused.add_row(*row)
    if flag:
        shown.append(f"{flag} shows all times, loads and the tuning")
    text = render(width, *shown)
    return text if flag is None else f"\n{text}"  # a table begins with an empty line


def _path_table(results: PathResults, kernels: str) -> Table:
    untuned, ours = results.untuned, _our_name(results)
    columns = {
        f"{ours}, tuned" if untuned else ours: results.gpu, f"{ours}, first": untuned,
        "EXTERNAL" if results.cpu_name == "external" else f"CPU, {kernels}": results.cpu,
    }  # fmt: skip
    paths = {name: result for name, result in columns.items() if result is not None}
    table = table_of("")
    for name, result in paths.items():
        heading = name if results.job.is_timed else f"{name}, {_at_once(result)}"
        table.add_column(heading, justify="right")
    for word, texts in path_rows([*paths.values()]):
        table.add_row(word, *texts)
    return table


def _time_facts(results: PathResults, kernels: str) -> Facts:
    """Return the time of each path, and how many times as fast OpenCL is, as one fact."""
    cpu = "EXTERNAL" if results.cpu_name == "external" else f"CPU ({kernels})"
    both = {_our_name(results): results.gpu, cpu: results.cpu}
    texts = []
    for name, result in both.items():
        if result is not None and (times := result.comparison_times) is not None:
            texts.append(f"{name} {times.average_ms:.3f} ms")
        elif result is not None:
            texts.append(f"{name} {result.per_second:.1f} pictures/s ({_at_once(result)})")
    text = ", ".join(texts)
    if (ratio := results.speedup) is not None:
        text += f"; {ratio:.2f} times as fast" + " by medians" * results.job.is_timed
    elif results.have_run:
        text += ": too few runs to compare"
    return [("average" if results.job.is_timed else "model alone", text)]


def _our_name(results: PathResults) -> str:
    return results.job.delegates if results.job.external else "OpenCL"


def _at_once(result: RunResult) -> str:
    return f"{result.batch} at once" if result.batch > 1 else "one by one"


def count_facts(totals: Totals) -> Facts:
    """Return the wall-clock times over all pictures."""
    unreadable = f", {totals.unreadable} not readable" if totals.unreadable else ""
    rate = f", {totals.per_second:.1f}/s by the clock" if totals.seconds else ""
    facts = [("pictures", f"{totals.classified} classified{unreadable}{rate}")]
    if totals.processes:
        children = "1 process" if totals.processes == 1 else f"{totals.processes} processes"
        per_second = 1e3 * totals.processes / max(totals.decoding_ms, 1e-9)
        text = f"{totals.decoding_ms:.2f} ms a picture, in {children}: {per_second:.1f}/s"
        facts.append(("decoding", f"{text}, at the same time"))
    return facts


def devices_text(devices: Sequence[DeviceInfo], width: int = 80) -> str:
    """Return the OpenCL devices as a table; the first column holds values for --device."""
    table = table_of("", "device", "type", "platform", "OpenCL", "driver", numbers=(0,))
    for info in devices:
        # "OpenCL 3.0 PoCL HSTR: pthread-x86_64-pc-linux-gnu-...": the second word is the version.
        version = "".join(info.version.split()[1:2])
        table.add_row(str(info.index), info.name, info.type, info.platform, version, info.driver)
    return render(width, table)


def table_of(*headings: str, numbers: Sequence[int] = ()) -> Table:
    """Return an empty table; `numbers`: the numeric columns."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, heading in enumerate(headings):
        justify: JustifyMethod = "right" if place in numbers else "left"
        table.add_column(heading, justify=justify, overflow="fold")
    return table


def path_rows(results: Sequence[RunResult]) -> list[tuple[str, list[str]]]:
    """Return the times of each path, then its load times: a label, and one text per path."""
    timed = [times for each in results if (times := each.comparison_times) is not None]
    rows = [
        (word, [text.format(each) for each in timed or results])
        for word, text in (_OF_TIMED if timed else _OF_MANY)
    ]
    loads = [times.gpu_load for times in timed]
    if any(load is not None for load in loads):
        rows.append(("GPU load", ["-" if load is None else f"{load:.2f}" for load in loads]))
    rows.append(("load, ms", [f"{each.load_ms:.1f}" for each in results]))
    for phase in _PHASES:
        if any(phase in each.load_parts for each in results):
            parts = [each.load_parts for each in results]
            rows.append((f"  {phase}", [f"{each[phase]:.1f}" if each else "" for each in parts]))
    return rows


def speedup_facts(judgement: Judgement) -> Facts:
    """Return OpenCL's speed-up; nothing if one of the paths did not run."""
    results = judgement.results
    if (ratio := results.speedup) is None:
        return [("speedup", "too few runs")] if results.have_run else []
    of_many = "OpenCL's pictures/s over the CPU's"
    how = "median of the CPU over OpenCL's" if results.job.is_timed else of_many
    return [("speedup", f"{ratio:.2f} ({how})")]


def comparison_facts(judgement: Judgement, kernels: str, is_short: bool = False) -> Facts:
    """Return what was delegated, and the paths' differences; nothing without OpenCL.

    `is_short`: without the driver, the tuning, and how far TFLite's own paths are apart.
    """
    results, totals = judgement.results, judgement.totals
    gpu, job = results.gpu, results.job
    if gpu is None or gpu.delegation is None:
        return []
    taken = gpu.delegation
    facts = _device_facts(taken, gpu.portions, is_short)
    partitions = _count(len(taken.partitions), "partition")
    nodes = f"{taken.delegated} of {len(taken.verdicts)} on OpenCL, in {partitions}"
    if taken.library:
        nodes += f", {len(taken.others)} by {taken.library}, {len(taken.on_cpu)} on the CPU"
    facts.append(("nodes", nodes))
    if job.allows_fp16:
        facts.append(("precision", "fp16: floats may be halves"))
    if job.opencl and job.opencl.is_ieee:
        facts.append(("precision", "ieee: the same bits on every device"))
    if taken.tuning_left and not is_short:
        pending = _count(taken.tuning_left, "choice")
        how = "--tune full measures them, as does tflite-opencl tune"
        facts.append(("tuning", f"{pending} not measured: {how}"))
    if why := results.reasons.get(CPU):
        facts.append(("CPU", f"failed: {why}"))
    if totals.distances is None:
        return facts if job.reference else [*facts, ("outputs", "not compared: --compare=false")]
    if not job.is_timed:
        how = "; --compare=all compares each" if judgement.is_sample else ""
        of = f"{totals.compared} of {totals.classified} pictures"
        facts.append(("compared", f"{of}, in {totals.comparing_seconds:.1f} s{how}"))
    facts += _output_facts(judgement, taken, kernels)
    return facts if is_short else facts + _tflite_facts(judgement, kernels)


def _device_facts(taken: Delegation, portions: Sequence[Portion], is_short: bool) -> Facts:
    """Return the device's name, or the share of each of several devices."""
    if not portions:
        driver = "" if is_short else f", driver {taken.driver}"
        return [("device", f"{taken.device} ({taken.platform}{driver})")]
    facts = []
    for portion in portions:
        info = portion.device
        did = f"{portion.pictures} pictures, {rate_of(portion):.1f}/s"
        left_out = f"; left out: {portion.failure}" if portion.failure else ""
        whose = f"{info.name} ({info.platform}, driver {info.driver})"
        facts.append((f"device {info.index}", f"{did}: {whose}{left_out}"))
    return facts


def rate_of(portion: Portion) -> float:  # pictures per second
    return portion.pictures / portion.seconds if portion.seconds else 0.0


def _output_facts(judgement: Judgement, taken: Delegation, kernels: str) -> Facts:
    """Return the differences of OpenCL from the reference kernels."""
    distances, where = judgement.totals.distances, judgement.where if judgement.totals.wrong else ""
    assert distances is not None
    reference, other_kernels = judgement.results.reference, judgement.results.other_kernels
    ours, facts = distances.gpu_to_reference, []
    # Otherwise the CPU's nodes would add their own difference.
    too = "" if not taken.on_cpu else ", which judge OpenCL's part alone"
    if ours.quanta == 0:
        facts.append(("outputs", f"equal to {reference}{too}: 0 quanta"))
    elif ours.quanta is not None:
        apart = _count(ours.quanta, "quantum", "quanta")
        facts.append(("outputs", f"DIFFER from {reference}{too}: {apart}{where}"))
    elif ours.floats is None:
        facts.append(("outputs", f"not compared with the reference kernels: {ours.reason}"))
        if (from_cpu := distances.gpu_to_cpu.floats) is not None:
            facts.append(("", f"floats up to {from_cpu:g} from those of TFLite's {kernels}"))
    if ours.floats is not None:
        how = f"up to {ours.floats:g} from" if ours.floats else "equal to"
        facts.append(("" if facts else "outputs", f"floats {how} {reference}'{too}"))
    if facts and other_kernels:
        facts.append(("", other_kernels))
    if (shares := distances.shares) is not None:
        facts.append(("", f"OpenCL's nodes alone: {share_text(shares.own)}"))
        facts.append(("", f"{taken.library}'s nodes alone: {share_text(shares.library)}"))
    elif taken.others and (ours.quanta or ours.floats):
        whose = f"{taken.library} may have computed otherwise in its nodes"
        facts.append(("", f"{whose}: {', '.join(map(str, taken.others))}"))
    return facts


def _tflite_facts(judgement: Judgement, kernels: str) -> Facts:
    """Return the difference of TFLite's kernels from its reference kernels, if there is one."""
    assert judgement.totals.distances is not None
    theirs = judgement.totals.distances.cpu_to_reference
    own = [_count(theirs.quanta, "quantum", "quanta")] if theirs.quanta else []
    own += [f"up to {theirs.floats:g} in floats"] if theirs.floats else []
    if not own:
        return []
    judge = judgement.results.reference.removeprefix("TFLite's ")
    between = f"between its {kernels} and its {judge}"
    return [("", f"TFLite's own paths differ: {', '.join(own)} {between}")]


def refusals(taken: Delegation | None) -> list[tuple[str, str, str, str]]:
    """Return (op, count, reason, nodes) of the nodes that no delegate took, most nodes first."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for node, op, reason in taken.on_cpu if taken else ():
        groups[op, reason or ""].append(node)
    return [
        (op, str(len(nodes)), reason, ", ".join(map(str, nodes)))
        for (op, reason), nodes in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    ]


def _count(number: int, noun: str, plural: str = "") -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {plural or f'{noun}s'}"
