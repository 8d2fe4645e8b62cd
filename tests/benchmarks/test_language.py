# SPDX-License-Identifier: Apache-2.0
"""A language model's paths and competitor in one table; speed is not checked."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import command
from benchmarks.language_peer import LlamaCpp
from delegate import DeviceInfo
from tests.support.llama import vocabulary, write_gguf
from tests.support.tiers import slow
from tests.tflite_opencl.generate.conftest import runs
from tflite_opencl.console.errors import CommandError
from tflite_opencl.console.exit_codes import ERROR, SUCCESS
from tflite_opencl.generate.maker import model_of_gguf

POINTER = ctypes.POINTER(ctypes.c_float)


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "drawn.gguf")


@slow
@runs
def test_table_has_all_paths(
    device: DeviceInfo, gguf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    how = ("--device", str(device.index), "--tune", "off")
    assert command.main([str(gguf), "--language_model", "5", *how]) == SUCCESS
    out = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("|")] for line in out.splitlines()]
    paths = {row[1]: row for row in rows if len(row) > 1}
    assert {"OpenCL, q4_1", "XNNPACK, q4_1", "OpenCL, int8", "XNNPACK, int8"} <= {*paths}
    assert paths["OpenCL, int8"][-2] == "5 of 5"
    assert "llama.cpp" in paths or "without llama.cpp: llama-cpp-python is not installed" in out


def test_missing_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([str(tmp_path / "none.gguf"), "--language_model"]) == ERROR
    err = capsys.readouterr().err
    assert err.startswith("ERROR: ")
    assert err.endswith("none.gguf is no file\n")


class Llama:
    """A fake llama-cpp-python, whose logits are the number of tokens in its context."""

    def __init__(self, path: str, n_ctx: int, **how: Any) -> None:
        self.n_tokens, self.ctx = 0, self
        self.evaluated: list[tuple[int, int]] = []
        self.logits = (ctypes.c_float * len(vocabulary()))()

    def n_vocab(self) -> int:
        return len(vocabulary())

    def eval(self, tokens: Sequence[int]) -> None:
        self.evaluated.append((self.n_tokens, len(tokens)))
        self.logits[:] = [0.0] * len(self.logits)
        self.logits[self.n_tokens + len(tokens)] = 1

    def close(self) -> None:
        pass


def test_competitor_reuses_context(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    created = list[Llama]()

    def opened(*words: Any, **how: Any) -> Llama:
        created.append(Llama(*words, **how))
        return created[-1]

    library = SimpleNamespace(
        Llama=opened, llama_get_logits_ith=lambda ctx, at: ctypes.cast(ctx.logits, POINTER)
    )
    monkeypatch.setitem(sys.modules, "llama_cpp", library)
    folder = str(model_of_gguf(str(gguf), "int8", 96).parent)
    with LlamaCpp(str(gguf), folder, 96, 1) as peer:
        assert list(peer.generate([7] * 20, 3)) == [20, 21, 22]
        peer.reset()
        assert int(np.argmax(peer.logits([7] * 30))) == 30
    assert created[0].evaluated == [(0, 20), (20, 1), (21, 1), (0, 30)]


def test_missing_competitor_is_reported(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    folder = str(model_of_gguf(str(gguf), "int8", 96).parent)
    with pytest.raises(CommandError, match=r"^llama-cpp-python (does not load|is not installed)"):
        LlamaCpp(str(gguf), folder, 96, 1)
