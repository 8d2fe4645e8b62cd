# SPDX-License-Identifier: Apache-2.0
"""label_image --video: frames from files, pipes and servers, and how a video may end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.support.command import ROOT, Run
from tests.support.http_server import Page, Server
from tests.support.notified import manager
from tests.support.tiers import slow
from tests.support.videos import RtspServer, frames, jpeg, read_video, write_video

MODEL = ("-m", "model.tflite", "-l", "labels.txt", "-r", "1")
EVERY = (*MODEL, "--every_frame", "1", "--json_lines", "lines.json", "--video")


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@slow
def test_a_frame_gives_what_its_picture_gives(device: Any, files: Path, run: Run) -> None:
    images = frames(7)
    write_video(files / "video.mkv", images)
    for number, image in enumerate(images):
        Image.fromarray(image).save(files / f"{number}.png")
    words = (*MODEL, "-r", "3", "--use_gpu", "--device", str(device.index), "--compare", "all")
    ran = run(*words, *EVERY[len(MODEL) :], "video.mkv", "--json", "all.json")
    assert ran.code == 0, ran.err
    got = entries(files / "lines.json")
    pictures = [f"{number}.png" for number in range(7)]
    assert run(*words, "--json_lines", "pictures.json", *pictures).code == 0
    expected = entries(files / "pictures.json")
    same = ("results", "max_difference_quanta_reference")
    assert [[e[name] for name in same] for e in got] == [
        [e[name] for name in same] for e in expected
    ]
    assert [e["image"] for e in got] == [f"video.mkv#{number}" for number in range(1, 8)]
    assert [e["frame"] for e in got] == [*range(1, 8)]
    assert [e["seconds"] for e in got] == [number / 10 for number in range(7)]
    whole = json.loads((files / "all.json").read_text())
    assert whole["video"]["decoded"] == whole["classified"] == 7
    assert whole["video"]["dropped"] == 0
    assert ran.out[0].startswith("video.mkv#1 0.000 s\t0.8")
    assert "7 decoded, 0 dropped" in ran.table


def test_several_at_once(files: Path, run: Run) -> None:
    write_video(files / "video.mkv", frames(7))
    assert run(*EVERY, "video.mkv", "--batch", "3").code == 0
    assert [e["frame"] for e in entries(files / "lines.json")] == [*range(1, 8)]


def test_a_file_is_played_at_its_own_speed_where_the_newest_frame_is_asked_for(
    files: Path, run: Run
) -> None:
    write_video(files / "video.mkv", frames(8), rate=20)
    begin_s = time.perf_counter()
    ran = run(*MODEL, "--video", "video.mkv", "--json", "all.json", "--newest_frame", "1")
    assert time.perf_counter() - begin_s > 7 / 20
    assert ran.code == 0
    whole = json.loads((files / "all.json").read_text())
    assert whole["video"]["decoded"] == 8
    assert whole["classified"] + whole["video"]["dropped"] == 8
    assert whole["pictures"][-1]["frame"] == 8  # the last is never dropped


@slow
def test_a_slow_model_gets_the_newest_frame(
    files: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from label_image.path import OpenPath

    write_video(files / "video.mkv", frames(20), rate=50)
    fast = OpenPath.run
    monkeypatch.setattr(OpenPath, "run", lambda *words: (time.sleep(0.1), fast(*words))[1])
    words = (*MODEL, "--video", "video.mkv", "--json", "all.json")
    assert run(*words).code == 0
    whole = json.loads((files / "all.json").read_text())
    assert (whole["classified"], whole["video"]["dropped"]) == (20, 0)  # a file's frames wait
    assert run(*words, "--newest_frame", "1").code == 0
    whole = json.loads((files / "all.json").read_text())
    assert whole["video"]["dropped"] >= 10
    # One that waited for the model, and no older one: none waits longer than the run before.
    assert whole["video"]["latency_ms"]["median"] < 250


def piped(files: Path, content: bytes, *words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "label_image", *EVERY, "-", *words], input=content, check=False,
        capture_output=True, cwd=files, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=120,
    )  # fmt: skip
    out, err = done.stdout.decode(), done.stderr.decode()
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


def labels(files: Path) -> list[str]:
    return [e["results"][0]["label"] for e in entries(files / "lines.json")]


def multipart(pictures: Sequence[bytes]) -> bytes:
    """Return them as a camera with a web server sends them."""
    head = b"--border\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n"
    return b"".join(head % len(each) + each + b"\r\n" for each in pictures)


@slow
def test_jpegs_on_stdin_of_several_sizes_one_damaged(files: Path) -> None:
    small, large = frames(6), frames(6, (40, 30))
    pictures = [*map(jpeg, small[:3]), b"\xff\xd8 damaged", *map(jpeg, large)]
    done = piped(files, multipart(pictures), "--video_options", "format:mpjpeg")
    assert done.returncode == 0, done.stderr
    assert labels(files) == ["red", "green", "blue"] * 3
    (warning,) = [line for line in done.stderr.splitlines() if line.startswith("WARN")]
    assert warning.startswith("WARN: a frame after frame 3 is damaged: Invalid data")
    assert "1 damaged" in done.stderr


@slow
def test_raw_frames_on_stdin(files: Path) -> None:
    content = b"".join(image.tobytes() for image in frames(5))
    options = "format:rawvideo;video_size:16x12;pixel_format:rgb24;framerate:10"
    done = piped(files, content, "--video_options", options)
    assert done.returncode == 0, done.stderr
    assert labels(files) == ["red", "green", "blue", "red", "green"]


def test_a_server_s_file(files: Path, run: Run) -> None:
    write_video(files / "video.mkv", frames(5))
    with Server({"/video.mkv": Page((files / "video.mkv").read_bytes())}) as server:
        assert run(*EVERY, f"{server.url}/video.mkv").code == 0
    assert labels(files) == ["red", "green", "blue", "red", "green"]


@slow
def test_a_server_that_stalls(files: Path, run: Run) -> None:
    write_video(files / "video.mkv", frames(40, (48, 64)))
    content = (files / "video.mkv").read_bytes()
    page = Page(content, cut_after=len(content) - 5000, stalls=True)
    with Server({"/video.mkv": page}) as server:
        ran = run(*EVERY, f"{server.url}/video.mkv", "--source_timeout", "0.7")
    assert ran.code == 255
    (line,) = ran.beginning("ERROR")
    assert re.search(r"ended after \d+ frames: nothing came for 0.7 s \(--source_timeout\)$", line)
    assert 1 < len(labels(files)) < 40


def test_rtsp(files: Path, run: Run) -> None:
    with RtspServer(6) as server:
        ran = run(*EVERY, server.url)
    assert "secret" not in " ".join([*ran.out, *ran.err])
    assert len(labels(files)) >= 3
    assert set(labels(files)) <= {"red", "green", "blue"}


@slow
def test_a_camera_that_stalls(files: Path, run: Run) -> None:
    with RtspServer(50, stalls=True) as server:
        ran = run(*EVERY, server.url, "--source_timeout", "1")
    assert ran.code == 255
    assert any("nothing came for 1 s" in line for line in ran.beginning("ERROR"))
    assert labels(files)


@slow
def test_ctrl_c_leaves_whole_files(files: Path, tmp_path: Path) -> None:
    write_video(files / "video.mkv", frames(300))
    with manager(tmp_path) as systemd, subprocess.Popen(
        [sys.executable, "-m", "label_image", *EVERY[:-1], "--json", "all.json", "--every_frame",
         "0", "--video", "video.mkv"],
        cwd=files, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "NOTIFY_SOCKET": systemd.path,
                          "WATCHDOG_USEC": "200000"},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for _ in range(3):
            process.stdout.readline()
        systemd.wait_for("WATCHDOG")
        assert systemd.read()[0] == {"READY": "1"}
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(60) == 130
    whole = json.loads((files / "all.json").read_text())
    assert whole["interrupted"]
    assert whole["classified"] == len(entries(files / "lines.json")) >= 3


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "No such file or directory"), (b"no video" * 99, "Invalid data found when processing "
                                           "input")],
)  # fmt: skip
def test_what_is_no_video(content: bytes | None, why: str, files: Path, run: Run) -> None:
    if content is not None:
        (files / "video.mkv").write_bytes(content)
    ran = run(*EVERY, "video.mkv")
    assert ran.code == 255
    assert ran.beginning("ERROR") == [f"ERROR: cannot open the video video.mkv: {why}"]


def test_a_number_is_no_camera(files: Path, run: Run) -> None:
    ran = run(*EVERY, "0")
    assert ran.code == 255
    (error,) = ran.beginning("ERROR")
    assert error.endswith("; a camera is named by its file: --video /dev/video0")


def test_a_folder_is_no_video(files: Path, run: Run) -> None:
    assert run(*EVERY, ".").code == 255


def test_without_pyav(files: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    ran = run(*EVERY, "video.mkv")
    assert ran.code == 255
    line = "ERROR: --video needs PyAV (pip install tflite-opencl[video])"
    assert ran.beginning("ERROR") == [line]


def test_a_camera_that_is_not_there(files: Path, run: Run) -> None:
    ran = run(*EVERY, "/dev/video99")
    assert ran.code == 255
    assert "No such file or directory" in ran.beginning("ERROR")[0]


@pytest.mark.parametrize(
    "words",
    [("-i", "picture.bmp"), ("--shard", "1/2"), ("--expect", "x.csv"), ("--output_image", "x.png")],
)
def test_flags_of_pictures(words: tuple[str, str], files: Path, run: Run) -> None:
    assert run(*EVERY, "video.mkv", *words).code == 64


def test_batches_are_of_every_frame(files: Path, run: Run) -> None:
    write_video(files / "video.mkv", frames(1))
    for words in (["-"], ["video.mkv", "--newest_frame", "1"]):
        ran = run(*MODEL, "--batch", "2", "--video", *words)
        assert ran.code == 64
        assert "needs --every_frame" in ran.err[0]
    ran = run(*EVERY, "video.mkv", "--newest_frame", "1")
    assert (ran.code, "exclude each other" in ran.err[0]) == (64, True)


def test_outputs_and_drawn_frames_go_into_folders(files: Path, run: Run) -> None:
    write_video(files / "video.mkv", frames(2))
    assert run(*EVERY, "video.mkv", "--output_dir", "out").code == 0
    folders = sorted((files / "out").iterdir())
    assert [folder.name for folder in folders] == ["000001_frame", "000002_frame"]
    assert np.load(next(folders[1].glob("*.npy"))).shape == (1, 3)


@pytest.mark.parametrize("name", ["out.mp4", "out.mkv", "out.avi"])
def test_the_drawn_video_can_be_played(name: str, files: Path, run: Run) -> None:
    write_video(files / "video.mkv", frames(4, (61, 81)))
    ran = run(*EVERY, "video.mkv", "--output_video", name)
    assert ran.code == 0, ran.err
    got = read_video(str(files / name))
    assert [image.shape for image in got] == [(60, 80, 3)] * 4
    # Below the label the frame's colours are left, as far as the format keeps them.
    for image, colour in zip(got, [0, 1, 2, 0], strict=True):
        assert image[40:].mean(axis=(0, 1)).argmax() == colour


@slow
def test_frames_of_another_size_are_resized_in_the_drawn_video(files: Path) -> None:
    pictures = [*map(jpeg, frames(2, (48, 64))), *map(jpeg, frames(2, (96, 64)))]
    options = ("--video_options", "format:mpjpeg", "--output_video", "out.mkv")
    done = piped(files, multipart(pictures), *options)
    assert done.returncode == 0, done.stderr
    line = "WARN: frames of 64 x 96 pixels are resized to 64 x 48 in out.mkv"
    assert [each for each in done.stderr.splitlines() if each.startswith("WARN")] == [line]
    assert [image.shape for image in read_video(str(files / "out.mkv"))] == [(48, 64, 3)] * 4


@slow
def test_the_drawn_video_on_stdout(files: Path) -> None:
    write_video(files / "video.mkv", frames(4, (48, 64)))
    done = subprocess.run(
        [sys.executable, "-m", "label_image", *EVERY, "video.mkv", "--output_video", "-"],
        capture_output=True, cwd=files, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True,
    )  # fmt: skip
    (files / "out.mkv").write_bytes(done.stdout)
    assert len(read_video(str(files / "out.mkv"))) == 4


@slow
def test_the_reader_of_the_drawn_video_goes(files: Path) -> None:
    write_video(files / "video.mkv", frames(200, (120, 160)))
    with subprocess.Popen(
        [sys.executable, "-m", "label_image", *MODEL, "--every_frame", "1",
         "--video", "video.mkv", "--output_video", "-"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=files,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.buffer.read(100)
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait(60) == 0
    assert "ERROR" not in err
    (count,) = re.findall(r"pictures +(\d+) classified", err)
    assert int(count) < 200


@slow
def test_a_full_disk_behind_stdout(files: Path) -> None:
    write_video(files / "video.mkv", frames(4))
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "label_image", *EVERY, "video.mkv", "--output_video", "-"],
            stdout=full, stderr=subprocess.PIPE, text=True, cwd=files,
            env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False,
        )  # fmt: skip
    assert done.returncode == 255
    assert "ERROR: cannot write -: No space left on device" in done.stderr


def test_a_drawn_video_of_no_known_format(files: Path, run: Run) -> None:
    write_video(files / "video.mkv", frames(2))
    ran = run(*EVERY, "video.mkv", "--output_video", "out.unknown")
    assert ran.code == 255
    line = "ERROR: cannot write out.unknown: FFmpeg knows no such format"
    assert ran.beginning("ERROR") == [line]
