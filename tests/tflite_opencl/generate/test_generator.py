# SPDX-License-Identifier: Apache-2.0
"""Generator on each device, compared with NumPy and TFLite's reference kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from delegate import DeviceInfo
from tests.support.llama import FloatLlama, vocabulary
from tests.support.model import chain_model, op, t
from tests.support.subgraphs import two_signatures
from tests.support.tiers import slow, where_rows_are_known
from tests.tflite_opencl.generate.conftest import PLACES, runs
from tflite_opencl.console.errors import CommandError
from tflite_opencl.generate import Generator, maker, runner
from tflite_opencl.generate.generator import Full
from tflite_opencl.generate.maker import model_of_gguf
from tflite_opencl.generate.tokens import CONFIG_FILE, FILE
from tflite_opencl.generate.weights import KINDS
from tflite_opencl.interpreters.runtime import find_runtime
from tflite_opencl.interpreters.signature import OfSignature

pytestmark = runs
PROMPT = [int(x) for x in np.random.default_rng(3).integers(3, len(vocabulary()), 100)]
# Claim all nodes of the small model, although the CPU would be faster.
FORCED: dict[str, Any] = {"min_nodes_per_partition": 1, "tune": "off"}


@pytest.fixture(scope="module")
def reference(model: Path) -> Iterator[Generator]:
    """Return a generator on TFLite's reference kernels."""
    with Generator(model, cpu_kernels="reference") as generator:
        yield generator


@pytest.fixture(scope="module")
def ours(device: DeviceInfo, model: Path) -> Iterator[Generator]:
    """Return a generator on a device."""
    with Generator(model, device.index, **FORCED) as generator:
        yield generator


def divergence(logits: NDArray[Any], floats: NDArray[Any]) -> float:
    """Return the Kullback-Leibler divergence between logits and the float reference's."""
    one, other = (x - x.max() - np.log(np.exp(x - x.max()).sum()) for x in (floats, logits))
    return float((np.exp(one) * (one - other)).sum())


@slow
@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 100])
def test_prompt_of_any_length(count: int, ours: Generator, floats: FloatLlama) -> None:
    ours.reset()
    result = ours.logits(PROMPT[:count]).astype(np.float64)
    wanted = floats.logits(PROMPT[:count])[-1]
    assert divergence(result, wanted) < 0.3
    assert np.sqrt(((result - wanted) ** 2).mean()) < 0.15 * wanted.std()


def test_tokens_equal_reference(ours: Generator, reference: Generator) -> None:
    assert "of" in ours.nodes
    for each in (ours, reference):
        each.reset()
    result, wanted = (list(each.generate(PROMPT[:20], 40)) for each in (ours, reference))
    assert len(wanted) == 40
    assert result == wanted
    assert len({*result}) > 10


@where_rows_are_known
def test_all_nodes_run_on_device(ours: Generator) -> None:
    taken, _, count = ours.nodes.partition(" of ")
    assert taken == count


def test_known_prefix_is_not_run_again(ours: Generator, reference: Generator) -> None:
    for each in (ours, reference):
        each.reset()
        each.logits(PROMPT[:70])
    changed = [*PROMPT[:65], PROMPT[0], PROMPT[1]]
    np.testing.assert_allclose(ours.logits(changed), reference.logits(changed), atol=1e-2)
    again = ours.logits(changed)
    ours.reset()
    np.testing.assert_allclose(again, ours.logits(changed), atol=1e-2)


def test_full_cache_ends_answer(ours: Generator) -> None:
    ours.reset()
    long = (PROMPT * 2)[: PLACES - 5]
    assert len(list(ours.generate(long))) == 6  # the last token needs no place
    assert len(ours.logits((PROMPT * 2)[:PLACES])) == len(vocabulary())
    with pytest.raises(Full, match=f"there is room for {PLACES} tokens, and these are 100000"):
        ours.logits(PROMPT * 1000)


def test_last_places_equal_reference(ours: Generator, reference: Generator) -> None:
    """No prefill piece fits there, and one that did not fit would overwrite others."""
    for each in (ours, reference):
        each.reset()
    tokens = (PROMPT * 2)[:PLACES]
    result, wanted = (each.logits(tokens) for each in (ours, reference))
    np.testing.assert_allclose(result, wanted, atol=1e-2)


@slow
def test_prompt_that_fills_cache(device: DeviceInfo, gguf_file: Path, floats: FloatLlama) -> None:
    path = model_of_gguf(str(gguf_file), "int8", 512)
    tokens = (PROMPT * 6)[:512]
    with Generator(path, device.index, **FORCED) as generator:
        outcome = generator.logits(tokens).astype(np.float64)
        assert len(list(generator.generate(tokens))) == 1
    assert divergence(outcome, floats.logits(tokens)[-1]) < 0.3


def test_invalid_tokens_are_refused(ours: Generator) -> None:
    for wrong in ([], [-1], [len(vocabulary())]):
        with pytest.raises(ValueError, match="tokens"):
            ours.logits(wrong)


def test_state_can_be_restored(ours: Generator) -> None:
    ours.reset()
    ours.logits(PROMPT[:70])
    state = ours.state()
    assert state.tokens == tuple(PROMPT[:70])
    assert {values.shape[1] for values in state.caches.values()} == {70}
    wanted = ours.logits(PROMPT[:71])
    ours.reset()
    ours.logits(PROMPT[5:50])
    ours.set_state(state)
    np.testing.assert_array_equal(ours.logits(PROMPT[:71]), wanted)


def test_state_of_other_model_is_refused(reference: Generator) -> None:
    reference.reset()
    reference.logits(PROMPT[:3])
    state = reference.state()
    for wrong in ({}, {name: values[:1] for name, values in state.caches.items()}):
        with pytest.raises(ValueError, match="cache"):
            reference.set_state(type(state)(state.tokens, wrong))
    assert len(reference.logits(PROMPT[:4])) == len(vocabulary())


def test_reset(reference: Generator) -> None:
    reference.reset()
    one = list(reference.generate(PROMPT[:10], 5))
    list(reference.generate(PROMPT[3:30], 5))
    reference.reset()
    assert list(reference.generate(PROMPT[:10], 5)) == one


def test_generators_are_independent(
    device: DeviceInfo, ours: Generator, model: Path, reference: Generator
) -> None:
    reference.reset()
    wanted = list(reference.generate(PROMPT[:9], 6))
    with Generator(model, device.index, **FORCED) as other:
        ours.reset()
        one, two = (each.generate(PROMPT[:9], 6) for each in (ours, other))
        other.logits(PROMPT[20:60])  # invisible to the other one
        pairs = list(zip(one, two, strict=True))
    assert [a for a, _ in pairs] == [b for _, b in pairs] == wanted


def test_seed_reproduces_tokens(reference: Generator) -> None:
    def drawn(seed: int) -> list[int]:
        return list(reference.generate(PROMPT[:5], 20, temperature=1.0, top_k=40, seed=seed))

    assert drawn(1) == drawn(1) != drawn(2)


@slow
@given(st.text(max_size=40))
@example("")
@example("é🙂 汉字 \u202e")
@example("\x00\x1b[31m")
@example("a\udcff")
def test_answer_to_any_text(reference: Generator, text: str) -> None:
    tokens = reference.text.conversation([{"role": "user", "content": text}])
    try:
        answer = "".join(reference.answer(text, count=8))
    except Full:
        assert len(tokens) > PLACES
    else:
        assert reference.text.decode(list(reference.generate(tokens, 8))).startswith(answer)


def test_next_run_after_failure_is_right(
    reference: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference.reset()
    wanted = reference.logits(PROMPT[:90])
    reference.reset()
    runs = 0

    def failing(self: OfSignature) -> None:
        nonlocal runs
        runs += 1
        if runs == 2:
            raise RuntimeError("the device is lost")
        invoke(self)

    invoke = OfSignature.invoke
    monkeypatch.setattr(OfSignature, "invoke", failing)
    with pytest.raises(CommandError, match=r"model\.tflite does not run: the device is lost"):
        reference.logits(PROMPT[:90])
    np.testing.assert_array_equal(reference.logits(PROMPT[:90]), wanted)
    assert runs == 4


def test_gguf_file_is_converted(gguf_file: Path, reference: Generator) -> None:
    reference.reset()
    with Generator(gguf_file, cpu_kernels="reference", weights="int8", places=PLACES) as generator:
        assert generator.places == PLACES
        assert list(generator.generate(PROMPT[:5], 9)) == list(reference.generate(PROMPT[:5], 9))


def test_wrong_tflite_is_refused(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    older = dataclasses.replace(find_runtime(), name="tflite-runtime")
    monkeypatch.setattr(runner, "find_runtime", lambda: older)
    with pytest.raises(CommandError, match=r"^tflite-runtime multiplies .*: pip install ai-edge-"):
        Generator(model, cpu_kernels="builtin")


def test_run_after_close_is_refused(device: DeviceInfo, model: Path) -> None:
    generator = Generator(model, device.index, **FORCED)
    generator.logits(PROMPT[:3])
    generator.close()
    generator.close()
    with pytest.raises(CommandError, match="does not run"):
        generator.logits(PROMPT[:4])


def _sibling(model: Path, folder: Path, content: bytes) -> Path:
    for name in (FILE, CONFIG_FILE):
        (folder / name).write_bytes((model.parent / name).read_bytes())
    (folder / "model.tflite").write_bytes(content)
    return folder / "model.tflite"


def test_other_model_is_one_line(model: Path, tmp_path: Path) -> None:
    x = t((1, 4))
    for content in (chain_model([op("NEG", [x], [t((1, 4))])]), two_signatures(), b"none"):
        with pytest.raises(Exception, match="model") as caught:
            Generator(_sibling(model, tmp_path, content), cpu_kernels="builtin")
        assert "\n" not in str(caught.value)


def test_missing_file_is_one_line(model: Path, tmp_path: Path) -> None:
    path = _sibling(model, tmp_path, b"")
    path.unlink()
    with pytest.raises(CommandError, match="cannot read"):
        Generator(path, cpu_kernels="builtin")


@slow
@pytest.mark.parametrize("weights", KINDS)
def test_real_model_explains_gravity(device: DeviceInfo, weights: str) -> None:
    if "llvmpipe" in device.name:
        pytest.skip("it takes minutes on llvmpipe")
    try:
        path = maker.model_of_gguf(None, weights, maker.PLACES)
    except CommandError as error:
        pytest.skip(str(error))
    with Generator(path, device.index, tune="off") as generator:
        text = "".join(generator.answer("What is gravity?", count=11))
    assert text == "Gravity is a fundamental concept in physics that describes the"
