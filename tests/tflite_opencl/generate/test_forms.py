# SPDX-License-Identifier: Apache-2.0
"""Models in litert-torch's layout: caches as inputs and outputs, several prefills, masks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from delegate import DeviceInfo
from tests.support.llama import carried_model, vocabulary
from tests.support.tiers import slow
from tests.tflite_opencl.generate.conftest import PLACES, runs
from tflite_opencl.generate import Generator
from tflite_opencl.generate.tokens import CONFIG_FILE, FILE

pytestmark = runs
PROMPT = [int(x) for x in np.random.default_rng(3).integers(3, len(vocabulary()), 100)]


@pytest.fixture(scope="module", params=[False, True], ids=["no mask", "mask"])
def carried(
    request: pytest.FixtureRequest,
    gguf_file: Path,
    model: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Return such a file with prefills of 8 and of 32 tokens."""
    path = tmp_path_factory.mktemp("carried") / "model.tflite"
    path.write_bytes(carried_model(gguf_file, PLACES, (8, 32), request.param))
    for name in (FILE, CONFIG_FILE):
        path.with_name(name).write_bytes(model.with_name(name).read_bytes())
    return path


@pytest.mark.parametrize("count", [1, 2, 8, 9, 10, 33, 34, 50, 100, PLACES])
def test_answer_equals_that_of_own_layout(carried: Path, model: Path, count: int) -> None:
    prompt = (PROMPT * 2)[:count]
    with (
        Generator(carried, cpu_kernels="reference") as one,
        Generator(model, cpu_kernels="reference") as other,
    ):
        assert one.places == other.places == PLACES
        np.testing.assert_allclose(one.logits(prompt), other.logits(prompt), atol=1e-3)
        assert list(one.generate(prompt, 12)) == list(other.generate(prompt, 12))


def test_state_can_be_restored(carried: Path) -> None:
    with Generator(carried, cpu_kernels="reference") as generator:
        generator.logits(PROMPT[:40])
        state = generator.state()
        wanted = generator.logits(PROMPT[:41])
        generator.reset()
        generator.logits(PROMPT[7:30])
        generator.set_state(state)
        np.testing.assert_array_equal(generator.logits(PROMPT[:41]), wanted)
        wrong = {name: values[..., :3] for name, values in state.caches.items()}
        with pytest.raises(ValueError, match="this state is of another model"):
            generator.set_state(type(state)(state.tokens, wrong))


@slow
def test_runs_on_device(device: DeviceInfo, carried: Path) -> None:
    with (
        Generator(carried, device.index, min_nodes_per_partition=1, tune="off") as one,
        Generator(carried, cpu_kernels="reference") as other,
    ):
        taken, _, count = one.nodes.partition(" of ")
        assert int(taken) > int(count) // 2
        assert list(one.generate(PROMPT[:40], 8)) == list(other.generate(PROMPT[:40], 8))
