# SPDX-License-Identifier: Apache-2.0
"""Pictures through child processes: order, errors, and children that die or talk nonsense."""

from __future__ import annotations

import os
import struct
import sys
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from label_image.compare import Outcome
from label_image.decoder import Format
from label_image.decoders import DecoderFailed, Decoders
from tests.support.tiers import slow
from tflite_opencl.pictures.image import load_picture, to_input

FORMAT = Format((1, 5, 4, 3), "uint8")


@pytest.fixture
def pictures(tmp_path: Path) -> list[str]:
    rng = np.random.default_rng(3)
    paths = []
    for number, suffix in enumerate(["png", "bmp", "jpg", "png", "webp", "bmp", "png"]):
        pixels = rng.integers(0, 256, (9 + number, 7, 3)).astype(np.uint8)
        paths.append(str(tmp_path / f"{number} é.{suffix}"))
        Image.fromarray(pixels).save(paths[-1])
    return paths


def decode(
    paths: Iterable[str],
    processes: int = 2,
    format: Format = FORMAT,
    command: Sequence[str] | None = None,
) -> Iterator[tuple[Outcome, NDArray[Any]]]:
    """Yield what came of each picture, and the tensor; `command`: of other children."""
    with pytest.MonkeyPatch.context() as patch:
        if command is not None:
            patch.setattr("label_image.decoders.command_of", lambda _: command)
        with closing(Decoders(paths, format, processes)) as decoders:
            while True:
                tensor = np.full(format.shape, 77, format.dtype)
                decoded = decoders.next_into(tensor)
                if decoded is None:
                    return
                yield decoded, tensor


def child(code: str) -> list[str]:
    """Return the command of a child that has read what is wanted and answers in its own way."""
    return [sys.executable, "-c", f"import json, os, sys\nsys.stdin.readline()\n{code}"]


@slow
@pytest.mark.parametrize(("processes", "dtype"), [(1, "uint8"), (2, "int8"), (5, "float32")])
def test_tensors_come_in_order_and_are_those_of_this_process(
    pictures: list[str], processes: int, dtype: str
) -> None:
    format = Format((1, 5, 4, 3), dtype, 100.0, 50.0)
    got = list(decode(pictures * 3, processes, format))
    assert [decoded.path for decoded, _ in got] == pictures * 3
    for decoded, tensor in got:
        expected = to_input(load_picture(decoded.path), (1, 5, 4, 3), dtype, 100.0, 50.0)
        assert (decoded.error, list(decoded.warnings)) == ("", [])
        assert tensor.tobytes() == expected.tobytes()
        assert decoded.seconds > 0


def test_a_picture_that_cannot_be_read_costs_itself_alone(
    pictures: list[str], tmp_path: Path
) -> None:
    (tmp_path / "damaged.jpg").write_bytes(b"\xff\xd8\xff garbage")
    bad = [str(tmp_path / "damaged.jpg"), str(tmp_path / "none.png"), str(tmp_path)]
    mixed = [pictures[0], bad[0], bad[1], pictures[1], bad[2], pictures[2]]
    got = list(decode(mixed))
    assert [decoded.path for decoded, _ in got] == mixed
    errors = [decoded.error for decoded, _ in got]
    assert errors[1].startswith(f"cannot read picture {bad[0]}: ")
    assert errors[2] == f"input file {bad[1]} not found"
    assert errors[4] == f"cannot read picture {bad[2]}: Is a directory"
    assert [bool(error) for error in errors] == [False, True, True, False, True, False]
    assert all(bool((tensor == 77).all()) == bool(decoded.error) for decoded, tensor in got)


def test_names_mean_files_of_the_current_folder(
    pictures: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(pictures[0]).parent)
    (decoded, _), = decode([Path(pictures[0]).name])  # fmt: skip
    assert (decoded.path, decoded.error) == (Path(pictures[0]).name, "")


def test_any_file_name_crosses(tmp_path: Path) -> None:
    names = ["a\nb.png", 'q"\\.png', os.fsdecode(b"\xff\xfe.png"), "x" * 250]
    paths = [str(tmp_path / name) for name in names]
    for path in paths:
        Image.new("RGB", (3, 3), (1, 2, 3)).save(path, "PNG")
    got = list(decode(paths))
    assert [(decoded.path, decoded.error) for decoded, _ in got] == [(path, "") for path in paths]
    assert {tensor.tobytes() for _, tensor in got} == {bytes([1, 2, 3] * 20)}


def test_warnings_of_a_picture_are_handed_over(tmp_path: Path) -> None:
    path = tmp_path / "exif.png"
    Image.new("RGB", (3, 3)).save(path)
    body = b"eXIfnonsense"
    chunk = struct.pack(">I", 8) + body + struct.pack(">I", zlib.crc32(body))
    png = path.read_bytes()
    path.write_bytes(png[:-12] + chunk + png[-12:])  # IEND is the last
    (first, _), (second, _) = decode([str(path), str(path)], 1)
    for decoded in (first, second):
        assert decoded.error == ""
        (warning,) = decoded.warnings
        assert warning.startswith("the picture's EXIF data is damaged")


@slow
def test_only_as_many_processes_start_as_pictures_or_cores_are_there(pictures: list[str]) -> None:
    cores = len(os.sched_getaffinity(0))
    for paths, most, started in ((pictures[:2], 8, 2), (pictures * cores, None, cores)):
        with closing(Decoders(paths, FORMAT, most)) as decoders:
            tensor = np.zeros(FORMAT.shape, np.uint8)
            while decoders.next_into(tensor):
                pass
            assert decoders.processes == started


def test_names_are_asked_for_as_they_are_needed() -> None:
    asked = []

    def endless() -> Iterator[str]:
        while True:
            asked.append(len(asked))
            yield "nosuch.png"

    with closing(Decoders(endless(), FORMAT, 2)) as decoders:
        for _ in range(50):
            decoded = decoders.next_into(np.zeros(FORMAT.shape, np.uint8))
            assert decoded is not None
            assert decoded.error == "input file nosuch.png not found"
    assert 50 <= len(asked) <= 60


ANSWERS = """
for line in sys.stdin:
    path = json.loads(line)["path"]
    if path == "deadly":
        os.kill(os.getpid(), 11)
    print(json.dumps({"seconds": 0.5, "error": "bad " + path, "warnings": []}), flush=True)
"""


def test_a_picture_that_kills_its_process_is_named_and_the_others_go_on() -> None:
    paths = ["a", "b", "deadly", "c", "d", "deadly", "e", "f", "g"]
    got = [decoded for decoded, _ in decode(paths, 2, command=child(ANSWERS))]
    deadly = "cannot read picture deadly: its decoder died (SIGSEGV)"
    assert [d.error for d in got] == [deadly if p == "deadly" else f"bad {p}" for p in paths]


HALF = """
sys.stdin.readline()
print(json.dumps({"seconds": 0.5, "error": "", "warnings": [], "bytes": 60}), flush=True)
sys.stdout.buffer.write(bytes(30))
sys.stdout.flush()
os.kill(os.getpid(), 9)
"""


def test_a_process_that_dies_within_a_tensor_is_told() -> None:
    (decoded, _), = decode(["a"], command=child(HALF))  # fmt: skip
    assert decoded.error == "cannot read picture a: its decoder died (SIGKILL)"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("sys.exit(3)", r"a picture decoder ended with code 3 at a"),
        ("", r"a picture decoder ended with code 0 at a"),
        ("print('Hello', flush=True)", r"a picture decoder ended with code 0 at a"),
        ("print('[1]', flush=True)", r"a picture decoder ended with code 0 at a"),
        ("print('{}', flush=True); input()", r"a picture decoder says \{\}"),
        ('print(\'{"error": "a", "b": 1}\', flush=True); input()', "a picture decoder says"),
        ('print(\'{"error": "", "bytes": 1} \', flush=True)', "ended with code 0 at a"),
        ('print(\'{"error": "", "bytes": 1}\\n12\', flush=True)', "a picture decoder says"),
    ],
    ids=["exit-3", "exit-0", "prose", "a-list", "nothing-said", "more", "no-bytes", "few-bytes"],
)
def test_a_process_that_makes_no_sense_ends_it_all(code: str, text: str) -> None:
    with pytest.raises(DecoderFailed, match=text):
        list(decode(["a", "b"], command=child(code)))


def test_a_command_that_is_not_there_ends_it_all() -> None:
    with pytest.raises(DecoderFailed, match="a picture decoder cannot start"):
        list(decode(["a"], command=["./no/such/python"]))


def test_closing_ends_the_processes_and_whoever_waits_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid_file = tmp_path / "pid"
    code = f"open({str(pid_file)!r}, 'w').write(str(os.getpid())); import time; time.sleep(600)"
    monkeypatch.setattr("label_image.decoders.command_of", lambda _: child(code))
    decoders = Decoders(["a"], FORMAT, 1)
    errors: list[Exception] = []

    def wait() -> None:
        try:
            decoders.next_into(np.zeros(FORMAT.shape, np.uint8))
        except DecoderFailed as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    while not (pid_file.exists() and pid_file.read_text()):
        time.sleep(0.05)
    decoders.close()
    thread.join(60)
    assert not thread.is_alive()
    assert len(errors) == 1
    decoders.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
