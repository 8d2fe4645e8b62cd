# SPDX-License-Identifier: Apache-2.0
"""Pictures that come through a pipe, folders with all kinds of files, and libraries' own lines."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support.command import FILES, ROOT, ROWS, Run, absolute
from tests.support.pictures import encoded
from tests.support.tiers import slow
from tests.support.without_tflite import needs_tflite
from tflite_opencl.pictures import decode
from tflite_opencl.pictures.decode import PictureError
from tflite_opencl.pictures.image import load_picture

HEIC = b"\0\0\0\x18ftypheic" + bytes(99)
FAKE_READER = "called = []\ndef register_heif_opener():\n    called.append(1)\n"
LINE = "HEIC needs a reader that is not installed (pip install pillow-heif)"


def test_a_pipe_with_a_picture_s_name_does_not_stop_several(pictures: Path, run: Run) -> None:
    os.mkfifo(pictures / "pictures" / "pipe.png")
    os.mkfifo(pictures / "own.png")
    ran = run(*FILES[:2], *FILES[4:], "pictures", "own.png", "-r", "1")
    assert ran.code == 255
    assert [row.split("\t")[0] for row in ran.out] == [
        f"pictures/{name}/{name}.png" for name in ("blue", "green", "red")
    ]
    assert ran.beginning("ERROR") == [
        "ERROR: cannot read picture own.png: it is a pipe or a device: only a single --image may "
        "be one"
    ]


def test_a_single_image_may_be_a_pipe(files: Path, run: Run) -> None:
    data = (files / "picture.bmp").read_bytes()
    (files / "picture.bmp").unlink()
    os.mkfifo(files / "picture.bmp")
    writer = threading.Thread(target=(files / "picture.bmp").write_bytes, args=(data,))
    writer.start()
    ran = run(*FILES, "--verbose", "1")
    writer.join()
    assert ran.code == 0
    assert ran.lines[-3:] == ROWS


@slow
@needs_tflite
def test_a_single_image_may_be_stdin(files: Path) -> None:
    words = [word if word != str(files / "picture.bmp") else "-" for word in absolute(files)]
    with (files / "picture.bmp").open("rb") as stdin:
        done = subprocess.run(
            [sys.executable, "-m", "label_image", *words],
            stdin=stdin, capture_output=True, text=True, cwd=ROOT, timeout=120, check=True,
        )  # fmt: skip
    assert done.stderr.splitlines()[-3:] == ROWS


@pytest.fixture
def no_heic(monkeypatch: pytest.MonkeyPatch) -> None:
    real = decode._is_there
    monkeypatch.setattr(
        decode, "_is_there", lambda reader: reader.format != "HEIC" and real(reader)
    )


def test_a_format_without_a_reader_is_named(no_heic: None, files: Path, run: Run) -> None:
    (files / "picture.bmp").write_bytes(HEIC)
    ran = run(*FILES)
    assert (ran.code, ran.lines[-1]) == (255, f"ERROR: cannot read picture picture.bmp: {LINE}")


def test_a_folder_counts_what_no_reader_reads(no_heic: None, pictures: Path, run: Run) -> None:
    (pictures / "pictures" / "a.HEIC").write_bytes(HEIC)
    (pictures / "pictures" / "red" / "b.heif").write_bytes(HEIC)
    words = (*FILES[:2], *FILES[4:], "--json", "-")
    ran = run(*words, "pictures")
    assert ran.code == 0
    assert (
        "WARN: skipped what no installed reader reads: 2 HEIC (pip install pillow-heif)"
    ) in ran.lines
    assert '  "skipped": 2,' in ran.out
    for each in (pictures / "pictures").rglob("*.png"):
        each.unlink()
    assert run(*words, "pictures").lines[-1] == (
        "ERROR: there is no picture in the folder pictures that can be read: 2 HEIC (pip install "
        "pillow-heif)"
    )


def test_an_installed_reader_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pillow_heif.py").write_text(FAKE_READER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pillow_heif", raising=False)
    decode._is_there.cache_clear()
    assert decode.missing_reader_of(HEIC) is None
    assert decode.missing_reader("a.heic") is None
    assert sys.modules["pillow_heif"].called == [1]
    decode._is_there.cache_clear()
    del sys.modules["pillow_heif"]


@slow
def test_hidden_folders_are_not_walked_and_an_empty_one_is_a_warning(
    pictures: Path, run: Run
) -> None:
    hidden = pictures / "pictures" / ".thumbnails"
    hidden.mkdir()
    (pictures / "pictures" / "red" / "red.png").rename(hidden / "red.png")
    (pictures / "empty").mkdir()
    ran = run(*FILES[:2], *FILES[4:], "empty", "pictures")
    assert ran.code == 0
    assert len(ran.out) == 2
    assert "WARN: there is no picture in the folder empty" in ran.lines
    assert len(run(*FILES[:2], *FILES[4:], str(hidden)).out) == 1


def damaged_fax() -> bytes:
    """Return a TIFF of which libtiff says on stderr what is wrong, and which it decodes."""
    noise = np.random.default_rng(1).integers(0, 2, (64, 64)).astype(bool)
    whole = bytearray(encoded(Image.fromarray(noise), "TIFF", compression="group4"))
    for place in range(15, 95, 20):
        whole[place] ^= 0x5A
    return bytes(whole)


def test_a_library_s_own_lines_become_warnings_of_the_picture(
    files: Path, run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    (files / "picture.bmp").write_bytes(damaged_fax())
    alone = run(*FILES)
    warnings = [line for line in alone.lines if "Fax4Decode" in line]
    assert warnings
    assert all(line.startswith("WARN: Fax4Decode: Bad code word at line ") for line in warnings)
    ran = run(*FILES[:2], *FILES[4:], "--batch", "1", "picture.bmp")
    assert [line for line in ran.lines if "Fax4Decode" in line] == [
        line.replace("WARN: ", "WARN: picture.bmp: ") for line in warnings
    ]


MEMORY = """
import sys
from tflite_opencl.pictures.image import load_picture
from tflite_opencl.pictures.decode import PictureError

def most_kib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

before = most_kib()
try:
    print(load_picture(sys.argv[1]).shape, end=" ")
except PictureError as error:
    print(error)
print(most_kib() - before)
"""


def most_mib(path: Path) -> float:
    """Return the memory that decoding takes."""
    code = [sys.executable, "-c", MEMORY, str(path)]
    done = subprocess.run(code, capture_output=True, text=True, cwd=ROOT, check=True, timeout=300)
    return int(done.stdout.split()[-1]) / 1024


@slow
@pytest.mark.parametrize("mode", ["L", "P", "RGB", "RGBA", "I;16"])
def test_decoding_keeps_within_its_limit(tmp_path: Path, mode: str) -> None:
    side = 3000
    path = tmp_path / "large.png"
    Image.new(mode, (side, side)).save(path, compress_level=1)
    a_pixel = decode._OF_MODE.get(mode, 4) + decode._RESULT
    assert most_mib(path) < side * side * a_pixel / 2**20 + 32


def test_a_jpeg_that_takes_too_much_is_decoded_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "large.jpg"
    Image.linear_gradient("L").resize((1600, 1000)).convert("RGB").save(path)
    whole = load_picture(path)
    monkeypatch.setattr(decode, "MOST_BYTES", 1600 * 1000)
    small = load_picture(path)
    assert small.shape == (250, 400, 3)
    assert abs(small.astype(int) - whole[2::4, 2::4]).max() <= 4
    assert caplog.messages == [
        "the picture has 1600 x 1000 pixels: it is decoded at 1/4 of its width and height"
    ]
    Image.new("RGB", (1600, 1000)).save(path, progressive=True)
    with pytest.raises(PictureError, match="its 1600 x 1000 pixels take more than "):
        load_picture(path)
