# SPDX-License-Identifier: Apache-2.0
"""The command line: forms, prefixes, truth values, wrong values, and what does nothing."""

from __future__ import annotations

import re
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from label_image import flags
from label_image.flag_table import ALL, Flags
from label_image.flags import parse
from tflite_opencl.console.errors import UsageError

# Every flag of TFLite's label_image: name, short form, a value, what it means as a setting.
LABEL_IMAGE_FLAGS = [
    ("count", "c", "7", ("count", 7)),
    ("image", "i", "a.bmp", ("image", "a.bmp")),
    ("input_mean", "b", "1.5", ("input_mean", 1.5)),
    ("input_std", "s", "-2", ("input_std", -2.0)),
    ("labels", "l", "a.txt", ("labels", "a.txt")),
    ("max_profiling_buffer_entries", "e", "9", ("max_profiling_buffer_entries", 9)),
    ("num_results", "r", "3", ("num_results", 3)),
    ("profiling", "p", "1", ("profiling", True)),
    ("allow_fp16", "f", "1", ("allow_fp16", True)),
    ("tflite_model", "m", "a.tflite", ("tflite_model", "a.tflite")),
    ("threads", "t", "2", ("threads", 2)),
    ("verbose", "v", "1", ("verbose", True)),
    ("warmup_runs", "w", "0", ("warmup_runs", 0)),
    ("xnnpack_delegate", "x", "1", ("announce_xnnpack", True)),
]
NOT_DONE = [
    ("--accelerated=1", "NNAPI"),
    ("--gl_backend=1", "OpenGL"),
    ("--hexagon_delegate=1", "Hexagon"),
    ("--gpu_backend=gl", "OpenGL"),
    ("--gpu_experimental_enable_quant=false", "quantised"),
    ("--gpu_invoke_loop_times=3", "--count"),
    ("--delegate_serialize_dir=/tmp", "cached"),
    ("--delegate_serialize_token=me", "cached"),
    ("--first_delegate_node_index=1", "--exclude_ops"),
    ("--last_delegate_node_index=1", "--exclude_ops"),
    ("--xnnpack_force_fp16=true", "XNNPACK"),
    ("--xnnpack_weight_cache_file_path=f", "XNNPACK"),
    ("--xnnpack_runtime_flags=1", "XNNPACK"),
    ("--stable_delegate_settings_file=f", "--external_delegate_path"),
    ("--use_nnapi=true", "NNAPI"),
    ("--nnapi_accelerator_name=npu", "NNAPI"),
    ("--use_hexagon=true", "Hexagon"),
    ("--use_coreml=true", "Core ML"),
    ("--external_delegate_options=a:b", "--external_delegate_path"),
    ("--device=gpu", "--use_gpu"),
    ("--device_profile=v3d", "--use_gpu"),
    ("--exclude_ops=ADD", "--use_gpu"),
    ("--device_timeout=3", "--use_gpu"),
    ("--isolate", "--use_gpu"),
    ("--unordered", "--scheduler"),
    ("--chunk=3", "--scheduler"),
]
SILENT = [
    "--use_gpu=true",
    "--gpu_backend=cl",
    "--gpu_precision_loss_allowed=false",
    "--gpu_inference_for_sustained_speed=true",
    "--max_delegated_partitions=1",
    "--min_nodes_per_partition=2",
    "--num_threads=3",
    "--use_xnnpack=true",
    "--external_delegate_path=f.so",
]
WRONG_VALUES = [
    ("-c 0", "'0' is not a positive number"),
    ("-c -1", "'-1' is not a positive number"),
    ("--count=many", "'many' is not a whole number"),
    ("--count=1.5", "'1.5' is not a whole number"),
    ("-w -1", "'-1' is less than 0"),
    ("-t 0", "'0' is neither a positive number nor -1"),
    ("-t 100000", "'100000' is more than 1024"),
    ("--num_threads=2147483648", "'2147483648' does not fit into 32 bits"),
    ("-c 99999999999999999999", "'99999999999999999999' does not fit into 32 bits"),
    ("-w 2147483648", "'2147483648' does not fit into 32 bits"),
    ("--batch 65537", "'65537' is more than 65536"),
    ("--device_timeout 1e300", "'1e300' is more than 1000000"),
    ("-r 0", "'0' is not a positive number"),
    ("-e 0", "'0' is not a positive number"),
    ("-s 0", "cannot be divided by 0"),
    ("--batch 0", "'0' is not a positive number"),
    ("-b nan", "'nan' is not a number"),
    ("--verbose=2", "'2' is not true, false, 1 or 0"),
    ("--quiet -v 1", "--quiet and --verbose exclude each other"),
    ("--use_gpu=yes", "'yes' is not true, false, 1 or 0"),
    ("--tune fast", "'fast' is not auto, off, quick or full"),
    ("--placement cpu", "'cpu' is not device, fastest, offload or offload:FACTOR, of at least 1"),
    ("--placement offload:0.5", "'offload:0.5' is not device, fastest, offload or offload:FACTOR"),
    ("--cpu_kernels fast", "'fast' is not auto, builtin or reference"),
    ("--gpu_backend=vulkan", "'vulkan' is not cl or gl"),
    ("--device_timeout -1", "'-1' is less than 0 seconds"),
    ("--external_delegate_options=a:b:c", "'a:b:c' is not key:value"),
    ("--external_delegate_options=a", "'a' is not key:value"),
    ("--external_delegate_options=:b", "':b' is not key:value"),
    ("--input a", "'a' is not NAME=FILE"),
    ("--input =a.npy", "'=a.npy' is not NAME=FILE"),
    ("--input=a=", "'a=' is not NAME=FILE"),
    ("--output_dir=", "'' is no name of a file or folder"),
    ("--json=", "'' is no name of a file or folder"),
]
WRONG_WORDS = [
    (
        "--scheduler local:2 --watch a",
        "--scheduler is for pictures that are there: not for --video and --watch",
    ),
    ("--nosuch", "unknown option --nosuch"),
    ("-z", "unknown option -z"),
    ("-d 3", "unknown option -d"),
    ("--count", "--count needs a value"),
    ("-m", "-m needs a value"),
    ("--in 1", "--in is ambiguous: --input_mean, --input_std"),
    ("--dev 0", "unknown option --dev; did you mean --device?"),
    (
        "--external_delegate_pat=f",
        "unknown option --external_delegate_pat; did you mean --external_delegate_path?",
    ),
    ("--help=1", "--help takes no value"),
    (
        "--use_gpu maybe",
        "--use_gpu maybe: neither one of 0, 1, false, true nor a picture that is there",
    ),
    ("--list_devices=1", "--list_devices takes no value"),
    ("--compare=maybe", "--compare: 'maybe' is not true, false, short or all"),
]


# A text for each kind of value that is no number and no name.
SAMPLES = {
    "batch": "2", "compare": "all", "gpu_backend": "cl", "tune": "full", "cpu_kernels": "builtin",
    "input_size": "2x3", "profiling_order": "time", "shard": "1/2", "scheduler": "local:2",
    "external_delegate_options": "a:b", "video_options": "a:b", "task": "pose", "input": "a=b",
    "placement": "offload:3", "precision": "fp16",
}  # fmt: skip


def words(line: str) -> list[str]:
    return line.split()


@pytest.mark.parametrize("name", ALL)
def test_a_flag_gives_what_its_field_is(name: str) -> None:
    """Fields are annotated by hand: mypy does not see what a shared flag converts to."""
    row, kind = ALL[name], get_type_hints(Flags)[name]
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    types = tuple(get_origin(each) or each for each in kinds)
    given = row.convert(SAMPLES.get(name, "1")) if row.convert else True
    for value in [given] if row.is_repeatable else given, row.default:
        assert isinstance(value, types)
    assert (NoneType in types) == (row.default is None)


def test_the_command_line_of_a_gpu_test_means_what_it_says() -> None:
    settings = parse(
        words(
            "--gpu_backend=cl --use_gpu=true --verbose 1 --tflite_model M --labels L --image I "
            "--warmup_runs 1 -c 1"
        )
    )
    assert settings.use_gpu
    assert settings.verbose
    assert (settings.tflite_model, settings.labels, settings.image) == ("M", "L", "I")
    assert (settings.warmup_runs, settings.count) == (1, 1)
    assert settings.warnings == ()


def test_defaults_are_those_of_label_image() -> None:
    settings = parse([])
    assert (settings.image, settings.count, settings.warmup_runs) == ("./grace_hopper.bmp", 1, 2)
    assert (settings.threads, settings.num_results) == (4, 5)
    assert (settings.input_mean, settings.input_std) == (None, None)
    assert settings.max_profiling_buffer_entries == 1024
    assert [settings.use_gpu, settings.verbose, settings.profiling] == [False] * 3
    assert (settings.compare, settings.table_flag) == ("short", "--compare")
    assert settings.warnings == ()


@pytest.mark.parametrize(
    ("name", "short", "value", "meaning"), LABEL_IMAGE_FLAGS, ids=[f[0] for f in LABEL_IMAGE_FLAGS]
)
def test_every_form_of_a_flag_means_the_same(
    name: str, short: str, value: str, meaning: tuple[str, Any]
) -> None:
    forms = [
        [f"--{name}", value],
        [f"--{name}={value}"],
        [f"-{short}", value],
        [f"-{short}{value}"],
    ]
    for form in forms:
        assert getattr(parse(form), meaning[0]) == meaning[1], form


@pytest.mark.parametrize("line", ["--verb 1", "--v=1", "-v 1", "-v1", "-v true", "--verbose"])
def test_unique_prefixes_of_label_images_names_resolve(line: str) -> None:
    assert parse(words(line)).verbose


def test_our_own_names_make_no_prefix_ambiguous() -> None:
    # --version, --compare and --list_devices begin as these do.
    settings = parse(words("--ver 1 --co 3 --l L"))
    assert (settings.verbose, settings.count, settings.labels) == (True, 3, "L")


@pytest.mark.parametrize("text", ["true", "1", "TRUE"])
@pytest.mark.parametrize("form", ["--use_gpu={}", "--use_gpu {}"])
def test_a_boolean_is_true_in_every_spelling(form: str, text: str) -> None:
    assert parse(words(form.format(text))).use_gpu


@pytest.mark.parametrize("text", ["false", "0"])
@pytest.mark.parametrize("form", ["--use_gpu={}", "--use_gpu {}"])
def test_a_boolean_is_false_in_every_spelling(form: str, text: str) -> None:
    assert not parse(words(form.format(text))).use_gpu


@pytest.mark.parametrize(
    ("line", "compare", "compares_all", "table_flag", "image"),
    [
        ("--compare", True, False, None, "./grace_hopper.bmp"),
        ("--compare all", True, True, None, "./grace_hopper.bmp"),
        ("--compare=all a.png", True, True, None, "a.png"),
        ("--compare a.png", True, False, None, "a.png"),
        ("--compare short a.png", True, False, "--compare", "a.png"),
        ("--compare short -v", True, False, None, "./grace_hopper.bmp"),
        ("--quiet", True, False, "", "./grace_hopper.bmp"),
        ("--compare false", False, False, "--verbose 1", "./grace_hopper.bmp"),
        ("--compare 0 -v 1", False, False, None, "./grace_hopper.bmp"),
        ("--use_gpu all", True, False, "--compare", "all"),
    ],
)
def test_what_is_compared_and_shown(
    line: str,
    compare: bool,
    compares_all: bool,
    table_flag: str | None,
    image: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("all").mkdir()  # a folder of pictures
    settings = parse(line.split())
    assert (bool(settings.compare), settings.compares_all) == (compare, compares_all)
    assert settings.table_flag == table_flag
    assert settings.image == image


def test_a_bare_boolean_takes_no_word_that_is_not_a_truth_value() -> None:
    settings = parse(words("--use_gpu --image a.bmp -v -m b.tflite"))
    assert settings.use_gpu
    assert settings.verbose
    assert (settings.image, settings.tflite_model) == ("a.bmp", "b.tflite")


@pytest.mark.parametrize(
    ("line", "pictures"),
    [
        ("", ()),
        ("-i a.bmp", ()),
        ("a.bmp", ()),
        ("a.bmp --use_gpu b.bmp -w 2 c", ("a.bmp", "b.bmp", "c")),
        ("b.bmp -i a.bmp c.bmp", ("a.bmp", "b.bmp", "c.bmp")),
        ("--verbose -- -i --use_gpu", ("-i", "--use_gpu")),
        ("-i a.bmp --", ()),
    ],
)
def test_words_that_are_no_flags_are_pictures(line: str, pictures: tuple[str, ...]) -> None:
    assert parse(words(line)).pictures == pictures


@pytest.mark.parametrize("line", ["-m a.tflite b.bmp", "a.tflite b.bmp", "b.bmp a.tflite", "A b"])
def test_a_model_may_be_an_argument(line: str) -> None:
    """What ends in .tflite is no picture; after -- everything is one."""
    line = line.replace("A b", "-i b.bmp a.tflite")
    settings = parse(words(line))
    assert (settings.tflite_model, settings.image) == ("a.tflite", "b.bmp")
    assert parse(words("-- a.tflite")).image == "a.tflite"


@pytest.mark.parametrize(
    "line", ["a.tflite -m b.tflite", "-m b.tflite a.tflite", "b.tflite a.tflite"]
)
def test_two_models_are_one_too_many(line: str) -> None:
    with pytest.raises(UsageError, match=r"^one model at a time: b.tflite and a.tflite are named$"):
        parse(words(line))


def test_several_pictures_get_one_result_each_unless_more_are_asked_for() -> None:
    assert parse([]).num_results_of_several == 1
    assert parse(words("-r 5")).num_results_of_several == 5
    assert (parse([]).batch, parse(words("--batch 8")).batch) == (None, 8)


def test_an_empty_word_is_no_picture() -> None:
    with pytest.raises(UsageError, match="unexpected argument ''"):
        parse([""])


def test_the_last_of_two_values_counts() -> None:
    assert parse(words("--count=2 -c 3")).count == 3


@pytest.mark.parametrize(("line", "text"), WRONG_VALUES, ids=[line for line, _ in WRONG_VALUES])
def test_a_wrong_value_is_one_line_that_names_the_flag(line: str, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(words(line))
    assert text in str(caught.value)
    assert line.split("=")[0].split()[0] in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("line", "text"), WRONG_WORDS, ids=[line for line, _ in WRONG_WORDS])
def test_a_word_that_is_no_flag_is_one_line(line: str, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(words(line))
    assert str(caught.value) == text


@pytest.mark.parametrize(("line", "reason"), NOT_DONE, ids=[line for line, _ in NOT_DONE])
def test_what_does_nothing_says_so_in_one_line(line: str, reason: str) -> None:
    (warning,) = parse([line]).warnings
    assert "does nothing" in warning
    assert line.split("=")[0] in warning
    assert reason in warning


@pytest.mark.parametrize("line", SILENT)
def test_what_is_done_says_nothing(line: str) -> None:
    assert parse([line]).warnings == ()


def test_flags_of_missing_hardware_that_are_off_say_nothing() -> None:
    assert parse(words("-a 0 -j 0 -g 0 --use_nnapi=false")).warnings == ()


def test_threads_of_minus_one_leave_the_choice_to_tflite() -> None:
    assert parse(words("-t -1")).cpu_threads is None


def test_num_threads_is_xnnpacks_number_unless_x_asks_for_it() -> None:
    assert parse(words("--num_threads=3")).cpu_threads == 3
    assert parse(words("--num_threads=3 -x 1 -t 2")).cpu_threads == 2


def test_xnnpack_asked_for_and_turned_off_is_not_announced() -> None:
    settings = parse(words("-x 1 --cpu_kernels=builtin"))
    assert not settings.announce_xnnpack
    assert settings.warnings == ("--cpu_kernels=builtin turns XNNPACK off",)


def test_placement_by_the_times_of_other_kernels_is_said() -> None:
    line = (
        "--cpu_kernels=reference runs what --placement=fastest leaves to the CPU, and XNNPACK is "
    )
    settings = parse(words("--use_gpu --placement fastest --cpu_kernels reference"))
    assert settings.warnings == (line + "what it times",)
    assert parse(words("--use_gpu --placement fastest")).warnings == ()


def test_external_delegate_options_become_pairs() -> None:
    settings = parse(["--external_delegate_path=f.so", "--external_delegate_options=a:b;c:d;"])
    assert settings.external_delegate_options == {"a": "b", "c": "d"}


def test_delegates_choose_nodes_in_the_order_of_their_flags() -> None:
    library = "--external_delegate_path=f.so"
    for text, is_last in ((f"--use_gpu {library}", True), (f"{library} --use_gpu", False)):
        settings = parse(words(text))
        assert (settings.is_external_last, settings.warnings) == (is_last, ())


def test_every_input_given_counts() -> None:
    assert parse([]).input == []
    settings = parse(["--input", "a:0=x.npy", "--input=1=folder/y=z.npy"])
    assert settings.input == [("a:0", "x.npy"), ("1", "folder/y=z.npy")]
    assert parse([]).input == []


@pytest.mark.parametrize(
    ("line", "asked"), [("", False), ("-i a", True), ("--image=a", True), ("a.bmp", True)]
)
def test_an_image_that_was_asked_for_is_told_apart(line: str, asked: bool) -> None:
    assert parse(words(line)).is_image_asked == asked


def test_outputs_are_written_where_asked() -> None:
    assert (parse([]).output_dir, parse(words("--output_dir o")).output_dir) == (None, "o")


def test_excluded_ops_are_separated_by_commas() -> None:
    assert parse(words("--use_gpu --exclude_ops SOFTMAX,,CONV_2D")).exclude_ops == (
        "SOFTMAX",
        "CONV_2D",
    )


def test_the_short_usage_shows_what_is_mostly_needed() -> None:
    text = flags.usage()
    shown = re.findall(r"^  (?:-\w(?: \S+)?, )?--(\w+)", text, re.MULTILINE)
    assert set(shown) == {name for name, row in ALL.items() if row.is_common}
    assert len(shown) < 26
    assert "accepted and do nothing" not in text
    assert "Exit codes: 0: success; 1: what" in text


@pytest.mark.parametrize("line", ["cat.jpg", "-- cat.jpg"])
def test_one_picture_is_what_image_takes(line: str) -> None:
    ours, theirs = (parse(words(each)) for each in (line, "--image cat.jpg"))
    assert vars(ours) | {"command": ()} == vars(theirs) | {"command": ()}


def test_the_usage_shows_every_flag_once_in_its_group() -> None:
    text = flags.usage(has_all=True)
    before, _, ours = text.partition("\nOur own flags:")
    ours, _, no_effect = ours.partition("\nTFLite's flags that are accepted and do nothing here:")
    _, _, tflite = before.partition("\nTFLite's flags:")
    for name, short, _, _ in LABEL_IMAGE_FLAGS:
        # Until Python 3.12 the value's name stands after each form: "-c N, --count N".
        assert re.search(rf"^  -{short}( \S+)?, --{name} ", tflite, re.MULTILINE)
    for name in ("use_gpu", "gpu_backend", "external_delegate_path", "use_xnnpack", "help"):
        assert f"--{name}" in tflite
    for name in (
        "batch",
        "device",
        "input",
        "output_dir",
        "list_devices",
        "json",
        "compare",
        "cpu_kernels",
        "tune",
    ):
        assert f"--{name} " in ours
    for line, _ in NOT_DONE[:3]:
        assert line.split("=")[0] in no_effect
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("flag", ["trace", "report", "output_image", "profiling", "count"])
@pytest.mark.parametrize("words", [["-i", "."], ["a.bmp", "b.bmp"], ["--batch", "2"]])
def test_what_is_for_one_picture_is_refused_of_several(flag: str, words: list[str]) -> None:
    value = {"profiling": "1", "count": "3"}.get(flag, "a.json")
    with pytest.raises(UsageError, match=f"^--{flag} is for one picture"):
        parse([*words, f"--{flag}", value])
    assert getattr(parse(["a.bmp", f"--{flag}", value]), flag) in (value, 3, True)
