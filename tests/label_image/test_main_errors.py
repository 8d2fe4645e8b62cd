# SPDX-License-Identifier: Apache-2.0
"""The command's exit codes, and bad input: one clear line, no traceback."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from delegate import DeviceInfo, Options, Verdict
from delegate.inspect import write_model
from label_image import command
from tests.support.command import (
    CPU_LINES,
    FILES,
    GPU_LINES,
    Run,
    absolute,
    pooling_model,
    replace_input,
    run_process,
)
from tests.support.model import chain_model, graph_of, op, t
from tests.support.tiers import slow
from tests.support.without_tflite import needs_tflite
from tflite_opencl import __version__
from tflite_opencl.interpreters.runtime import Runtime, find_runtime
from tflite_opencl.models import fetch


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_is_a_success(run: Run, flag: str) -> None:
    ran = run(flag)
    assert ran.code == 0
    assert ran.err == []
    assert "Our own flags:" in ran.out


def test_version_names_tool_runtime_and_drivers(run: Run) -> None:
    runtime = find_runtime()
    ran = run("--version")
    assert ran.code == 0
    assert ran.out[0] == f"label_image (tflite-opencl) {__version__}"
    assert ran.out[1] == f"TFLite runtime: {runtime.name} {runtime.version}"
    assert ran.out[2].startswith("OpenCL driver: ")


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def overwrite(name: str, data: bytes) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / name).write_bytes(data)

    return spoil


def without_inputs(folder: Path) -> None:
    constant = t((1, 4), "uint8", 1.0, 0, data=[[1, 2, 3, 4]])
    output = t((4,), "uint8", 1.0, 0)
    node = op("RESHAPE", [constant], [output], {"new_shape": [4]})
    (folder / "model.tflite").write_bytes(chain_model([node]))


def without_labels(folder: Path) -> None:
    (folder / "labels.txt").unlink()
    (folder / "labels.txt").mkdir()


def expectation(folder: Path) -> None:
    content = {"images": [], "annotations": [], "categories": []}
    (folder / "a.json").write_text(json.dumps(content))


def nothing(folder: Path) -> None:
    pass


NO_LABELS = FILES[:4]
SEVERAL = (*FILES[:2], *FILES[4:], "picture.bmp", "picture.bmp")
NO_HEIGHT = r"t0 \(1x48 uint8\): it has no height and width"
HELP = r" \(label_image --help shows the flags\)"
# What is wrong with the files; the words; the exit code; the last line.
REJECTED: dict[str, tuple[Callable[[Path], Any], Sequence[str], int, str]] = {
    # files
    "no-model": (
        remove("model.tflite"), FILES, 255,
        "ERROR: Failed to mmap model model.tflite: No such file or directory",
    ),
    "empty-model": (overwrite("model.tflite", b""), FILES, 255, "ERROR: .+"),
    "foreign-model": (overwrite("model.tflite", b"GIF89a" * 99), FILES, 255, "ERROR: .+"),
    "folder-as-model": (
        nothing, ("-m", ".", *FILES[2:]), 255,
        r"ERROR: Failed to mmap model \.: Is a directory",
    ),
    "not-fetched": (
        nothing, ("-m", "mobilenet_v1_1.0_224_quant", *FILES[2:]), 255,
        "ERROR: .*label_image --fetch mobilenet_v1_1.0_224_quant downloads it",
    ),
    "no-input": (without_inputs, FILES, 255, "ERROR: .*has no input.*"),
    "string-input": (
        replace_input(t((1, 4, 4, 3), "string")), FILES, 255,
        "ERROR: cannot handle input type 5 yet",
    ),
    "flat-input": (
        replace_input(t((1, 48), "uint8", 1.0, 0)), (*NO_LABELS[:2], "-i", "nosuch.bmp"), 255,
        f"ERROR: --image: no input takes a picture: {NO_HEIGHT}",
    ),
    "flat-input-of-many": (
        replace_input(t((1, 48), "uint8", 1.0, 0)), SEVERAL, 255,
        f"ERROR: .*no input takes a picture: {NO_HEIGHT}",
    ),
    "no-picture": (remove("picture.bmp"), FILES, 255, "FATAL: input file picture.bmp not found"),
    "foreign-picture": (
        overwrite("picture.bmp", b"TFL3" * 99), FILES, 255, "ERROR: .*picture picture.bmp: .+",
    ),
    "truncated-picture": (
        overwrite("picture.bmp", b"BM" + bytes(70)), FILES, 255, "ERROR: .*picture picture.bmp: .+",
    ),
    "empty-folder": (
        lambda folder: (folder / "empty").mkdir(), (*NO_LABELS[:2], "-i", "empty"), 255,
        "ERROR: there is no picture in the folder empty",
    ),
    "no-labels": (
        remove("labels.txt"), FILES, 255, "ERROR: Labels file labels.txt not found",
    ),
    "folder-as-labels": (
        without_labels, FILES, 255,
        "ERROR: Labels file labels.txt cannot be read: Is a directory",
    ),
    "binary-labels": (
        overwrite("labels.txt", b"a\0b\n"), FILES, 255,
        "ERROR: Labels file labels.txt is no text with a label a line",
    ),
    "large-labels": (
        overwrite("labels.txt", b"x" * (1 << 25)), FILES, 255,
        "ERROR: Labels file labels.txt is no text with a label a line",
    ),
    # places to write to
    "json": (
        nothing, (*FILES, "--json", "no/such/folder.json"), 255,
        "ERROR: cannot write no/such/folder.json: there is no folder .+/no/such",
    ),
    "json-lines": (
        nothing, (*FILES, "--json_lines", "no/a"), 255,
        "ERROR: cannot write no/a: there is no folder .+",
    ),
    "trace": (
        nothing, (*FILES, "--use_gpu", "--trace", "no/run.json"), 255,
        "ERROR: cannot write no/run.json: .+",
    ),
    "output-dir": (
        nothing, (*FILES, "--output_dir", "model.tflite"), 255,
        "ERROR: cannot write model.tflite: it is not a folder",
    ),
    "image-format": (
        nothing, (*FILES, "--output_image", "a.txt"), 255,
        "ERROR: cannot write a.txt: '.txt' is no format of pictures.*",
    ),
    "image-folder": (
        nothing, (*FILES, "--output_image", "no/a.png"), 255,
        "ERROR: cannot write no/a.png: there is no folder.*",
    ),
    "both-stdout": (
        nothing, (*FILES, "--json", "-", "--json_lines", "-"), 64,
        "ERROR: --json and --json_lines cannot both be stdout",
    ),
    "csv-stdout": (
        nothing, (*FILES, "--csv", "-", "--json_lines", "-"), 64,
        "ERROR: --json_lines and --csv cannot both be stdout",
    ),
    "resume": (nothing, (*FILES, "--resume"), 64, "ERROR: --resume needs --json_lines FILE.*"),
    "resume-stdout": (
        nothing, (*FILES, "--resume", "--json_lines", "-"), 64,
        "ERROR: --resume needs --json_lines FILE.*",
    ),
    # what the model does not give
    "nothing-to-draw": (
        nothing, (*FILES, "--output_image", "a.png"), 255,
        "ERROR: .*model.tflite gives neither boxes nor points nor a mask.*",
    ),
    "coco": (
        nothing, (*FILES, "--coco", "a.json"), 255, "ERROR: --coco: .*the model gives no.*",
    ),
    "expect": (
        expectation, (*FILES, "--expect", "a.json"), 255, "ERROR: --expect: .*the model gives no.*",
    ),
    "task": (
        nothing, (*NO_LABELS, "--task", "segmentation"), 255,
        "ERROR: .*no segmentation is in the outputs, 1x3 uint8: they may be.*classification.*",
    ),
    # words
    "no-task": (
        nothing, (*NO_LABELS, "--task", "detection:yolo99"), 64,
        "ERROR: --task: 'detection:yolo99' is not detection, detection:ssd, .*classification.*",
    ),
    "no-option": (nothing, ("--nosuch",), 64, f"ERROR: unknown option --nosuch{HELP}"),
    "no-number": (
        nothing, ("-c", "0"), 64, f"ERROR: -c/--count: '0' is not a positive number{HELP}",
    ),
    "no-profile": (
        nothing, (*FILES, "--device_profile", "nosuch"), 64,
        "ERROR: no device profile 'nosuch': one of .*",
    ),
    "no-profile-of-opencl": (
        nothing, (*FILES, "--use_gpu", "--device_profile", "nosuch"), 64,
        "ERROR: no device profile 'nosuch': one of .*",
    ),
    "no-op": (
        nothing, (*FILES, "--use_gpu", "--exclude_ops", "AVERAGE_POOL2D"), 64,
        r"ERROR: --exclude_ops: there is no op AVERAGE_POOL2D; did you mean AVERAGE_POOL_2D\?",
    ),
    "no-input-name": (
        nothing, (*FILES, "--input", "foo=x.npy"), 64,
        "ERROR: --input: there is no input foo; the model has one input: .*",
    ),
    "no-class": (
        nothing, (*FILES, "--classes", "nosuch"), 64,
        "ERROR: --classes: there is no class nosuch",
    ),
    "stdin": (
        nothing, (*FILES, "-"), 64,
        f"ERROR: '-' is a picture on stdin, and only --image takes it{HELP}",
    ),
    "count-of-many": (
        nothing, (*SEVERAL, "--count", "3"), 64, "ERROR: .*--count is for one picture, and.*",
    ),
    "profiling-of-many": (
        nothing, (*SEVERAL, "--profiling", "1"), 64,
        "ERROR: .*--profiling is for one picture, and.*",
    ),
    # libraries
    "no-library": (
        nothing, (*FILES, "--external_delegate_path", "./libnosuch.so"), 255,
        "ERROR: cannot load the delegate ./libnosuch.so: .+",
    ),
    "foreign-library": (
        nothing, (*FILES, "--external_delegate_path", "./picture.bmp"), 255,
        "ERROR: cannot load the delegate ./picture.bmp: .+",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("spoil", "words", "code", "line"),
    [
        # Without TFLite --use_gpu says so before.
        pytest.param(*row, id=name, marks=needs_tflite if name == "no-op" else ())
        for name, row in REJECTED.items()
    ],
)
def test_bad_input_is_one_clear_line(
    files: Path,
    run: Run,
    spoil: Callable[[Path], Any],
    words: Sequence[str],
    code: int,
    line: str,
) -> None:
    spoil(files)
    ran = run(*words)
    assert (ran.code, ran.out) == (code, [])
    assert re.fullmatch(line, ran.lines[-1])
    assert all(text.startswith(("INFO: ", "WARN: --")) for text in ran.lines[:-1])
    assert "INFO: invoked" not in ran.lines


def test_a_batch_of_unknown_size_is_one(files: Path, run: Run) -> None:
    replace_input(t((1, 4, 4, 3), "uint8", 1.0, 0, shape_signature=(-1, 4, 4, 3)))(files)
    assert run(*FILES).lines == CPU_LINES


@pytest.mark.parametrize("words", [FILES, (*FILES[:2], *FILES[4:], "picture.bmp")])
def test_labels_that_are_not_one_a_class_cost_a_warning(
    files: Path, run: Run, words: Sequence[str]
) -> None:
    (files / "labels.txt").write_text("red\ngreen\nblue\n\n")  # an empty line is no label
    assert not any(line.startswith("WARN") for line in run(*words).lines)
    (files / "labels.txt").write_text("red\ngreen\n")
    ran = run(*words)
    assert ran.code == 0
    warning = "WARN: labels.txt has 2 labels and the model has 3 classes: the names may be wrong"
    assert ran.lines[2] == warning


@slow
def test_what_a_terminal_would_obey_is_shown_as_an_escape(files: Path, run: Run) -> None:
    name = "a\x1b[31m\nb\u202e.bmp"
    (files / "picture.bmp").rename(files / name)
    (files / "labels.txt").write_text("red\n\x1b]0;title\x07green\nblue\n")
    shown = "a\\x1b[31m\\nb\\u202e.bmp"
    label = "0.8: 1 \\x1b]0;title\\x07green"
    alone = run(*FILES[:3], name, *FILES[4:])
    assert (alone.code, alone.lines[4]) == (0, f"INFO: {label}")
    ran = run(*FILES[:2], *FILES[4:], name, f"no{name}")
    assert ran.out == [f"{shown}\t{label}"]
    assert f"ERROR: input file no{shown} not found" in ran.lines
    assert run("-m", name, *FILES[2:]).lines[-1].startswith(f"ERROR: {shown}: ")
    assert run(f"--{name}").err[-1].startswith(f"ERROR: unknown option --{shown} ")


def test_a_fetched_model_is_loaded_by_its_name(
    files: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("label_image.prepare.fetched", lambda name: files / "model.tflite")
    ran = run("-m", "mobilenet_v1_1.0_224_quant", *FILES[2:])
    assert ran.lines[0] == f"INFO: Loaded model {files / 'model.tflite'}"
    assert ran.lines[1:] == CPU_LINES[1:]


def test_a_model_without_operators_runs(files: Path, run: Run) -> None:
    pixels = t((1, 4, 4, 3), "uint8", 1.0, 0)
    (files / "model.tflite").write_bytes(write_model(graph_of([], [pixels], [pixels])))
    ran = run(*FILES)
    assert ran.code == 0
    assert any("1x4x4x3" in line for line in ran.err)


def test_a_damaged_official_model_is_an_error(
    files: Path, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TFLITE_OPENCL_CACHE", str(tmp_path))
    (tmp_path / "mobilenet_v1_1.0_224_quant.tflite").write_bytes(pooling_model(t((1, 4, 4, 3))))
    ran = run("-m", "mobilenet_v1_1.0_224_quant", *FILES[2:])
    assert ran.code == 255
    (line,) = ran.lines
    assert line.startswith(f"ERROR: {tmp_path}/mobilenet_v1_1.0_224_quant.tflite is damaged")


def test_fetching_an_unknown_name_lists_the_known(run: Run) -> None:
    ran = run("--fetch", "resnet")
    assert ran.code == 64
    assert all(name in ran.err[-1] for name in fetch.OFFICIAL)


def test_fetching_a_model_brings_its_labels(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fetched = []

    def fake(name: str, progress: Callable[[int, int], None]) -> Path:
        progress(1, 2)
        progress(2, 2)
        fetched.append(name)
        return tmp_path / name

    monkeypatch.setattr(command, "fetch", fake)
    ran = run("--fetch", "mobilenet_v2_1.0_224_quant")
    assert ran.code == 0
    assert fetched == ["mobilenet_v2_1.0_224_quant", "imagenet_labels"]
    # A bar is for terminals alone.
    assert not any("fetching mobilenet_v2_1.0_224_quant" in line for line in ran.err)


def test_verbose_adds_the_traceback(files: Path, run: Run) -> None:
    ran = run("-m", "nosuch", "--verbose", "1")
    assert ran.code == 255
    assert ran.err[0] == "ERROR: Failed to mmap model nosuch: No such file or directory"
    assert "Traceback (most recent call last):" in ran.err


def test_what_nobody_expected_is_one_line_too(
    files: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr("label_image.one_picture.to_input", broken)
    ran = run(*FILES)
    assert ran.code == 70
    assert ran.err[-1] == "ERROR: KeyError: 'a bug' (not expected: --verbose 1 shows where)"


class BrokenInterpreter:
    """Stand in for TFLite's interpreter where a run fails in the middle."""

    def __init__(self, delegates: Sequence[object], real: Any) -> None:
        self._broken = bool(delegates)
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def invoke(self) -> None:
        if self._broken:
            raise RuntimeError("Node number 2 (OpenCLDelegate) failed to invoke.")
        self._real.invoke()


class FakeDelegate:
    """Stand in for a delegate that takes all nodes and whose device then fails."""

    device = DeviceInfo(0, "platform", "1.2", "name", "vendor", "OpenCL 1.2", "1", "gpu")
    verdicts = (Verdict(0, "AVERAGE_POOL_2D", None), Verdict(1, "RESHAPE", None))
    partitions = ((0, 1),)
    tuning_left = 0
    failure = "clWaitForEvents: DEVICE_NOT_AVAILABLE"

    def __init__(self, model: object, options: Options) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def failing_device(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Runtime.interpreter

    def interpreter(
        self: Runtime, model: Any, threads: Any, kernels: str, delegates: Any, *others: Any
    ) -> Any:
        interpreter = real(self, model, threads, kernels, (), *others)
        return BrokenInterpreter(delegates, interpreter)

    monkeypatch.setattr(Runtime, "interpreter", interpreter)
    for module in ("interpreters.interpreter", "harness.open_job"):
        monkeypatch.setattr(f"tflite_opencl.{module}.OpenCLDelegate", FakeDelegate)


@pytest.mark.usefixtures("failing_device")
def test_a_run_that_fails_in_the_middle_is_repeated_on_the_cpu(files: Path, run: Run) -> None:
    ran = run(*FILES, "--use_gpu", "--json", "out.json")
    assert ran.code == 2
    assert ran.lines == [
        *GPU_LINES[:3],
        "ERROR: clWaitForEvents: DEVICE_NOT_AVAILABLE",
        "WARN: the CPU runs the model instead",
        *CPU_LINES[2:],
    ]
    document = json.loads((files / "out.json").read_text())
    assert document["failure"] == "clWaitForEvents: DEVICE_NOT_AVAILABLE"
    assert "gpu" not in document
    assert [row["label"] for row in document["cpu"]["results"]] == ["green", "blue", "red"]


def test_a_model_that_tflite_cannot_run_is_an_error(files: Path, run: Run) -> None:
    pixels, output = t((1, 4, 4, 3), "uint8", 1.0, 0), t((1, 3), "uint8", 1.0, 0)
    model = chain_model([op("fake-op-double", [pixels], [output], is_custom=True)])
    (files / "model.tflite").write_bytes(model)
    ran = run(*FILES)
    assert ran.code == 255
    assert "fake-op-double" in ran.lines[-2]
    assert ran.lines[-1] == "ERROR: Failed to allocate tensors!"


@slow
@needs_tflite
def test_without_opencl_the_cpu_finishes_the_run_and_the_code_is_2(files: Path) -> None:
    ran = run_process(
        *absolute(files),
        "--use_gpu",
        OCL_ICD_VENDORS=str(files / "none"),
    )
    assert ran.code == 2
    assert ran.out == []
    assert re.fullmatch("ERROR: .*OpenCL.*install.*", ran.lines[2])
    assert ran.lines[3] == "WARN: the CPU runs the model instead"
    assert ran.lines[4:] == CPU_LINES[2:]


@slow
def test_without_opencl_list_devices_fails_and_version_does_not(tmp_path: Path) -> None:
    listed = run_process("--list_devices", OCL_ICD_VENDORS=str(tmp_path / "none"))
    assert listed.code == 2
    assert listed.out == []
    version = run_process("--version", OCL_ICD_VENDORS=str(tmp_path / "none"))
    assert version.code == 0
    assert version.out[-1].startswith("OpenCL driver: none (")
