# SPDX-License-Identifier: Apache-2.0
"""Resolved sources compute what the originals do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from delegate import DeviceInfo, Options
from tests.support.tiers import slow
from tflite_opencl.conformance.cases import all_cases
from tflite_opencl.faults.shrink import Candidate
from tflite_opencl.faults.source import programs_of
from tflite_opencl.faults.trial import RIGHT, Replayer
from tflite_opencl.interpreters.runtime import find_runtime
from tflite_opencl.oracle.values import input_sets

CASES = (
    "average_pool_2d/int8/in1x7x5x3-k2x2-stride2x2-same",
    "conv_2d/int8/in6x16x16-k3x3-out1-same",
    "fully_connected/int8/in2x3x1-out1",
    "max_pool_2d/float16/in1x8x8x16-k7x5-stride1x1-same",
    "rfft2d/float32/in3x64-by1x64-complex_abs",  # several launches, whose tensors share memory
)


@slow
@pytest.mark.device
def test_resolved_sources(device: DeviceInfo) -> None:
    runtime, count = find_runtime(), 0
    cases = {case.name: case for case in all_cases() if case.name in CASES}
    assert sorted(cases) == sorted(CASES)
    with Replayer(Options(device=device.index), runtime) as replayer:
        for case in cases.values():
            graph = case.make()
            candidate = Candidate(graph, input_sets(graph)[0])
            for name, _ in replayer.alternatives(candidate):
                fault = replayer.fault(candidate, name, {})
                if replayer.outcome(fault).kind != RIGHT:
                    continue  # an instruction that this device lacks, or a fault of the driver
                given = fault.reproducer
                sources = programs_of(given, replayer.raw)
                calls = tuple(
                    replace(c, program=replace(c.program, source=sources[c.program.source]))
                    for c in given.calls
                )
                options = tuple(each for each in given.options if not each.startswith("-DOWN"))
                other = replace(given, calls=calls, options=options)
                outcome = replayer.outcome(replace(fault, reproducer=other))
                assert outcome.kind == RIGHT, (case.name, name, outcome)
                assert not any("#if" in source for source in sources.values())
                count += 1
    assert count >= len(CASES)
