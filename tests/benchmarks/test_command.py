# SPDX-License-Identifier: Apache-2.0
"""The benchmark command runs and its numbers are consistent; speed is not checked."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks import rows
from benchmarks.command import main
from benchmarks.results import load, save
from delegate import DeviceInfo
from tests.support.model import chain_model, op, t
from tests.support.process import ROOT
from tests.support.report import report
from tests.support.tiers import slow

POOL = {
    "padding": "VALID", "stride_w": 2, "stride_h": 2, "filter_width": 2, "filter_height": 2
}  # fmt: skip

QUICKLY = ("--count", "1", "--tune", "off")
LARGE, MIDDLE, SMALL = 128 * 128 * 8, 64 * 64 * 8, 32 * 32 * 8  # elements of a picture


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a model with a CPU op between two partitions that are worth their copies."""
    picture = t((1, 128, 128, 8), "uint8", 0.5, 3)
    pooled = t((1, 64, 64, 8), "uint8", 0.5, 3)
    real, wave = t(pooled.shape), t(pooled.shape)
    quantized = t(pooled.shape, "uint8", 0.5, 3)
    result = t((1, 32, 32, 8), "uint8", 0.5, 3)
    path = tmp_path / "pools.tflite"
    path.write_bytes(
        chain_model(
            [
                op("AVERAGE_POOL_2D", [picture], [pooled], POOL),
                op("DEQUANTIZE", [pooled], [real]),
                op("LOCAL_RESPONSE_NORMALIZATION", [real], [wave]),
                op("QUANTIZE", [wave], [quantized]),
                op("MAX_POOL_2D", [quantized], [result], POOL),
            ]
        )
    )
    return path


@pytest.fixture
def saved(tmp_path: Path) -> str:
    """Return --json output of a fictitious machine."""
    path = tmp_path / "made_up.json"
    save(report(), path)
    return str(path)


@slow
def test_model_with_two_partitions(
    model: Path, device: DeviceInfo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written, drawn = tmp_path / "times.json", tmp_path / "times.svg"
    # This checkout plays the older one.
    arguments = [
        str(model), "--device", str(device.index), *QUICKLY, "--judge", "--before", str(ROOT)
    ]  # fmt: skip

    assert main([*arguments, "--json", str(written), "--chart", str(drawn)]) == 0

    (row,) = load(written).rows
    assert (row.row, row.failed, row.skipped) == ("pools", "", "")
    assert device.name in row.device
    taken = row.delegation
    assert taken is not None
    assert (taken.nodes, taken.delegated, taken.partitions, taken.launches) == (5, 4, 2, 4)
    assert taken.up_bytes == LARGE + 4 * MIDDLE
    assert taken.down_bytes == 4 * MIDDLE + SMALL
    assert row.exact == "equal to the reference kernels"
    assert next(iter(row.paths)) == "OpenCL"
    assert {"built-in kernels", "OpenCL before"} <= {*row.paths}
    assert 0 <= taken.limit_of_work_ms < taken.limit_ms
    ours = row.paths["OpenCL"]
    for times in row.paths.values():
        assert 0 < times.min_ms <= times.median_ms
        assert times.ratio == ours.min_ms / times.min_ms
        assert times.ratio_quartiles == tuple(sorted(times.ratio_quartiles))
    assert drawn.read_text().startswith("<?xml")
    output = capsys.readouterr().out
    assert device.name in output
    assert "| pools " in output
    assert "now/before" in output
    assert "4 of 5" in output


@slow
def test_every_node(
    model: Path, device: DeviceInfo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "layers.json"
    arguments = [str(model), "--device", str(device.index), *QUICKLY, "--layers"]

    assert main([*arguments, "--json", str(written)]) == 0

    (layers,) = load(written).layers
    assert [(layer.node, layer.op) for layer in layers.layers] == [
        (0, "AVERAGE_POOL_2D"), (1, "DEQUANTIZE"), (3, "QUANTIZE"), (4, "MAX_POOL_2D")
    ]  # fmt: skip
    first, _, _, last = (layer.bytes_moved for layer in layers.layers)
    assert (first, last) == (LARGE + MIDDLE, MIDDLE + SMALL)
    assert layers.peak_multiply_adds > 0
    # Without limits: on a busy machine the measured peaks may be below a launch's rate.
    assert all(layers.roofline_fraction(layer) > 0 for layer in layers.layers)
    assert "Roofline: " in capsys.readouterr().out


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(
    ("file", "device_name", "line"),
    [
        ("missing.tflite", "0", "missing.tflite"),
        ("pools.tflite", "no such device", "no OpenCL device matches 'no such device'"),
    ],
    ids=["no such model", "no such device"],
)
def test_usage_errors_are_one_line(
    model: Path, file: str, device_name: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(model.with_name(file)), "--device", device_name]) == 1
    (output,) = capsys.readouterr().err.splitlines()
    assert output.startswith("ERROR: ")
    assert line in output


def test_list_of_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    output = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in output] == list(rows.ROWS)


@pytest.mark.parametrize(
    "arguments",
    [["--rows", "v1,v17"], ["--count", "0"], ["--threads", "0"], ["--json", "no/a.json"]],
    ids=" ".join,
)
def test_wrong_argument(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.command._measured", lambda _: report())
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert arguments[0] in capsys.readouterr().err


@slow
def test_skipped_row_has_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--rows", "v2", "--models", str(tmp_path), "--device", "0", "--judge"]
    assert main(arguments) == 0
    assert re.search(
        r"^v2: skipped: there is no mobilenet_v2_1.0_224_quant.tflite ",
        capsys.readouterr().out,
        re.MULTILINE,
    )


def test_missed_figure(saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--from", saved, "--judge"]) == 1
    output = capsys.readouterr()
    assert output.err.splitlines() == [
        "MISSED: bad: of XNNPACK's time: 0.60, not at most 0.5",
        "ERROR: broken: it broke",
    ]
    assert "CPU: a CPU with units" in output.out


def test_only_failures_are_errors_without_check(tmp_path: Path) -> None:
    whole = report()
    path = tmp_path / "report.json"
    save(type(whole)(whole.machine, [row for row in whole.rows if not row.failed]), path)
    assert main(["--from", str(path)]) == 0
    assert main(["--from", str(path), "--judge"]) == 1
    assert json.loads(path.read_text())["series"] == []


@slow
def test_documents_of_two_machines(saved: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    document = tmp_path / "performance.md"
    document.write_text("Before\n<!-- measured: begin -->\nold\n<!-- measured: end -->\nAfter\n")
    for _ in range(2):  # writing again changes nothing
        main(["--from", saved, saved, "--docs", str(tmp_path)])
    text = document.read_text()
    assert text.startswith("Before\n<!-- measured: begin -->\n### a GPU and a CPU with units\n")
    assert text.endswith("<!-- measured: end -->\nAfter\n")
    assert "old" not in text
    assert text.count("### a GPU and a CPU with units\n") == 2
    assert text.count("| best      | 1.000 / 1.100 | 5.000 / 5.500 |  0.20 |") == 2
    for line in (
        "- outputs equal to the reference kernels: best, good, bad, elsewhere\n",
        "- bad: of XNNPACK's time: 0.60 (limit: 0.5), missed\n",
        "- rate: throughput: 1,500 pictures/s (limit: at least 1,000 pictures/s), reached\n",
        "- absent: skipped: there is no such device\n",
    ):
        assert text.count(line) == 2
    pictures = re.findall(r"!\[.+\]\((.+)\)", text)
    assert pictures == [
        f"performance_{number}_{what}.svg" for number in (1, 2) for what in ("figures", "times")
    ]
    for picture in pictures:
        assert (tmp_path / picture).stat().st_size < 100_000


def test_document_without_measured_part(
    saved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "performance.md").write_text("text\n")
    assert main(["--from", saved, "--docs", str(tmp_path)]) == 255
    assert "has no part between" in capsys.readouterr().err
