# SPDX-License-Identifier: Apache-2.0
"""The command with several pictures."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delegate import DeviceInfo
from tests.support.command import (
    CPU_LINES,
    ROOT,
    Run,
    run_process,
)
from tests.support.model import chain_model, op, t
from tests.support.process import run_python
from tests.support.tiers import slow
from tests.support.without_tflite import needs_tflite

SEVERAL = ("-m", "model.tflite", "-l", "labels.txt")
FOLDER = ("-i", "pictures")
FOLDER_ROWS = [
    "pictures/blue/blue.png\t0.8: 2 blue",
    "pictures/green/green.png\t0.8: 1 green",
    "pictures/red/red.png\t0.8: 0 red",
]


@slow
def test_a_folder_prints_one_row_per_picture(pictures: Path, run: Run) -> None:
    ran = run(*SEVERAL, *FOLDER)
    assert ran.code == 0
    assert ran.out == FOLDER_ROWS
    assert ran.lines[:2] == CPU_LINES[:2]
    table = " ".join(" ".join(ran.lines[2:]).split())
    assert re.search(r"model alone CPU \(\w+\) [0-9.]+ pictures/s \(one by one\) --compare", table)
    assert re.search(r"pictures 3 classified, [0-9.]+/s by the clock decoding", table)
    assert "model alone, pictures/s" in run(*SEVERAL, *FOLDER, "--compare").table


def test_further_arguments_are_further_pictures(pictures: Path, run: Run) -> None:
    ran = run("pictures/red", *SEVERAL, "-i", "picture.bmp", "pictures/blue/blue.png", "-r", "2")
    assert ran.code == 0
    assert ran.out == [
        "picture.bmp\t0.8: 1 green\t0.4: 2 blue",
        "pictures/red/red.png\t0.8: 0 red\t0.4: 1 green",
        "pictures/blue/blue.png\t0.8: 2 blue\t0.4: 1 green",
    ]


@pytest.mark.parametrize(
    "words", [["picture.bmp", "--batch", "1"], ["-i", "picture.bmp", "--batch", "1"]]
)
def test_a_single_picture_requested_as_several_is_a_row(
    pictures: Path, run: Run, words: list[str]
) -> None:
    assert run(*SEVERAL, *words).out == ["picture.bmp\t0.8: 1 green"]


def test_a_film_is_no_picture(pictures: Path, run: Run) -> None:
    (pictures / "film.mkv").write_bytes(b"no picture")
    ran = run(*SEVERAL, "film.mkv")
    assert ran.code == 255
    assert any(line.endswith("by label_image --video FILE") for line in ran.beginning("ERROR"))


@slow
def test_pictures_that_cannot_be_read_cost_a_line_each_and_the_exit_code(
    pictures: Path, run: Run
) -> None:
    (pictures / "pictures" / "a.jpg").write_bytes(b"no picture")
    ran = run("nosuch.png", *SEVERAL, "pictures", "--json", "out.json")
    assert ran.code == 255
    assert ran.out == FOLDER_ROWS
    assert ran.beginning("ERROR: ") == [
        "ERROR: input file nosuch.png not found",
        "ERROR: cannot read picture pictures/a.jpg: not a picture, or its beginning is damaged",
    ]
    document = json.loads((pictures / "out.json").read_text())
    assert document["pictures"][0] == {
        "image": "nosuch.png",
        "error": "input file nosuch.png not found",
    }
    assert [entry["image"] for entry in document["pictures"]] == [
        "nosuch.png", "pictures/a.jpg", *(row.split("\t")[0] for row in FOLDER_ROWS),
    ]  # fmt: skip
    assert (document["classified"], document["unreadable"]) == (3, 2)
    assert document["pictures"][2]["results"] == [
        {"index": 2, "label": "blue", "score": float(np.float32(0.8))}
    ]


@slow
def test_each_device_has_a_child(pictures: Path, run: Run) -> None:
    ran = run(*SEVERAL, *FOLDER, "--use_gpu", "--device", "all", "--device_timeout", "60")
    assert (ran.code, ran.out) == (0, FOLDER_ROWS)


@slow
@needs_tflite
def test_json_of_several_pictures_stands_alone_on_stdout(pictures: Path) -> None:
    words = [str(pictures / word) if "." in word else word for word in SEVERAL]
    ran = run_process(*words, str(pictures / "pictures"), "--json", "-")
    assert ran.code == 0
    document = json.loads("\n".join(ran.out))
    assert len(document["pictures"]) == 3
    assert document["cpu"]["pictures_per_second"] > 0
    assert any("pictures/s" in line for line in ran.err)


def test_a_run_that_is_broken_off_leaves_the_old_json(pictures: Path, run: Run) -> None:
    (pictures / "out.json").write_text("old")
    (pictures / "model.tflite").write_bytes(
        chain_model([op("fake", [t((1, 4, 4, 3), "uint8", 1.0)], [t((3,), "uint8", 1.0)],
                        is_custom=True)])
    )  # fmt: skip
    assert run(*SEVERAL, *FOLDER, "--json", "out.json").code == 255
    assert (pictures / "out.json").read_text() == "old"
    assert sorted(path.name for path in pictures.iterdir() if path.name[0] == ".") == []


def test_an_external_delegate_takes_several_pictures(
    pictures: Path, run: Run, library: str
) -> None:
    ran = run(*SEVERAL, *FOLDER, f"--external_delegate_path={library}", "--json", "out.json")
    assert (ran.code, ran.out) == (0, FOLDER_ROWS)
    assert "INFO: Applied EXTERNAL delegate." in ran.lines
    assert "pictures_per_second" in json.loads((pictures / "out.json").read_text())["external"]


@pytest.fixture
def many(pictures: Path) -> Path:
    """Return a folder of 20000 names of one picture."""
    folder = pictures / "many"
    folder.mkdir()
    for number in range(20000):
        os.link(pictures / "picture.bmp", folder / f"{number}.bmp")
    return folder


@slow
@needs_tflite
def test_several_pictures_end_when_nobody_reads_the_rows(pictures: Path, many: Path) -> None:
    words = " ".join(str(pictures / word) if "." in word else word for word in SEVERAL)
    script = f"{sys.executable} -m label_image {words} {many} 2>&1 >&3 | tail -5 >&2"
    done = subprocess.run(
        ["bash", "-c", f"{{ {script}; }} 3>&1 | head -1"],
        capture_output=True, text=True, cwd=ROOT, timeout=300, check=True,
    )  # fmt: skip
    assert done.stdout == f"{many}/0.bmp\t0.8: 1 green\n"
    classified = re.search(r"pictures +(\d+) classified", done.stderr)
    assert classified is not None
    assert int(classified[1]) < 15000


def interrupted(pictures: Path, many: Path, *more: str) -> tuple[dict[str, Any], str]:
    """Press Ctrl-C after the first picture; return the --json document, and stderr."""
    words = [str(pictures / word) if "." in word else word for word in SEVERAL]
    words += [*more, str(many), "--json", str(pictures / "j")]
    with subprocess.Popen(
        [sys.executable, "-m", "label_image", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert "\t" in child.stdout.readline()
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "Traceback" not in err
    document = json.loads((pictures / "j").read_text())
    assert document["interrupted"] is True
    assert 1 <= document["classified"] < 20000
    return document, err


@slow
@needs_tflite
def test_ctrl_c_among_several_pictures_is_130_and_keeps_what_is_done(
    pictures: Path, many: Path
) -> None:
    document, err = interrupted(pictures, many)
    done = document["classified"]
    assert len(document["pictures"]) in (done - 1, done)  # the last one's row may be all there is
    assert re.search(rf"^pictures +{done} classified", err, re.MULTILINE)


MEMORY = """
import os, sys
from label_image import command, console

def resident_kib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))

rows, sizes = 0, {}
write = console.write

def count(stream, text):
    global rows
    rows += "picture.bmp" in text
    sizes[rows] = resident_kib() if rows in (1000, 4000) else 0
    return True

console.write = count
code = command.main([*sys.argv[1:], "--json", os.devnull])
assert code == 0, code
assert rows == 4000, rows
print(sizes[4000] - sizes[1000])
"""


@slow
def test_memory_stays_flat_over_thousands_of_pictures(pictures: Path) -> None:
    words = [str(pictures / word) if "." in word else word for word in SEVERAL]
    many = [str(pictures / "picture.bmp")] * 4000
    grown_kib = int(run_python(MEMORY, *words, "--batch", 8, *many).split()[-1])
    assert grown_kib < 512


@slow
def test_opencl_batches_several_pictures(device: DeviceInfo, pictures: Path, run: Run) -> None:
    words = (*SEVERAL, *FOLDER, "--use_gpu", "--device", str(device.index), "--json", "out.json")
    for batch in ([], ["--batch", "1"], ["--batch", "2"], ["--batch", "5"]):
        ran = run(*words, *batch)
        assert (ran.code, ran.out) == (0, FOLDER_ROWS)
        assert "INFO: Applied GPU delegate." in ran.lines
        table = ran.table
        assert "nodes 2 of 2 on OpenCL, in 1 partition" in table
        assert "equal to TFLite's reference kernels: 0 quanta" in table
        assert "compared 3 of 3 pictures" in table
        document = json.loads((pictures / "out.json").read_text())
        assert [e["max_difference_quanta_reference"] for e in document["pictures"]] == [0, 0, 0]
        assert document["gpu"]["batch"] == int(batch[1] if batch else 1)
        assert document["gpu"]["device"] == device.name
        assert document["max_difference_quanta_reference"] == 0
        assert document["speedup"] is None  # of three pictures
        assert "too few runs to compare" in table


def test_without_comparison_several_pictures_run_on_opencl_alone(
    device: DeviceInfo, pictures: Path, run: Run
) -> None:
    ran = run(
        *SEVERAL, *FOLDER, "--use_gpu", "--device", str(device.index), "--batch", "2",
        "--compare=false", "--json", "out.json",
    )  # fmt: skip
    assert (ran.code, ran.out) == (0, FOLDER_ROWS)
    document = json.loads((pictures / "out.json").read_text())
    assert "cpu" not in document
    assert document["not_compared"] == "--compare=false"
    assert list(document["pictures"][0]) == ["image", "results"]


@pytest.mark.parametrize("batch", [[], ["--batch", "2"]])
def test_pictures_are_spread_over_all_devices(
    device: DeviceInfo, pictures: Path, run: Run, batch: list[str]
) -> None:
    # The device is one of those; whether there are others or not, the rows are the same.
    words = ("--use_gpu", "--device", "all", "--tune", "off", "--json", "out.json")
    ran = run(*SEVERAL, *FOLDER, *words, *batch)
    assert (ran.code, ran.out) == (0, FOLDER_ROWS)
    table = ran.table
    assert "equal to TFLite's reference kernels: 0 quanta" in table
    document = json.loads((pictures / "out.json").read_text())
    devices = document["gpu"]["devices"]
    assert device.index in [entry["index"] for entry in devices]
    assert sum(entry["pictures"] for entry in devices) == 3
    for entry in devices:
        assert f"device {entry['index']} {entry['pictures']} pictures, " in table


def test_pictures_are_spread_over_named_devices(
    device: DeviceInfo, pictures: Path, run: Run
) -> None:
    words = ("--use_gpu", "--device", f"{device.index},", "--batch", "2", "--compare=false")
    ran = run(*SEVERAL, *FOLDER, *words, "--tune", "off", "--json_lines", "out.json")
    assert (ran.code, ran.out) == (0, FOLDER_ROWS)
    assert f"device {device.index} 3 pictures, " in ran.table
    lines = [json.loads(line) for line in (pictures / "out.json").read_text().splitlines()]
    assert [line["image"] for line in lines] == [row.split("\t")[0] for row in FOLDER_ROWS]


def test_a_device_that_is_not_there_is_one_line(
    device: DeviceInfo, pictures: Path, run: Run
) -> None:
    ran = run(*SEVERAL, *FOLDER, "--use_gpu", "--device", f"{device.index},nonesuch")
    assert (ran.code, ran.out) == (2, FOLDER_ROWS)
    (error,) = ran.beginning("ERROR: ")
    assert error.startswith("ERROR: no OpenCL device matches 'nonesuch'; the devices are 0: ")


def test_one_picture_needs_one_device(device: DeviceInfo, pictures: Path, run: Run) -> None:
    ran = run(*SEVERAL, "-i", "picture.bmp", "--use_gpu", "--device", "all")
    assert ran.code == 2
    (error,) = ran.beginning("ERROR: ")
    assert error.startswith("ERROR: 'all' means several devices, and this runs on one: 0: ")


@slow
def test_ctrl_c_among_pictures_of_several_devices_keeps_what_is_done(
    device: DeviceInfo, pictures: Path, many: Path
) -> None:
    words = ["--use_gpu", "--device", "all", "--batch", "4", "--tune", "off", "--compare=false"]
    document, _ = interrupted(pictures, many, *words)
    assert document["gpu"]["devices"]


@slow
def test_json_lines_go_on_where_a_run_ended(pictures: Path, run: Run) -> None:
    assert run(*SEVERAL, *FOLDER, "--json_lines", "a").out == FOLDER_ROWS
    whole = (pictures / "a").read_bytes()
    first = whole.index(b"\n") + 1
    (pictures / "a").write_bytes(whole[: first + 20])  # the second one's line is cut off
    words = ("--json_lines", "a", "--resume", "--csv", "b.csv", "--json", "c.json")
    ran = run(*SEVERAL, *FOLDER, *words)
    assert (ran.code, ran.out) == (0, FOLDER_ROWS[1:])
    assert (pictures / "a").read_bytes() == whole
    assert "resumed 1 of a run before" in ran.table
    rows = (pictures / "b.csv").read_text().splitlines()
    assert rows[0] == "image,index,label,score"
    assert [row.partition(",")[0] for row in rows[1:]] == [row.split()[0] for row in FOLDER_ROWS]
    document = json.loads((pictures / "c.json").read_text())
    assert (len(document["pictures"]), document["classified"], document["resumed"]) == (3, 2, 1)
    assert list(document["pictures"][0]) == ["image", "results"]
    assert run(*SEVERAL, *FOLDER, *words).out == []


def test_a_picture_that_could_not_be_read_stays_an_error(pictures: Path, run: Run) -> None:
    (pictures / "pictures" / "a.jpg").write_bytes(b"no picture")
    assert run(*SEVERAL, *FOLDER, "--json_lines", "a").code == 255
    ran = run(*SEVERAL, *FOLDER, "--json_lines", "a", "--resume")
    assert (ran.code, ran.out) == (255, [])


def test_where_no_picture_is_readable_none_is_compared(
    device: DeviceInfo, pictures: Path, run: Run
) -> None:
    words = ("--use_gpu", "--device", str(device.index), "--json", "out.json")
    assert run(*SEVERAL, "none.png", "labels.txt", *words).code == 255
    document = json.loads((pictures / "out.json").read_text())
    assert document["not_compared"] == "no picture was classified"
    assert "compared" not in document


@slow
@needs_tflite
def test_a_killed_run_loses_the_pictures_under_way_alone(pictures: Path, many: Path) -> None:
    words = [str(pictures / word) if "." in word else word for word in SEVERAL]
    command = [sys.executable, "-m", "label_image", *words, str(many), "--batch", "4"]
    command += ["--shard", "1/40", "--json_lines", str(pictures / "a")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT
    ) as child:
        assert child.stdout is not None
        seen = [child.stdout.readline() for _ in range(9)]
        child.kill()
    entries = [json.loads(line) for line in (pictures / "a").read_text().splitlines()]
    assert len(entries) >= len(seen) - 1  # a picture's line follows its row
    ran = subprocess.run([*command, "--resume"], capture_output=True, text=True, cwd=ROOT)
    assert ran.returncode == 0
    lines = [json.loads(line)["image"] for line in (pictures / "a").read_text().splitlines()]
    assert lines == sorted({*lines}, key=lines.index)
    assert len(lines) == 500


@slow
def test_shards_are_all_pictures_and_each_in_one(pictures: Path, run: Run) -> None:
    for number in (1, 2):
        ran = run(*SEVERAL, *FOLDER, "--shard", f"{number}/2", "--output_dir", "out")
        assert ran.out == FOLDER_ROWS[number - 1 :: 2]
    assert sorted(os.listdir(pictures / "out")) == [
        "000001_blue.png", "000002_green.png", "000003_red.png",
    ]  # fmt: skip


@slow
@needs_tflite
def test_a_picture_may_come_through_stdin(pictures: Path) -> None:
    words = [str(pictures / word) if "." in word else word for word in SEVERAL]
    for more in (["--json_lines", "-"], ["--batch", "2"]):
        ran = subprocess.run(
            [sys.executable, "-m", "label_image", *words, "-i", "-", *more],
            input=(pictures / "picture.bmp").read_bytes(), capture_output=True, cwd=ROOT,
        )  # fmt: skip
        assert ran.returncode == 0
        out = ran.stdout.decode().strip()
        assert (json.loads(out)["image"] if out[0] == "{" else out.split()[0]) == "-"
    ran = subprocess.run(
        [sys.executable, "-m", "label_image", *words, "-i", "-", "--batch", "2"],
        input=b"no picture", capture_output=True, cwd=ROOT,
    )  # fmt: skip
    assert ran.returncode == 255
    assert b"ERROR: cannot read picture -: not a picture" in ran.stderr


def test_what_is_expected_is_counted(pictures: Path, run: Run) -> None:
    (pictures / "e.csv").write_text("file,index\nred.png,0\ngreen.png,2\nblue.png,1\nx.png,1\n")
    ran = run(*SEVERAL, *FOLDER, "--expect", "e.csv", "--json", "out.json")
    assert ran.code == 0
    text = ran.table
    assert "expected top-1 1 of 3 (33.3 %), top-5 3 of 3 (100.0 %)" in text
    document = json.loads((pictures / "out.json").read_text())
    assert document["expected"] == {"pictures": 3, "top_1": 1, "top_5": 3}
    assert len(document["pictures"][0]["results"]) == 3


@slow
def test_pictures_without_expectation_are_reported(pictures: Path, run: Run) -> None:
    (pictures / "e.csv").write_text("file,index\nred.png,0\n")
    ran = run(*SEVERAL, *FOLDER, "--expect", "e.csv")
    assert ran.code == 0
    assert "WARN: --expect: 2 of 3 pictures are not in e.csv" in ran.lines
    (pictures / "e.csv").write_text("file,index\nother.png,0\n")
    ran = run(*SEVERAL, *FOLDER, "--expect", "e.csv")
    assert ran.code == 255
    assert ran.lines[-1] == "ERROR: --expect: none of the pictures is in e.csv"
