# SPDX-License-Identifier: Apache-2.0
"""Kinds of files that one process reads: valid seeds, and verdicts on mutations.

A verdict returns, even if the file is refused, or raises an exception, which is a finding.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, features

from delegate import ModelError, ops
from delegate.errors import Unsupported
from delegate.graph.infer import infer
from delegate.graph.ir import Node
from delegate.graph.partition import dynamic_tensors, partition_of
from delegate.host.tflite.library import installed_rules
from delegate.inspect import Graph, read_model, write_model
from delegate.isa import FEATURES, instructions
from delegate.launch import Alternative, Constant, Schedule, Step
from delegate.plan.layout import layout_of
from delegate.plan.passes import run_passes
from delegate.target import Target
from tests.attacks.fuzz import edits, headers
from tests.attacks.fuzz.edits import Edit
from tests.support.pictures import encoded, random_pixels
from tflite_opencl.conformance.cases import all_cases
from tflite_opencl.console.errors import CommandError
from tflite_opencl.console.exit_codes import ERROR, USAGE
from tflite_opencl.generate.llama import Llama
from tflite_opencl.generate.maker import model_of_gguf
from tflite_opencl.generate.tokens import CONFIG_FILE, FILE, Tokens, files_of
from tflite_opencl.pictures.image import PictureError, load_picture, to_input

SMALL_BYTES = 4000  # of a model, small so that a changed byte matters
_EVERY = 11  # few cases of the suite, some of every op
_ALL = frozenset(feature.name for feature in FEATURES)
_RULES = installed_rules()
_TARGETS = (
    Target(isa=_ALL - {*instructions("cpu")}, rules=_RULES),
    Target("cpu", 8, 2, isa=_ALL - {*instructions("gpu")}, rules=_RULES),
    Target("gpu", 1, 132, isa=frozenset({*instructions("gpu"), "nearest"}), rules=_RULES),
)
_MOST_CONSTANT_BYTES = 1 << 24  # larger constants are not packed, to save time
_GGUF_PLACES = 16
_ALIGNMENT = 32  # of the data after a GGUF header
_EVERY_KEY = {
    "general__alignment": _ALIGNMENT, "llama__attention__key_length": 16,
    "llama__rope__scaling__type": "none", "llama__expert_count": 0,
    "tokenizer__ggml__add_bos_token": False,
    "tokenizer__chat_template": "{{ messages[0]['content'] }}",
}  # fmt: skip
_OTHERS = (("P", "GIF"), ("L", "TIFF"), ("CMYK", "TIFF"), ("RGB", "TGA"), ("RGB", "PPM"))


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file.

    Attributes:
        seeds: returns valid files by name; verdict: takes a file's bytes, and its path;
        drawn: draws edits of one; cpu_seconds, memory_bytes: limits for a file.
    """

    name: str
    seeds: Callable[[], Mapping[str, bytes]]
    verdict: Callable[[bytes, Path], None]
    drawn: Callable[[random.Random, bytes], list[Edit]] = edits.drawn
    cpu_seconds: int = 10
    memory_bytes: int = 1 << 30


def small_models() -> dict[str, bytes]:
    """Return small models of every op, by case name."""
    results = {}
    for case in list(all_cases())[::_EVERY]:
        if case.check == "values" and not case.is_heavy:
            model = write_model(case.make())
            if len(model) <= SMALL_BYTES:
                results[case.name] = model
    return results


def _read_model(data: bytes, path: Path) -> None:
    """Process a model like OpenCLDelegate and Model, up to the use of a device."""
    try:
        graph = infer(read_model(data))
    except ModelError:
        return
    dynamic_tensors(graph, claimed=())
    for target in _TARGETS:
        taken = [node for node in graph.nodes if _lowered(node, target)]
        if taken:
            _planned(graph, taken, target)


def _lowered(node: Node, target: Target) -> tuple[Alternative, ...]:
    if not node.outputs:
        return ()
    if all(tensor.is_folded for tensor in node.outputs):
        return (Alternative("constant", ()),)
    try:
        return ops.lower(node, target)
    except Unsupported:
        return ()


def _planned(graph: Graph, taken: list[Node], target: Target) -> None:
    """Rewrite the nodes as one partition, lay it out and pack its constants."""
    partition = run_passes(
        partition_of(graph, [node.index for node in taken]),
        lambda node: bool(_lowered(node, target)),
    )
    results = [_lowered(node, target) for node in partition.nodes]
    for place in range(max(map(len, results))):
        steps = [
            Step(node.index, node.op, each[min(place, len(each) - 1)])
            for node, each in zip(partition.nodes, results, strict=True)
        ]
        schedule = Schedule(tuple(steps), partition.inputs, partition.outputs)
        layout_of(schedule)
        for launch in schedule.launches:
            for value in launch.params.values():
                if isinstance(value, Constant) and value.size_bytes <= _MOST_CONSTANT_BYTES:
                    packed = value.pack().nbytes
                    assert packed == value.size_bytes, f"{launch.kernel} packs {packed} bytes"


def _pictures() -> dict[str, bytes]:
    results = {}
    pixels = random_pixels(9, 7, 4)
    wide = Image.fromarray((random_pixels(9, 7).astype(np.int32) << 8).astype(np.uint16))
    kinds = [(mode, kind) for kind in ("PNG",) for mode in ("RGBA", "RGB", "P", "L", "1")]
    kinds += [(mode, "JPEG") for mode in ("RGB", "L", "CMYK")] + [("RGB", "BMP"), ("P", "BMP")]
    kinds += [("RGB", name.upper()) for name in ("webp", "avif") if features.check(name)]
    kinds += [("RGB", "JPEG2000")] if features.check("jpg_2000") else []
    for mode, kind in (*kinds, *_OTHERS):
        image = Image.fromarray(pixels)
        results[f"{mode} {kind}"] = encoded(
            image if mode == "RGBA" else image.convert("RGB").convert(mode), kind
        )
    results["progressive JPEG"] = encoded(
        Image.fromarray(pixels[..., :3]), "JPEG", progressive=True
    )
    results["16 bits PNG"] = encoded(wide, "PNG")
    results["LZW TIFF"] = encoded(Image.fromarray(pixels[..., :3]), "TIFF", compression="tiff_lzw")
    exif = Image.Exif()
    exif[0x0112] = 6
    results["turned JPEG"] = encoded(Image.fromarray(pixels[..., :3]), "JPEG", exif=exif)
    return results


def _read_picture(data: bytes, path: Path) -> None:
    path.write_bytes(data)
    try:
        pixels = load_picture(path)
    except PictureError:
        return
    assert pixels.ndim == 3, pixels.shape
    assert pixels.shape[2] == 3, pixels.shape
    assert to_input(pixels, (1, 8, 8, 3), np.uint8).shape == (1, 8, 8, 3)


@cache
def _gguf() -> bytes:
    # Only this kind needs the extra [generate].
    from tests.support.llama import write_gguf

    with tempfile.TemporaryDirectory() as folder:
        return write_gguf(Path(folder, "drawn.gguf"), **_EVERY_KEY).read_bytes()


def _gguf_header() -> bytes:
    last = headers.fields_of(_gguf())[-1]
    return _gguf()[: last.at + last.size]


def _read_gguf(data: bytes, path: Path) -> None:
    """Convert a file with this header, and its tokenizer, to .tflite."""
    weights = _gguf()[-(-len(_gguf_header()) // _ALIGNMENT) * _ALIGNMENT :]
    path.write_bytes(data + bytes(-len(data) % _ALIGNMENT) + weights)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            model = model_of_gguf(str(path), "q4_1", _GGUF_PLACES)
        except CommandError as error:
            _require_one_line(error)
            if isinstance(error.__cause__, MemoryError) or error.code not in (ERROR, USAGE):
                raise
        else:
            shutil.rmtree(model.parent)
    assert not warned, warned[0].message  # more than one line


def _require_one_line(error: CommandError) -> None:
    assert "\n" not in str(error), error


def _tokenizers() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "drawn.gguf")
        path.write_bytes(_gguf())
        return {"drawn": b"\0".join(files_of(Llama(str(path))).values())}


def _read_tokenizer(data: bytes, path: Path) -> None:
    """Tokenise and detokenise text with a model's two files, which are separated by a zero byte."""
    path.mkdir(exist_ok=True)
    for name, content in zip((FILE, CONFIG_FILE), data.split(b"\0", 1), strict=False):
        path.joinpath(name).write_bytes(content)
    try:
        tokens = Tokens(path)
        result = tokens.conversation([{"role": "user", "content": "hello, world: 12 \u00e9"}])
        "".join(map(tokens.stream(), result))
        tokens.decode(range(tokens.count))
    except CommandError as error:
        _require_one_line(error)


KINDS = {
    kind.name: kind
    for kind in (
        Kind("reader", small_models, _read_model),
        Kind("pictures", _pictures, _read_picture),
        Kind(
            "gguf",
            lambda: {"drawn": _gguf_header()},
            _read_gguf,
            headers.drawn,
            cpu_seconds=1,
            memory_bytes=100 << 20,
        ),
        Kind("tokenizers", _tokenizers, _read_tokenizer),
    )
}
