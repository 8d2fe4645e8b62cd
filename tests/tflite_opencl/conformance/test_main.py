# SPDX-License-Identifier: Apache-2.0
"""The command `tflite-delegate-test`: runs, outputs and exit codes, with known delegates."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from delegate import DeviceInfo
from delegate.inspect import read_model, write_model
from tests.support.model import chain_model, op, t
from tests.support.process import ROOT
from tests.support.subgraphs import two_signatures
from tests.support.tiers import slow
from tests.support.variables import counter_model
from tflite_opencl.cli.messages import stamped
from tflite_opencl.command import main as tools
from tflite_opencl.conformance import progress, subject
from tflite_opencl.conformance.cases.chains import chain_graph
from tflite_opencl.conformance.command import main
from tflite_opencl.conformance.reports import BEGIN, END
from tflite_opencl.conformance.subject import Subject
from tflite_opencl.console.errors import OneLineError
from tflite_opencl.interpreters.runtime import find_runtime

Run = Callable[..., int]
LIARS = "python:tests.attacks.liars:"
TWO = r"^(add|conv_2d)/int8/(1x7x5x3|in7x5x3-k3x3-out8-same)$"
ADD, CONV = "add/int8/1x7x5x3", "conv_2d/int8/in7x5x3-k3x3-out8-same"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs the command on two cases in a new folder."""
    monkeypatch.chdir(tmp_path)

    def call(liar: str, *flags: str) -> int:
        return main(["--delegate", f"{LIARS}{liar}", "--filter", TWO, *flags])

    return call


def csv(folder: str = "delegate-test-results", name: str = "results.csv") -> dict[str, str]:
    lines = (Path(folder) / name).read_text().splitlines()
    return {line.split(",")[0]: line.split(",")[1] for line in lines}


@slow
def test_success(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("pass_through") == 0
    assert csv() == {ADD: "Pass", CONV: "Pass"}
    assert csv(name="failures.csv") == {}
    first = Path("delegate-test-results/results.csv").read_text().splitlines()[0]
    name, status, seconds = first.split(",")
    assert (name, status) == (ADD, "Pass")
    assert float(seconds) > 0
    assert "2 cases in" in capsys.readouterr().out


@slow
def test_all_outputs(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jinja2")
    outputs = {
        name: f"{name}.txt"
        for name in ("junit", "ktap", "lava", "json", "html", "coverage", "kernelci")
    }
    flags = ["--kernelci_build", "me:1"]
    flags += [word for name, path in outputs.items() for word in (f"--{name}", path)]
    assert run("off_by_one", *flags) == 1
    texts = {name: Path(path).read_text() for name, path in outputs.items()}
    root = ElementTree.fromstring(texts["junit"].encode())
    (failure,) = root.iter("failure")
    assert failure.get("type") == "Fail"
    assert {case.get("name") for case in root.iter("testcase")} == {ADD, CONV}
    assert texts["ktap"].splitlines()[:3] == ["KTAP version 1", "1..2", f"not ok 1 {ADD}"]
    assert f"ok 2 {CONV}" in texts["ktap"].splitlines()
    assert "TEST_CASE_ID=add_int8_1x7x5x3 RESULT=fail" in texts["lava"]
    result = json.loads(texts["json"])
    assert result.items() >= stamped({}).items()
    assert result["counts"] == {"Fail": 1, "Pass": 1}
    assert result["cases"][0]["quanta"] == 1
    assert "| ADD | 1 of 1 differ, up to 1 |" in texts["coverage"]
    assert "1 of 105 elements differ" in texts["html"]
    assert "<td>CONV_2D</td>" in texts["html"]
    statuses = [test["status"] for test in json.loads(texts["kernelci"])["tests"]]
    assert statuses == ["FAIL", "PASS"]
    assert list(Path().glob("*.part")) == []
    capsys.readouterr()


@slow
def test_coverage_replaces_only_the_table(run: Run) -> None:
    page = Path("page.md")
    page.write_text(f"before\n\n{BEGIN}\nold\n{END}\n\nafter\n")
    for _ in range(2):
        assert run("pass_through", "--coverage", str(page)) == 0
        text = page.read_text()
        assert text.startswith(f"before\n\n{BEGIN}\n")
        assert text.endswith(f"\n{END}\n\nafter\n")
        assert "\n| ADD, CONV_2D | exact |\n" in text
        assert "old" not in text


@slow
def test_output_to_pipe(run: Run) -> None:
    os.mkfifo("pipe")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(Path("pipe").read_text()), daemon=True)
    reader.start()
    assert run("pass_through", "--json", "pipe") == 0
    reader.join(timeout=60)
    assert json.loads(read[0])["cases"][0]["name"] == ADD
    assert Path("pipe").is_fifo()


@slow
def test_baseline(run: Run) -> None:
    baseline = ["--baseline", "liar-fails.txt"]
    assert run("off_by_one", *baseline, "--update_baseline") == 0
    assert Path("liar-fails.txt").read_text().splitlines()[1:] == [f"{ADD},Fail"]
    assert run("off_by_one", *baseline) == 0
    assert csv()[ADD] == "ExpectedFail"
    assert run("pass_through", *baseline) == 1
    assert csv()[ADD] == "UnexpectedImprovement(Pass)"


@slow
def test_skips_are_not_run(run: Run) -> None:
    Path("skips.txt").write_text("^add/\n")
    assert run("crash", "--skips", "skips.txt") == 0
    assert csv() == {ADD: "Skip", CONV: "Pass"}


@slow
def test_tolerance(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("off_by_one", "--tolerance", "teflon", "--json", "-") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["cases"][0]["detail"].startswith("within tolerance: ")
    assert result["cases"][0]["quanta"] == 1


@slow
def test_no_delegation_is_unexpected(run: Run) -> None:
    assert run("takes_nothing") == 1
    assert run("takes_nothing", "--allow_not_delegated") == 0


@slow
def test_time_is_limited(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    # CONV passes, then ADD hangs until the time is over.
    Path("before.json").write_text(json.dumps({"cases": [{"name": CONV, "result": "Fail"}]}))
    limit = ["--minutes", "0.15", "--earlier", "before.json", "--timeout", "300"]
    begun = time.monotonic()
    assert run("hang", *limit, "--json", "all.json") == 0
    assert time.monotonic() - begun < 60
    result = json.loads(Path("all.json").read_text())
    assert [case["name"] for case in result["cases"]] == [CONV]
    assert result["not_run"] == 1
    assert result["begun"].startswith("20")
    assert "1 more were not run: --minutes 0.15" in capsys.readouterr().out


@slow
def test_wrong_device_is_refused(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("pass_through", "--expect_device", "Vivante") == 77
    assert "the device is python:tests.attacks.liars:pass_through, not" in capsys.readouterr().err


@slow
def test_killed_run_resumes(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "tflite_opencl.conformance", "--delegate", f"{LIARS}hang",
        "--filter", TWO, "--timeout", "300", "--output", str(tmp_path / "out"),
    ]  # fmt: skip
    child = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    details = tmp_path / "out" / "details.jsonl"
    until = time.monotonic() + 300
    # The first case hangs until it is interrupted.
    while not details.exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert details.exists()  # an earlier Ctrl-C would interrupt Python's imports
    child.send_signal(signal.SIGINT)
    assert child.wait(60) == 130
    done = json.dumps(
        {"name": ADD, "result": "Pass", "detail": "", "seconds": 1.0, "quanta": 0, "taken": 1,
         "nodes": 1, "stderr": ""}
    )  # fmt: skip
    # As after a power failure: one finished case, and half a line.
    details.write_text(f'{done}\n{{"name": "conv')
    again = subprocess.run(
        [*command, "--resume"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert again.returncode == 0, again.stderr
    assert csv(str(tmp_path / "out")) == {ADD: "Pass", CONV: "Pass"}


@slow
def test_other_runs_folder_is_not_resumed(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("pass_through", "--resume") == 255
    assert "has no run to go on with" in capsys.readouterr().err
    assert run("pass_through") == 0
    assert run("off_by_one", "--resume") == 255
    assert "is of another run: delegate was" in capsys.readouterr().err


@slow
def test_folder_of_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    model = write_model(chain_graph("diamond", "int8", (1, 5, 5, 3)))
    (tmp_path / "models" / "small.tflite").write_bytes(model)
    (tmp_path / "models" / "broken.tflite").write_bytes(b"no model")
    command = ["--delegate", f"{LIARS}pass_through", "--models", "models", "--filter", "^model/"]
    assert main(command) == 0
    assert csv() == {"model/whole/broken": "Skip", "model/whole/small": "Pass"}


@slow
@pytest.mark.parametrize("where", ["input", "output"])
def test_model_with_huge_tensor_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    most = 2**31 - 1
    shapes = {"input": (1, 4), "output": (1, 4), where: (1, most, most, 0, most)}
    step = op("RELU", [t(shapes["input"])], [t(shapes["output"])])
    (tmp_path / "models" / "huge.tflite").write_bytes(chain_model([step]))
    command = ["--delegate", f"{LIARS}pass_through", "--models", "models", "--filter", "^model/"]
    assert main([*command, "--json", "all.json"]) == 77
    (result,) = json.loads(Path("all.json").read_text())["cases"]
    assert result["result"] == "Skip"
    assert result["detail"].endswith(
        "is 1x2147483647x2147483647x0x2147483647: no array is so large"
    )


@slow
def test_nodes_are_named_like_mesas_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = Path("small.tflite")
    model.write_bytes(write_model(chain_graph("diamond", "int8", (1, 5, 5, 3))))
    assert tools(["cut", "small.tflite", "--output", "models/small"]) == 0
    adds = "Models.Op/small_003"
    Path("fails.txt").write_text(f"# Mesa's form\n{adds},Fail\n")
    command = ["--models", "models", "--filter", "^Models", "--baseline", "fails.txt"]
    liar = ["--delegate", f"{LIARS}off_by_one", *command]
    others = {f"Models.Op/small_00{number}": "Pass" for number in range(3)}
    assert main(liar) == 0
    assert csv() == {**others, adds: "ExpectedFail"}
    assert main([*liar, "--tolerance", "teflon"]) == 1
    assert csv() == {**others, adds: "UnexpectedImprovement(Pass)"}
    Path("fails.txt").write_text("")
    assert main([*liar, "--update_baseline"]) == 0
    assert Path("fails.txt").read_text().splitlines()[1:] == [f"{adds},Fail"]


@slow
def test_unusual_model_names_are_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    stem = os.fsdecode(b"a\n,b#\x1b[31m\xef\xbf\xbf")
    model = write_model(chain_graph("diamond", "int8", (1, 5, 5, 3)))
    (tmp_path / "models" / f"{stem}.tflite").write_bytes(model)
    outputs = ["--junit", "junit.xml", "--ktap", "ktap.txt"]
    command = ["--delegate", f"{LIARS}pass_through", "--models", "models", "--filter", "^model/"]
    assert main([*command, *outputs]) == 0
    name = "model/whole/a\\n\\x2cb\\x23\\x1b[31m\uffff"
    assert csv() == {name: "Pass"}
    root = ElementTree.parse("junit.xml").getroot()
    assert [each.get("name") for each in root.iter("testcase")] == [name.replace("\uffff", "?")]
    assert Path("ktap.txt").read_text().splitlines()[2:] == [f"ok 1 {name}"]


@slow
def test_case_is_reduced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "chain/int8/strided_residual-in1x8x8x8"
    folder = str(tmp_path / "small")
    assert main(["--delegate", f"{LIARS}off_by_one", "--reduce", name, "--output", folder]) == 0
    output = capsys.readouterr().out
    assert "the first node whose output is wrong: 3, ADD" in output
    assert (tmp_path / "small" / "reduced.tflite").stat().st_size < 1500
    assert np.load(tmp_path / "small" / "reduced_input_0.npy").size == 1
    script = tmp_path / "small" / "reduced.py"
    assert len([line for line in script.read_text().splitlines() if line[0] != "#"]) == 6
    shown = subprocess.run(
        [sys.executable, "small/reduced.py"], cwd=tmp_path, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=120, check=False,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    right, wrong = shown.stdout.splitlines()
    assert right != wrong


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (two_signatures, f"does not fail with {LIARS}pass_through"),
        (counter_model, "cannot be made smaller: node 0 CALL_ONCE runs other subgraphs"),
    ],
)
def test_reduction_of_several_graphs(
    model: Callable[[], bytes], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "several.tflite"
    path.write_bytes(model())
    flags = ["--delegate", f"{LIARS}pass_through", "--reduce", str(path)]
    assert main([*flags, "--output", str(tmp_path)]) == 255
    assert capsys.readouterr().err.splitlines() == [f"ERROR: {path} {words}"]


@slow
@pytest.mark.device
def test_failing_alternative_is_reduced(
    tmp_path: Path, device: DeviceInfo, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--delegate", f"{LIARS}plain_is_wrong", "--alternatives", "--reduce", CONV]
    options = ["--delegate_options", f"device:{device.index}", "--output", str(tmp_path)]
    assert main([*flags, *options]) == 0
    assert capsys.readouterr().out.startswith(f"{CONV}: Fail: plain: ")
    assert "'alternative': 'plain'" in (tmp_path / "reduced.py").read_text()


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--filter", "("], 64, "argument --filter: '(': "),
        (["--filter", "^nothing$"], 64, "no case matches ^nothing$"),
        (["--sample", "0"], 64, "'0' is not a positive number"),
        (["--jobs", "9" * 5000], 64, "is not a whole number"),
        (["--tolerance", "9" * 5000], 64, "is neither a number of quanta nor teflon"),
        (["--quick", "--sample", "3"], 64, "--quick and --sample exclude each other"),
        (["--tolerance", "some"], 64, "'some' is neither a number of quanta nor teflon"),
        (["--delegate_options", "a"], 64, "'a' is not KEY:VALUE"),
        (
            ["--delegate_options", "a:1"],
            64,
            "a: opencl has alternative, device_profile, precision, tune",
        ),
        (["--delegate_options", "tune:never"], 64, "tune='never': one of off, quick, full"),
        (["--output", "-"], 255, "cannot write -: it cannot be stdout"),
        (["--output", "/dev/null"], 255, "cannot write /dev/null: it is not a folder"),
        (["--delegate_options", "device_profile:none"], 64, "no device profile 'none': one of "),
        (["--timeout", "nan"], 64, "'nan' is not a number"),
        (["--update_baseline"], 64, "--update_baseline needs --baseline FILE"),
        (["--baseline", "none.txt"], 255, "cannot read none.txt"),
        (["--update_baseline", "--baseline", "none/x"], 255, "cannot write --baseline none/x: "),
        (["--models", "none"], 255, "cannot read none"),
        (["--json", "none/x.json"], 255, "cannot write --json none/x.json: there is no folder "),
        (["--reduce", "no/such/case"], 255, "there is no case no/such/case"),
        (["--delegate", "xnnpack", "--device_profile", "v3d"], 64, "is for --delegate opencl"),
        (["--delegate", "xnnpack", "--alternatives"], 64, "is for --delegate opencl"),
        (["--delegate", "libfoo.so", "--alternatives"], 64, "is for --delegate opencl"),
        (["--unknown"], 64, "unrecognized arguments: --unknown"),
        (["--minutes", "0"], 64, "'0' is no usable number of minutes"),
        (["--earlier", "run.json"], 64, "--earlier is for --minutes"),
        (["--minutes", "1", "--earlier", "none.json"], 255, "cannot read none.json"),
        (["--shard", "3/2"], 64, "'3/2' is no part: 3 is more than 2"),
        (["--filter", TWO, "--shard", "1/99"], 64, "--shard 1/99 has none of the 2 cases"),
        (["--kernelci", "x"], 64, "--kernelci FILE and --kernelci_build ORIGIN:ID need each other"),
        (["--kernelci", "x", "--kernelci_build", "Me:1"], 64, "'Me:1' is not ORIGIN:ID"),
    ],
)
def test_usage_errors(
    flags: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(flags) == code
    output = capsys.readouterr()
    assert output.out == ""
    assert words in output.err
    assert len(output.err.splitlines()) == 1


@slow
def test_full_disk_is_one_line(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    Path("delegate-test-results").mkdir()
    Path("delegate-test-results/details.jsonl").symlink_to("/dev/full")
    assert run("pass_through") == 255
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == "ERROR: cannot write delegate-test-results: No space left on device"
    assert not any("Traceback" in line for line in lines)


def test_index_of_device(monkeypatch: pytest.MonkeyPatch) -> None:
    # Versions have digits, too, which are no indices.
    results = [
        DeviceInfo(n, "P", "3.1", name, "V", "3.0", "1", "cpu") for n, name in enumerate("ab")
    ]
    monkeypatch.setattr(subject, "list_devices", lambda: tuple(results))
    descriptions = [Subject("opencl", {}, text, find_runtime()).describe() for text in ("0", "1")]
    assert descriptions == ["a (P, 1)", "b (P, 1)"]
    with pytest.raises(OneLineError, match="no OpenCL device matches '3'"):
        Subject("opencl", {}, "3", find_runtime()).describe()


@slow
def test_no_device_exits_with_77(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    output = ["--output", str(tmp_path / "out"), "--filter", TWO]
    assert main(["--device", "no such device", *output]) == 77
    assert capsys.readouterr().err.startswith("SKIP: ")


@slow
def test_missing_library_is_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    output = ["--output", str(tmp_path / "out"), "--filter", TWO]
    assert main(["--delegate", str(tmp_path / "none.so"), *output]) == 255
    assert capsys.readouterr().err.startswith(f"ERROR: cannot load {tmp_path / 'none.so'}: ")


@slow
def test_device_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--output", str(tmp_path / "out"), "--filter", "^relu/float32/in3$"]
    assert main(["--device_profile", "no such board", *flags]) == 64
    assert capsys.readouterr().err.startswith("ERROR: no device profile 'no such board': one of ")
    if main(["--device_profile", "v3d", *flags]) == 77:
        pytest.skip(capsys.readouterr().err)
    assert csv(str(tmp_path / "out")) == {"relu/float32/in3": "Pass"}


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--filter", TWO]) == 0
    assert capsys.readouterr().out.splitlines() == [ADD, CONV]


@slow
def test_models_of_cases_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--filter", TWO, "--write_models", str(tmp_path)]) == 0
    assert capsys.readouterr().out == ""
    models = {str(path.relative_to(tmp_path)): path for path in tmp_path.rglob("*.tflite")}
    assert sorted(models) == sorted(f"{name}.tflite" for name in (ADD, CONV))
    assert [node.op for node in read_model(models[f"{ADD}.tflite"]).nodes] == ["ADD"]
    (tmp_path / "file").write_text("")
    assert main(["--filter", TWO, "--write_models", str(tmp_path / "file")]) == 255
    assert capsys.readouterr().err.startswith("ERROR: cannot write ")


@slow
def test_progress_lines_without_terminal(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.01)
    assert run("off_by_one", "--tolerance", "teflon") == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if " cases in " in line]
    assert re.match(r"0 of \d+ cases in 0 s: the first one is not done yet", lines[0])
