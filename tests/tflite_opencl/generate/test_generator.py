# SPDX-License-Identifier: Apache-2.0
"""Generator on each device, beside floats in numpy and TFLite's reference kernels."""

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
# All nodes of the small model: the CPU would be faster.
FORCED: dict[str, Any] = {"min_nodes_per_partition": 1, "tune": "off"}


@pytest.fixture(scope="module")
def reference(model: Path) -> Iterator[Generator]:
    """Return it on TFLite's reference kernels."""
    with Generator(model, cpu_kernels="reference") as made:
        yield made


@pytest.fixture(scope="module")
def ours(device: DeviceInfo, model: Path) -> Iterator[Generator]:
    """Return it on a device."""
    with Generator(model, device.index, **FORCED) as made:
        yield made


def divergence(logits: NDArray[Any], floats: NDArray[Any]) -> float:
    """Return Kullback and Leibler's divergence of what logits say from what floats say."""
    one, other = (x - x.max() - np.log(np.exp(x - x.max()).sum()) for x in (floats, logits))
    return float((np.exp(one) * (one - other)).sum())


@slow
@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 100])
def test_prompts_of_any_length(count: int, ours: Generator, floats: FloatLlama) -> None:
    ours.reset()
    found = ours.logits(PROMPT[:count]).astype(np.float64)
    wanted = floats.logits(PROMPT[:count])[-1]
    assert divergence(found, wanted) < 0.3
    assert np.sqrt(((found - wanted) ** 2).mean()) < 0.15 * wanted.std()


def test_tokens_are_the_reference_s(ours: Generator, reference: Generator) -> None:
    assert "of" in ours.nodes
    for each in (ours, reference):
        each.reset()
    found, wanted = (list(each.generate(PROMPT[:20], 40)) for each in (ours, reference))
    assert len(wanted) == 40
    assert found == wanted
    assert len({*found}) > 10


@where_rows_are_known
def test_all_runs_on_the_device(ours: Generator) -> None:
    taken, _, count = ours.nodes.partition(" of ")
    assert taken == count


def test_what_is_known_is_not_run_again(ours: Generator, reference: Generator) -> None:
    for each in (ours, reference):
        each.reset()
        each.logits(PROMPT[:70])
    changed = [*PROMPT[:65], PROMPT[0], PROMPT[1]]
    np.testing.assert_allclose(ours.logits(changed), reference.logits(changed), atol=1e-2)
    again = ours.logits(changed)
    ours.reset()
    np.testing.assert_allclose(again, ours.logits(changed), atol=1e-2)


def test_a_full_cache_is_a_clear_end(ours: Generator) -> None:
    ours.reset()
    long = (PROMPT * 2)[: PLACES - 5]
    assert len(list(ours.generate(long))) == 6  # the last one needs no place
    assert len(ours.logits((PROMPT * 2)[:PLACES])) == len(vocabulary())
    with pytest.raises(Full, match=f"there is room for {PLACES} tokens, and these are 100000"):
        ours.logits(PROMPT * 1000)


def test_the_last_places_are_the_reference_s(ours: Generator, reference: Generator) -> None:
    """No piece fits there, and one that did not fit would be written over others."""
    for each in (ours, reference):
        each.reset()
    tokens = (PROMPT * 2)[:PLACES]
    found, wanted = (each.logits(tokens) for each in (ours, reference))
    np.testing.assert_allclose(found, wanted, atol=1e-2)


@slow
def test_a_prompt_of_pieces_alone_fills_all_places(
    device: DeviceInfo, gguf_file: Path, floats: FloatLlama
) -> None:
    path = model_of_gguf(str(gguf_file), "int8", 512)
    tokens = (PROMPT * 6)[:512]
    with Generator(path, device.index, **FORCED) as made:
        found = made.logits(tokens).astype(np.float64)
        assert len(list(made.generate(tokens))) == 1
    assert divergence(found, floats.logits(tokens)[-1]) < 0.3


def test_tokens_that_are_none_are_refused(ours: Generator) -> None:
    for wrong in ([], [-1], [len(vocabulary())]):
        with pytest.raises(ValueError, match="tokens"):
            ours.logits(wrong)


def test_a_state_is_saved_and_put_back(ours: Generator) -> None:
    ours.reset()
    ours.logits(PROMPT[:70])
    kept = ours.state()
    assert kept.tokens == tuple(PROMPT[:70])
    assert {values.shape[1] for values in kept.caches.values()} == {70}
    wanted = ours.logits(PROMPT[:71])
    ours.reset()
    ours.logits(PROMPT[5:50])
    ours.set_state(kept)
    np.testing.assert_array_equal(ours.logits(PROMPT[:71]), wanted)


def test_a_state_of_another_model_is_refused(reference: Generator) -> None:
    reference.reset()
    reference.logits(PROMPT[:3])
    kept = reference.state()
    for wrong in ({}, {name: values[:1] for name, values in kept.caches.items()}):
        with pytest.raises(ValueError, match="cache"):
            reference.set_state(type(kept)(kept.tokens, wrong))
    assert len(reference.logits(PROMPT[:4])) == len(vocabulary())


def test_a_reset_computes_all_anew(reference: Generator) -> None:
    reference.reset()
    one = list(reference.generate(PROMPT[:10], 5))
    list(reference.generate(PROMPT[3:30], 5))
    reference.reset()
    assert list(reference.generate(PROMPT[:10], 5)) == one


def test_two_generators_know_nothing_of_each_other(
    device: DeviceInfo, ours: Generator, model: Path, reference: Generator
) -> None:
    reference.reset()
    wanted = list(reference.generate(PROMPT[:9], 6))
    with Generator(model, device.index, **FORCED) as other:
        ours.reset()
        one, two = (each.generate(PROMPT[:9], 6) for each in (ours, other))
        other.logits(PROMPT[20:60])  # which the other one does not see
        pairs = list(zip(one, two, strict=True))
    assert [a for a, _ in pairs] == [b for _, b in pairs] == wanted


def test_drawn_tokens_are_drawn_again_by_their_seed(reference: Generator) -> None:
    def drawn(seed: int) -> list[int]:
        return list(reference.generate(PROMPT[:5], 20, temperature=1.0, top_k=40, seed=seed))

    assert drawn(1) == drawn(1) != drawn(2)


@slow
@given(st.text(max_size=40))
@example("")
@example("é🙂 汉字 \u202e")
@example("\x00\x1b[31m")
@example("a\udcff")
def test_an_answer_to_any_text(reference: Generator, text: str) -> None:
    tokens = reference.text.conversation([{"role": "user", "content": text}])
    try:
        answer = "".join(reference.answer(text, count=8))
    except Full:
        assert len(tokens) > PLACES
    else:
        assert reference.text.decode(list(reference.generate(tokens, 8))).startswith(answer)


def test_after_a_run_that_fails_the_next_one_is_right(
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


def test_a_gguf_file_is_made_into_a_model(gguf_file: Path, reference: Generator) -> None:
    reference.reset()
    with Generator(gguf_file, cpu_kernels="reference", weights="int8", places=PLACES) as made:
        assert made.places == PLACES
        assert list(made.generate(PROMPT[:5], 9)) == list(reference.generate(PROMPT[:5], 9))


def test_a_tflite_that_computes_wrongly_is_refused(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = dataclasses.replace(find_runtime(), name="tflite-runtime")
    monkeypatch.setattr(runner, "find_runtime", lambda: older)
    with pytest.raises(CommandError, match=r"^tflite-runtime multiplies .*: pip install ai-edge-"):
        Generator(model, cpu_kernels="builtin")


def test_after_the_end_a_run_is_refused(device: DeviceInfo, model: Path) -> None:
    made = Generator(model, device.index, **FORCED)
    made.logits(PROMPT[:3])
    made.close()
    made.close()
    with pytest.raises(CommandError, match="does not run"):
        made.logits(PROMPT[:4])


def _beside(model: Path, folder: Path, content: bytes) -> Path:
    for name in (FILE, CONFIG_FILE):
        (folder / name).write_bytes((model.parent / name).read_bytes())
    (folder / "model.tflite").write_bytes(content)
    return folder / "model.tflite"


def test_what_is_no_language_model_is_one_line(model: Path, tmp_path: Path) -> None:
    x = t((1, 4))
    for content in (chain_model([op("NEG", [x], [t((1, 4))])]), two_signatures(), b"none"):
        with pytest.raises(Exception, match="model") as caught:
            Generator(_beside(model, tmp_path, content), cpu_kernels="builtin")
        assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_one_line(model: Path, tmp_path: Path) -> None:
    path = _beside(model, tmp_path, b"")
    path.unlink()
    with pytest.raises(CommandError, match="cannot read"):
        Generator(path, cpu_kernels="builtin")


@slow
@pytest.mark.parametrize("weights", KINDS)
def test_the_real_model_says_what_gravity_is(device: DeviceInfo, weights: str) -> None:
    if "llvmpipe" in device.name:
        pytest.skip("it takes minutes on llvmpipe")
    try:
        path = maker.model_of_gguf(None, weights, maker.PLACES)
    except CommandError as error:
        pytest.skip(str(error))
    with Generator(path, device.index, tune="off") as made:
        text = "".join(made.answer("What is gravity?", count=11))
    assert text == "Gravity is a fundamental concept in physics that describes the"
