# SPDX-License-Identifier: Apache-2.0
"""Valid and invalid requests of the Open Inference Protocol, and responses."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.model import graph_of, op, t
from tflite_opencl.console.errors import CommandError
from tflite_opencl.serve.protocol import BadRequest, Request, answer, read_request
from tflite_opencl.serve.tensors import ModelSignature, Named, signature_of


def model(dtype: str = "uint8", shape: tuple[int, ...] = (1, 2, 2)) -> ModelSignature:
    return ModelSignature(
        (Named("x", np.dtype(dtype), shape),), (Named("y", np.dtype(dtype), shape),)
    )


def entry(**changes: Any) -> dict[str, Any]:
    return {"name": "x", "datatype": "UINT8", "shape": [1, 2, 2], "data": [1, 2, 3, 4], **changes}


def body(*inputs: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"inputs": inputs, **more}).encode()


def binary(content: bytes, size: object, **changes: Any) -> tuple[bytes, str]:
    result = entry(parameters={"binary_data_size": size}, **changes)
    del result["data"]
    head = body(result)
    return head + content, str(len(head))


@pytest.mark.parametrize("data", [[1, 2, 3, 255], [[[1, 2], [3, 255]]]])
def test_json_can_be_flat_or_nested(data: list[Any]) -> None:
    request = read_request(body(entry(data=data), id="7"), None, model(), 4)
    assert request.arrays[0].tolist() == [[[1, 2], [3, 255]]]
    assert request.arrays[0].dtype == np.uint8
    assert (request.pictures, request.wanted, request.id) == (1, [(0, False)], "7")


def test_binary_data_follows_json() -> None:
    request = read_request(*binary(b"\1\2\3\4\5\6\7\xff", 8, shape=[2, 2, 2]), model(), 4)
    assert request.arrays[0].tolist() == [[[1, 2], [3, 4]], [[5, 6], [7, 255]]]
    assert request.pictures == 2


def test_binary_types() -> None:
    content, length = binary(b"\0\0\x80\x3f" * 4, 16, datatype="FP32")
    assert read_request(content, length, model("float32"), 1).arrays[0].tolist() == [[[1, 1]] * 2]
    content, length = binary(b"\0\1\2\xff", 4, datatype="BOOL")
    result = read_request(content, length, model("bool"), 1).arrays[0]
    assert result.view(np.uint8).tolist() == [[[0, 1], [1, 1]]]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"data": [1, 2, 3]}, "takes 4 values, not 3"),
        ({"data": [1, 2, 3, 256]}, "does not fit into UINT8"),
        ({"data": [1, 2, 3, 10**400]}, "does not fit into UINT8"),
        ({"data": [1, 2, 3, -1]}, "does not fit into UINT8"),
        ({"data": [1, 2, 3, 4.0]}, "no array of UINT8"),
        ({"data": [1, 2, 3, True]}, "no array of UINT8"),
        ({"data": ["1", "2", "3", "x" * 1000]}, "no array of UINT8"),
        ({"data": [[1, 2], 3, 4]}, "no array of numbers"),
        ({"data": {"0": 1}}, "has no data"),
        ({"shape": [1, 4]}, "has the shape [-1, 2, 2], not [1, 4]"),
        ({"shape": [5, 2, 2], "data": [1] * 20}, "5 pictures: a request takes 1 to 4"),
        ({"shape": [0, 2, 2], "data": []}, "0 pictures"),
        ({"shape": [10**30, 2, 2]}, "pictures"),
        ({"shape": [1, 2, True]}, "shape is no list of numbers"),
        ({"shape": "122"}, "shape is no list of numbers"),
        ({"datatype": "FP32"}, "is UINT8, not 'FP32'"),
        ({"name": "z"}, "there is no input 'z': x"),
        ({"name": ["x"]}, "there is no input"),
        ({"parameters": []}, "parameters is no object"),
        ({"parameters": {"shared_memory_region": "/etc/passwd"}}, "is not served"),
        ({"parameters": {"binary_data_size": 4}}, "both data and binary_data_size"),
    ],
)
def test_invalid_input_is_one_line(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(BadRequest, match=r".") as error:
        read_request(body(entry(**wrong)), None, model(), 4)
    assert told in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    ("content", "length", "told"),
    [
        (b"", None, "no JSON"),
        (b"\xff\xfe", None, "no JSON"),
        (b"[" * 100_000, None, "no JSON"),
        (b"[]", None, "no JSON object"),
        (b'{"inputs": 1}', None, "inputs is no list"),
        (b'{"inputs": [1]}', None, "inputs is no list"),
        (b"{}", None, "input x is missing"),
        (b"{}", "3", "with a body of 2 bytes"),
        (b"{}", "-1", "with a body of 2 bytes"),
        (b"{}", "9" * 5000, "with a body of 2 bytes"),
        (body(entry(), entry()), None, "given twice"),
        (body(entry(), outputs=[{"name": "z"}]), None, "there is no output 'z': y"),
        (body(entry(), parameters={"classification": 3}), None, "is not served"),
        (body(entry()) + b"12", str(len(body(entry()))), "2 bytes follow the last input's"),
        (*binary(b"1234", 5), "binary_data_size 5 with 4 bytes left"),
        (*binary(b"1234", -1), "binary_data_size -1"),
        (*binary(b"1234", "4"), "binary_data_size 4"),
        (*binary(b"123", 3), "takes 4 bytes, not 3"),
    ],
)
def test_invalid_body_is_one_line(content: bytes, length: str | None, told: str) -> None:
    with pytest.raises(BadRequest, match=r".") as error:
        read_request(content, length, model(), 4)
    assert told in str(error.value)


def test_mutated_request_is_read_or_refused() -> None:
    """Mutations of a valid request raise only BadRequest."""
    draw = random.Random(7)
    good, length = binary(b"1234", 4)
    refused = 0
    for _ in range(2000):
        content = bytearray(good)
        for _ in range(draw.randint(1, 4)):
            content[draw.randrange(len(content))] = draw.choice(b'{}[]",:0129-eE.nulltrue\0\xff')
        try:
            read_request(bytes(content), length, model(), 4)
        except BadRequest:
            refused += 1
    assert 1000 < refused < 2000


def test_response_is_json_or_binary_as_requested() -> None:
    values = np.array([[[1, 2], [3, 4]]], np.int16)
    shown, head = answer(
        "m", "1", model("int16"), Request([], 1, [(0, False)], "7"), [values], "gpu"
    )
    output = {"name": "y", "datatype": "INT16", "shape": [1, 2, 2], "data": [1, 2, 3, 4]}
    about: dict[str, Any] = {"model_name": "m", "model_version": "1", "id": "7"}
    assert head is None
    about["parameters"] = {"device": "gpu"}
    assert json.loads(shown) == about | {"outputs": [output]}
    shown, head = answer("m", "1", model("int16"), Request([], 1, [(0, True)]), [values], "gpu")
    assert shown[head:] == b"\1\0\2\0\3\0\4\0"
    assert json.loads(shown[:head])["outputs"][0]["parameters"] == {"binary_data_size": 8}


def test_model_without_batch_dimension_takes_one_picture() -> None:
    own = ModelSignature(model().inputs, (Named("y", np.dtype("uint8"), (5,)),))
    with pytest.raises(BadRequest, match="shape"):
        read_request(body(entry(shape=[2, 2, 2], data=[1] * 8)), None, own, 4)
    request = read_request(body(entry()), None, own, 4)
    output, _ = answer("m", "1", own, request, [np.zeros((1, 5), np.uint8)], "gpu")
    assert json.loads(output)["outputs"][0]["shape"] == [5]


def test_stateful_model_is_refused() -> None:
    state = replace(t((1, 3), "float32"), is_variable=True)
    graph = graph_of([op("ADD", [t((1, 3), "float32"), state], [t((1, 3), "float32")])])
    with pytest.raises(CommandError, match="which clients would share"):
        signature_of("model.tflite", graph)
