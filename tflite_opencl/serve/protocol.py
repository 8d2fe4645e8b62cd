# SPDX-License-Identifier: Apache-2.0
"""The Open Inference Protocol, version 2: parses inference requests, and encodes responses.

JSON, and the binary tensor extension. Independent of the HTTP library and of how models run.
Source: the Open Inference Protocol's REST specification; Triton's extension "binary tensor data".
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tflite_opencl.console.errors import RunError
from tflite_opencl.serve.tensors import Array, Arrays, ModelSignature, Named

EXTENSIONS = ("binary_tensor_data",)
LENGTH_HEADER = "Inference-Header-Content-Length"
# A tensor's kind -> the JSON types of its values.
_TYPES: Mapping[str, set[type]] = {"b": {bool}, "u": {int}, "i": {int}, "f": {int, float}}
_UNKNOWN = ("shared_memory_region", "classification")  # extensions that are not supported


class BadRequest(Exception):
    """The request is invalid; the text is one line for the client."""


@dataclass(frozen=True, slots=True)
class Request:
    """An inference request."""

    arrays: Arrays  # (pictures, ...) each, in the order of the model's inputs
    pictures: int
    wanted: Sequence[tuple[int, bool]]  # indices of outputs; whether each is returned as binary
    id: str = ""


@dataclass(slots=True)
class _Bytes:
    """The data after the JSON part, consumed from its start."""

    left: memoryview = field(repr=False)

    def take(self, size: object, name: str) -> memoryview:
        if not isinstance(size, int) or not 0 <= size <= len(self.left):
            raise BadRequest(
                f"input {name}: binary_data_size {size} with {len(self.left)} bytes left"
            )
        taken, self.left = self.left[:size], self.left[size:]
        return taken


def read_request(body: bytes, length: str | None, model: ModelSignature, most: int) -> Request:
    """Parse a request.

    `length`: of the JSON part in bytes, from the header; None: the body is JSON. `most`:
    maximum number of pictures in a request.
    Raises: BadRequest: something is missing, invalid, or unsupported.
    """
    head, rest = _split(body, length)
    try:
        asked = json.loads(bytes(head), parse_constant=_not_json)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is no JSON: {error}") from error
    if not isinstance(asked, dict):
        raise BadRequest("the body is no JSON object")
    inputs = _objects(asked, "inputs")
    given: dict[str, Array] = {}
    names = {each.name: each for each in model.inputs}
    for entry in inputs:
        name = entry.get("name")
        if not isinstance(name, str) or name not in names:
            raise BadRequest(f"there is no input {name!r}: {', '.join(names)}")
        if name in given:
            raise BadRequest(f"input {name} is given twice")
        given[name] = _array(entry, names[name], rest, most if model.takes_several else None)
    if missing := [name for name in names if name not in given]:
        raise BadRequest(f"input {missing[0]} is missing")
    if rest.left:
        raise BadRequest(f"{len(rest.left)} bytes follow the last input's")
    arrays = [given[name] for name in names]
    pictures = {len(array) for array in arrays}
    if len(pictures) > 1:
        raise BadRequest("the inputs' first dimensions differ")
    told = asked.get("id", "")
    (count,) = pictures
    return Request(arrays, count, _wanted(asked, model), told if isinstance(told, str) else "")


def _not_json(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON's; send bytes")


def _split(body: bytes, length: str | None) -> tuple[memoryview, _Bytes]:
    whole = memoryview(body)
    if length is None:
        return whole, _Bytes(whole[len(whole) :])
    is_number = length.isascii() and length.isdigit() and len(length) < 12
    if not is_number or int(length) > len(whole):
        raise BadRequest(f"{LENGTH_HEADER}: {length[:40]} with a body of {len(whole)} bytes")
    return whole[: int(length)], _Bytes(whole[int(length) :])


def _objects(asked: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    entries = asked.get(key, [])
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise BadRequest(f"{key} is no list of objects")
    return entries


def _parameters(entry: Mapping[str, Any], what: str) -> dict[str, Any]:
    found = entry.get("parameters", {})
    if not isinstance(found, dict):
        raise BadRequest(f"{what}: parameters is no object")
    for name in _UNKNOWN:
        if name in found:
            raise BadRequest(f"{what}: the extension {name} is not served")
    return found


def _array(entry: Mapping[str, Any], tensor: Named, rest: _Bytes, most: int | None) -> Array:
    """Return an input's values, (pictures, ...); `most`: pictures, None: the model takes one."""
    what = f"input {tensor.name}"
    if entry.get("datatype") != tensor.datatype:
        raise BadRequest(f"{what} is {tensor.datatype}, not {entry.get('datatype')!r:.40}")
    shape = entry.get("shape")
    if not isinstance(shape, list) or not all(map(_is_count, shape)):
        raise BadRequest(f"{what}: shape is no list of numbers")
    if shape != ([*shape[:1], *tensor.row] if most else [*tensor.shape]):
        told = tensor.metadata(most is not None)["shape"]
        raise BadRequest(f"{what} has the shape {told}, not {shape!s:.80}")
    pictures = shape[0] if most else 1
    if not 1 <= pictures <= (most or 1):
        raise BadRequest(f"{pictures} pictures: a request takes 1 to {most} of this model's")
    parameters = _parameters(entry, what)
    if (size := parameters.get("binary_data_size")) is not None:
        if "data" in entry:
            raise BadRequest(f"{what} has both data and binary_data_size")
        values = _of_bytes(rest.take(size, tensor.name), tensor, math.prod(shape))
    else:
        values = _of_json(entry, tensor, math.prod(shape))
    return values.reshape(pictures, *tensor.row)


def _of_bytes(content: memoryview, tensor: Named, count: int) -> Array:
    if len(content) != count * tensor.dtype.itemsize:
        wanted = count * tensor.dtype.itemsize
        raise BadRequest(f"input {tensor.name} takes {wanted} bytes, not {len(content)}")
    if tensor.dtype == bool:  # bytes other than 0 and 1 are no valid numpy bools
        return np.not_equal(np.frombuffer(content, np.uint8), 0)
    # Numbers are little-endian on the wire.
    return np.frombuffer(content, tensor.dtype.newbyteorder("<")).astype(tensor.dtype, copy=False)


def _of_json(entry: Mapping[str, Any], tensor: Named, count: int) -> Array:
    what = f"input {tensor.name}"
    data = entry.get("data")
    if not isinstance(data, list):
        raise BadRequest(f"{what} has no data")
    # Check types first: numpy would parse text as numbers, and pad arrays to the longest text.
    while data and type(data[0]) is list:
        if {*map(type, data)} != {list}:
            raise BadRequest(f"{what}: data is no array of numbers")
        data = [*itertools.chain.from_iterable(data)]
    if len(data) != count:
        raise BadRequest(f"{what} takes {count} values, not {len(data)}")
    if not {*map(type, data)} <= _TYPES[tensor.dtype.kind]:
        raise BadRequest(f"{what}: data is no array of {tensor.datatype}")
    if tensor.dtype.kind in "iu" and data:
        limits = np.iinfo(tensor.dtype)
        if min(data) < limits.min or max(data) > limits.max:
            raise BadRequest(f"{what}: a value does not fit into {tensor.datatype}")
    try:
        with np.errstate(over="ignore"):  # an out-of-range float becomes infinity, as in C
            return np.array(data, tensor.dtype)
    except OverflowError as error:
        raise BadRequest(f"{what}: a value does not fit into {tensor.datatype}") from error


def _wanted(asked: Mapping[str, Any], model: ModelSignature) -> Sequence[tuple[int, bool]]:
    told = _parameters(asked, "the request").get("binary_data_output", False)
    names = {each.name: number for number, each in enumerate(model.outputs)}
    entries = _objects(asked, "outputs")
    if not entries:
        return [(number, told is True) for number in names.values()]
    wanted = []
    for entry in entries:
        name = entry.get("name")
        if not isinstance(name, str) or name not in names:
            raise BadRequest(f"there is no output {name!r}: {', '.join(names)}")
        own = _parameters(entry, f"output {name}").get("binary_data", told)
        wanted.append((names[name], own is True))
    return wanted


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def answer(
    name: str, version: str, model: ModelSignature, request: Request, outputs: Arrays, device: str
) -> tuple[bytes, int | None]:
    """Return a response's body, and the length of its JSON part if binary data follows.

    `outputs`: (pictures, ...) each, in the model's order. `device`: what ran the model.
    Raises: RunError: a value is NaN or infinite, which JSON cannot express.
    """
    entries, after = [], []
    for number, is_binary in request.wanted:
        tensor, values = model.outputs[number], outputs[number]
        shape = values.shape if tensor.shape[:1] == (1,) else values.shape[1:]
        entry: dict[str, Any] = {
            "name": tensor.name, "datatype": tensor.datatype, "shape": [*shape],
        }  # fmt: skip
        if is_binary:
            content = values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
            entry["parameters"] = {"binary_data_size": len(content)}
            after.append(content)
        elif values.dtype.kind == "f" and not np.isfinite(values).all():
            raise RunError(
                f"output {tensor.name} has NaN or an infinity, which JSON cannot hold: ask for it "
                'as bytes ("binary_data": true)'
            )
        else:
            entry["data"] = values.reshape(-1).tolist()
        entries.append(entry)
    told: dict[str, Any] = {"model_name": name, "model_version": version}
    told["parameters"] = {"device": device}
    if request.id:
        told["id"] = request.id
    head = json.dumps(told | {"outputs": entries}).encode()
    return b"".join([head, *after]), len(head) if after else None
