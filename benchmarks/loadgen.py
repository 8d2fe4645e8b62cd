# SPDX-License-Identifier: Apache-2.0
"""MLPerf's LoadGen drives a classifier: SingleStream and Offline, for speed and for accuracy.

Its files are kept unchanged. It is no official submission: neither the pictures nor the
durations are MLPerf's.
"""

from __future__ import annotations

import csv
import json
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Skipped, imported
from delegate import Model
from tflite_opencl.pictures.decode import PictureError
from tflite_opencl.pictures.find_pictures import picture_paths
from tflite_opencl.pictures.image import load_picture, to_input

_SUMMARY, _ACCURACY = "mlperf_log_summary.txt", "mlperf_log_accuracy.json"
_RANDOM = 64  # random inputs, if there are no pictures
_TRIAL_S = 0.5  # to measure the rate for Offline
# The lines of a summary to show, by scenario.
_SHOWN = {
    "SingleStream": ("90.0th percentile latency (ns)", "50.00 percentile latency (ns)"),
    "Offline": ("Samples per second",),
}
_ALWAYS = ("Result is", "Min duration satisfied", "Min queries satisfied")


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples, which LoadGen requests by number."""

    inputs: Sequence[NDArray[Any]]
    right: Sequence[frozenset[int]]  # right classes; () if unknown


def samples_of(model: Model, pictures: Path | None, expected: Path | None) -> Samples:
    """Return the inputs of a model: pictures with their classes, or random ones.

    `expected`: a CSV file with the columns file, index (from 0, without a background) and also_ok.
    Raises: Skipped: there is no picture.
    """
    details, (output, *_) = model.input_details[0], model.output_details
    shape = (1, *details.shape[1:])
    if pictures is None:
        random = np.random.default_rng(1)
        values = random.integers(0, 128, (_RANDOM, *shape))
        return Samples([*values.astype(details.dtype)], ())
    known: Mapping[str, frozenset[int]] = {}
    if expected is not None:
        known = _expected(expected, background=int(output.shape[-1] == 1001))
    inputs, right = [], []
    for path in picture_paths([str(pictures)]):
        name = Path(path).name
        if expected is not None and name not in known:
            continue
        try:
            inputs.append(to_input(load_picture(path), shape, details.dtype))
        except (OSError, PictureError) as error:
            raise Skipped(f"{path}: {error}") from error
        right.append(known.get(name, frozenset()))
    if not inputs:
        raise Skipped(f"there is no picture in {pictures} that {expected or 'anybody'} knows")
    return Samples(inputs, right if expected is not None else ())


def _expected(path: Path, background: int) -> dict[str, frozenset[int]]:
    with path.open(encoding="utf-8", newline="") as file:
        return {
            Path(row["file"]).name: frozenset(
                int(number) + background
                for number in (row["index"], *(row.get("also_ok") or "").split())
            )
            for row in csv.DictReader(file)
        }


class SystemUnderTest:
    """A model as LoadGen's system under test, which runs queries in a thread."""

    def __init__(self, loadgen: Any, model: Model, samples: Samples) -> None:
        self._loadgen, self._model, self._samples = loadgen, model, samples

    def run(self, scenario: str, mode: str, seconds: float, folder: Path) -> dict[str, str]:
        """Let LoadGen test, and return its summary's facts; its files are in the folder."""
        loadgen = self._loadgen
        folder.mkdir(parents=True, exist_ok=True)
        settings = loadgen.TestSettings()
        settings.scenario = getattr(loadgen.TestScenario, scenario)
        settings.mode = getattr(loadgen.TestMode, mode)
        settings.min_duration_ms = int(1000 * seconds)
        settings.min_query_count = 1
        if scenario == "Offline":
            # LoadGen sends these samples once; too few would end early.
            settings.offline_expected_qps = 2 * self._rate()
        logs = loadgen.LogSettings()
        logs.log_output.outdir = str(folder)
        logs.log_output.copy_summary_to_stdout = False
        logs.enable_trace = False
        count = len(self._samples.inputs)
        system = loadgen.ConstructSUT(self._issue, _nothing)
        library = loadgen.ConstructQSL(count, count, _nothing_of, _nothing_of)
        try:
            loadgen.StartTestWithLogSettings(system, library, settings, logs, "")
        finally:
            loadgen.DestroyQSL(library)
            loadgen.DestroySUT(system)
        return _facts((folder / _SUMMARY).read_text("utf-8"))

    def _issue(self, queries: Sequence[Any]) -> None:
        # LoadGen requires that the callback returns at once.
        requests = [(query.id, query.index) for query in queries]
        threading.Thread(target=self._answer, args=(requests,)).start()

    def _answer(self, asked: Sequence[tuple[int, int]]) -> None:
        size = self._model.batch
        for start in range(0, len(asked), size):
            part = asked[start : start + size]
            outputs = self._outputs([index for _, index in part])
            rows = [np.ascontiguousarray(outputs[number]) for number in range(len(part))]
            self._loadgen.QuerySamplesComplete(
                [
                    self._loadgen.QuerySampleResponse(number, row.ctypes.data, row.nbytes)
                    for (number, _), row in zip(part, rows, strict=True)
                ]
            )

    def _outputs(self, indices: Sequence[int]) -> NDArray[Any]:
        inputs = self._samples.inputs
        batch = np.concatenate([inputs[index] for index in indices])
        first: NDArray[Any] = self._model.run([batch])[0]
        return first

    def _rate(self) -> float:
        """Return samples a second: Offline gets as many as fill its time."""
        begin_s, done = time.perf_counter(), 0
        while (taken_s := time.perf_counter() - begin_s) < _TRIAL_S or not done:
            self._outputs([0] * self._model.batch)
            done += self._model.batch
        return done / taken_s


def _nothing() -> None:
    """Flush no queries: none wait here."""


def _nothing_of(indices: Sequence[int]) -> None:
    """Load and unload nothing: all samples are in memory."""


def _facts(summary: str) -> dict[str, str]:
    """Return the lines "name : value" of a summary."""
    return dict(re.findall(r"^\s*([^:\n]+?)\s*: (.+?)\s*$", summary, re.MULTILINE))


def accuracy(log: str, samples: Samples, dtype: str) -> float:
    """Return the fraction of pictures whose best class is right, from LoadGen's log."""
    results = {}
    for row in json.loads(log):
        output = np.frombuffer(bytes.fromhex(row["data"]), dtype)
        results[row["qsl_idx"]] = int(output.argmax()) in samples.right[row["qsl_idx"]]
    return sum(results.values()) / len(samples.right)


def loadgen(
    model: Path,
    seconds: float,
    folder: Path,
    opened: Callable[[int], Any],
    pictures: Path | None = None,
    expected: Path | None = None,
) -> str:
    """Return LoadGen's results for a model on a device, as lines.

    `seconds`: of each run for speed. `folder`: of its files, as in a submission's results.
    `opened`: a batch -> a context with the Model.
    Raises: Skipped: there is no LoadGen, no model or no picture.
    """
    module = imported("mlperf_loadgen", "mlcommons-loadgen")
    if not model.is_file():
        raise Skipped(f"{model} is not here")
    lines = ["No official MLPerf result: own pictures and durations, LoadGen's own files."]
    for scenario, batch in {"SingleStream": 1, "Offline": 8}.items():
        with opened(batch) as result:
            samples = samples_of(result, pictures, expected)
            driven = SystemUnderTest(module, result, samples)
            facts = driven.run(
                scenario, "PerformanceOnly", seconds, folder / scenario / "performance/run_1"
            )
            facts_lines = [
                f"{name} {facts[name]}" for name in (*_SHOWN[scenario], *_ALWAYS) if name in facts
            ]
            lines.append(f"{scenario}, {batch} at once: {'; '.join(facts_lines)}")
            if samples.right:
                place = folder / scenario / "accuracy"
                driven.run(scenario, "AccuracyOnly", seconds, place)
                log = (place / _ACCURACY).read_text("utf-8")
                part = accuracy(log, samples, result.output_details[0].dtype)
                lines.append(f"{scenario}: top-1 {part:.1%} of {len(samples.right)} pictures")
    return "\n".join([*lines, f"files: {folder}"])
