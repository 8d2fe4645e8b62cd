# SPDX-License-Identifier: Apache-2.0
"""The table of flags: TFLite's label_image's, its delegates', and this project's, as typed fields.

Source of the parser, help, manual page, completion and the table of docs/label_image.md.
"""

# ruff: noqa: RUF009 - these calls return fields

from __future__ import annotations

from dataclasses import dataclass, fields

from label_image.decode_outputs import TASKS
from label_image.flag_fields import (
    FlagRow,
    flag,
    needs_module,
    no_effect,
    picture_obstacle,
    shared,
    switch,
)
from tflite_opencl.cli.flag_values import (
    MOST_PICTURES,
    OutputPath,
    at_most,
    compare_mode,
    delegate_options,
    divisor,
    names,
    not_negative,
    one_of,
    output_path,
    part,
    path,
    positive,
    real,
    seconds,
    thread_count,
    truth,
)
from tflite_opencl.cli.flags import STDOUT
from tflite_opencl.cli.scheduler import Scheduler
from tflite_opencl.console.files import folder_obstacle

DEFAULT_MODEL = "./mobilenet_quant_v1_224.tflite"  # label_image's own defaults
DEFAULT_LABELS = "./labels.txt"
DEFAULT_IMAGE = "./grace_hopper.bmp"

_NO_NNAPI = "there is no NNAPI here"
_NO_HEXAGON = "there is no Hexagon DSP here"
_NO_COREML = "there is no Core ML here"
_NO_GL = "there is no OpenGL here; --use_gpu takes OpenCL"
_CACHE = "built kernels are always cached"
_XNNPACK = "XNNPACK runs with TFLite's defaults"
_NODES = "use --exclude_ops"


# fmt: off
@dataclass(frozen=True, init=False, repr=False, eq=False)
class ToolFlags:
    """The flags of TFLite's label_image, which may be abbreviated to prefixes."""

    tflite_model: str | None = shared(
        "tflite_model", None, f" (default: {DEFAULT_MODEL}, or the embedded one)",
        "; or as an argument that ends in .tflite", is_common=True)
    labels: str | None = shared(
        "labels", None, f" (default: the model's own, or {DEFAULT_LABELS})", is_common=True)
    image: str = shared(
        "image", DEFAULT_IMAGE, ", or a folder, or - for stdin", is_common=True)
    count: int = shared("count", 1, " timed runs", is_common=True, is_for_one=True)
    warmup_runs: int = shared("warmup_runs", 2)
    threads: int = shared(
        "threads", 4, "; -1: TFLite's own choice", convert=thread_count, is_common=True)
    num_results: int = flag("results to show", positive, 5, short="r", is_common=True)
    input_mean: float | None = flag(
        "subtracted from pixels (default: the model's own, or 127.5 for floats)",
        real, None, "X", short="b")
    input_std: float | None = flag(
        "then divided by this (default: the same)", divisor, None, "X", short="s")
    verbose: bool = flag(
        "say more, show tracebacks", truth, False, "0|1", short="v", is_common=True)
    profiling: bool = flag(
        "times of the nodes that ran on OpenCL", truth, False, "0|1", short="p", is_common=True,
        is_for_one=True, is_profile=True)
    max_profiling_buffer_entries: int = flag(
        "most rows of --profiling", positive, 1024, short="e")
    xnnpack_delegate: bool = flag("XNNPACK: on by default", truth, False, "0|1", short="x")
    allow_fp16: bool = shared(
        "allow_fp16", False, " (with --use_gpu)", needs="use_gpu", page="#devices")
    accelerated: bool = no_effect("NNAPI", _NO_NNAPI, False, "0|1", "a")
    gl_backend: bool = no_effect("OpenGL", _NO_GL, False, "0|1", "g")
    hexagon_delegate: bool = no_effect("Hexagon", _NO_HEXAGON, False, "0|1", "j")
    help: bool = switch("show the most used flags and exit", short="h", is_common=True)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class TfliteFlags(ToolFlags):
    """Adds the flags of TFLite's delegates, which TFLite's other tools accept, too."""

    use_gpu: bool = flag("run the model through OpenCL", truth, False, is_common=True)
    gpu_backend: str = flag("cl is what runs here", one_of("", "cl", "gl"), "", "cl|gl")
    gpu_precision_loss_allowed: bool = flag(
        "floats have full precision without --allow_fp16", truth, True)
    gpu_experimental_enable_quant: bool = no_effect(
        "run quantised models", "quantised models run anyway", True)
    gpu_inference_for_sustained_speed: bool = flag("a hint, always followed", truth, False)
    gpu_invoke_loop_times: int = no_effect("invoke several times", "use --count", -1)
    gpu_wait_type: str = no_effect(
        "how to wait for the GPU", "the OpenCL driver decides how to wait", "")
    max_delegated_partitions: int = flag(
        "most partitions on OpenCL; 0: no limit", not_negative, 0)
    min_nodes_per_partition: int = flag(
        "smallest partition on OpenCL; 0: any that saves time", not_negative, 0)
    num_threads: int = shared("num_threads", -1, ", as --threads", convert=thread_count)
    external_delegate_path: str = shared("external_delegate_path", "", is_common=True)
    external_delegate_options: dict[str, str] = shared(
        "external_delegate_options", {}, needs="external_delegate_path")
    use_xnnpack: bool = flag("XNNPACK: on by default", truth, False)
    xnnpack_force_fp16: bool = no_effect("floats in half precision", _XNNPACK, False)
    xnnpack_weight_cache_file_path: str = no_effect("XNNPACK's weight cache", _XNNPACK, "", "FILE")
    xnnpack_runtime_flags: int = no_effect("XNNPACK's flags", _XNNPACK, 0)
    delegate_serialize_dir: str = no_effect("where kernels are cached", _CACHE, "", "DIR")
    delegate_serialize_token: str = no_effect("name of the cached kernels", _CACHE, "")
    first_delegate_node_index: int = no_effect("first node to delegate", _NODES, 0)
    last_delegate_node_index: int = no_effect("last node to delegate", _NODES, 2147483647)
    stable_delegate_settings_file: str = no_effect(
        "settings of a stable delegate", "use --external_delegate_path", "", "FILE")
    use_nnapi: bool = no_effect("NNAPI", _NO_NNAPI, False)
    nnapi_execution_preference: str = no_effect("NNAPI", _NO_NNAPI, "")
    nnapi_execution_priority: str = no_effect("NNAPI", _NO_NNAPI, "")
    nnapi_accelerator_name: str = no_effect("NNAPI", _NO_NNAPI, "")
    nnapi_support_library_path: str = no_effect("NNAPI", _NO_NNAPI, "", "FILE")
    disable_nnapi_cpu: bool = no_effect("NNAPI", _NO_NNAPI, True)
    nnapi_allow_fp16: bool = no_effect("NNAPI", _NO_NNAPI, False)
    nnapi_allow_dynamic_dimensions: bool = no_effect("NNAPI", _NO_NNAPI, False)
    nnapi_use_burst_mode: bool = no_effect("NNAPI", _NO_NNAPI, False)
    use_hexagon: bool = no_effect("Hexagon", _NO_HEXAGON, False)
    hexagon_profiling: bool = no_effect("Hexagon", _NO_HEXAGON, False)
    hexagon_lib_path: str = no_effect("Hexagon", _NO_HEXAGON, "/data/local/tmp", "DIR")
    use_coreml: bool = no_effect("Core ML", _NO_COREML, False)
    coreml_version: int = no_effect("Core ML", _NO_COREML, 0)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Flags(TfliteFlags):
    """Adds this project's flags."""

    signature: str | None = shared("signature", None)
    input_size: tuple[int, int] | None = shared(
        "input_size", None, " (default: the picture's own, or 224x224)")
    device: str | None = shared(
        "device", None, "; several by all, all WORDS or A,B (or set TFLITE_OPENCL_DEVICE)",
        "; --list_devices shows them", needs="use_gpu",
        page="#several-devices", is_common=True)
    device_profile: str | None = shared(
        "device_profile", None, "", ": etnaviv-gc7000, panfrost-g52, v3d, ..., or a file",
        needs="use_gpu", page="#devices")
    precision: str = shared("precision", "fp32", needs="use_gpu", page="#devices")
    list_devices: bool = switch("show the OpenCL devices and exit", is_common=True)
    batch: int | None = shared("batch", None, is_common=True)
    compare: bool | str = shared(
        "compare", "short", " (with --use_gpu), and on the reference kernels: true shows a table "
        "of it, all compares each of many pictures and not a sample (default: short, a few lines)",
        convert=compare_mode, metavar="BOOL|short|all", is_common=True)
    exclude_ops: tuple[str, ...] = shared("exclude_ops", (), needs="use_gpu", is_common=True)
    placement: str = shared("placement", "device", needs="use_gpu", page="#placement")
    plan: str | None = shared("plan", None, needs="use_gpu", page="#plans")
    tune: str = shared(
        "tune", "auto", "", " or auto (quick, and on a terminal full once the results are shown)",
        convert=one_of("auto", "off", "quick", "full"), metavar="off|quick|full|auto",
        page="#tuning", is_common=True)
    profiling_order: str = flag(
        "the order of --profiling's table: as nodes run, or the longest time first",
        one_of("node", "time"), "node", "node|time")
    trace: OutputPath | None = flag(
        "of one picture: write what happens in some runs, by time", output_path, None,
        detail=": for ui.perfetto.dev, or as Chrome's JSON if it ends in .json", page="trace.md",
        is_for_one=True, is_profile=True, obstacle=needs_module("perfetto", "trace", ".json"))
    report: OutputPath | None = flag(
        "of one picture: write a page of HTML for a bug report", output_path, None, "FILE.html",
        detail=": results, times of nodes on both paths, what was refused, the device, versions "
        "and the command", page="report.md", is_common=True, is_for_one=True,
        obstacle=needs_module("jinja2", "suite"))
    fault: OutputPath | None = shared(
        "fault", None, ", where OpenCL fails or computes wrongly", needs="use_gpu",
        page="driver-faults.md", obstacle=folder_obstacle)
    cpu_kernels: str = flag(
        "what runs the CPU's part: auto (TFLite's default, XNNPACK), builtin (no XNNPACK) or "
        "reference", one_of("auto", "builtin", "reference"), "auto", "auto|builtin|reference")
    isolate: bool | None = shared(
        "isolate", None, " (default: with --video, --watch or --device_timeout)", needs="use_gpu",
        page="#devices")
    device_timeout: float | None = shared(
        "device_timeout", None, "; 0: no limit (default: 60 with --video and --watch, else 0)",
        convert=seconds, needs="use_gpu")
    json: OutputPath | None = shared("json", None, is_common=True)
    json_lines: OutputPath | None = flag(
        "write a line of JSON for each picture", output_path, None, detail=STDOUT)
    csv: OutputPath | None = shared("csv", None, ", a row for each result")
    coco: OutputPath | None = flag(
        "write the boxes of a detector as COCO's results", output_path, None, detail=STDOUT)
    resume: bool = shared("resume", False, "", ": the file of --json_lines says how far it came")
    shard: tuple[int, int] | None = shared(
        "shard", None, ": every Nth picture, from the Ith on")
    scheduler: Scheduler | None = shared("scheduler", None, "", ": pictures", page="cluster.md")
    unordered: bool = switch(
        "with --scheduler: rows come as they are ready",
        detail=", not in the order of the pictures", needs="scheduler")
    chunk: int | None = flag(
        "with --scheduler: pictures that a worker gets at once (default: what takes two seconds)",
        at_most(MOST_PICTURES, positive), None, needs="scheduler")
    chunk_timeout: float = flag(
        "with --scheduler: end a worker that takes longer for them; 0: no limit", seconds,
        600.0, "SECONDS")
    video: str | None = flag(
        "classify a video's frames: a file, /dev/videoN, rtsp:// or http://, "
        "or - for stdin", path, None, "SOURCE", detail="; of a file every frame, of others the "
        "newest, and those between are dropped", page="video.md")
    watch: str | None = flag(
        "classify a folder's pictures, and each that comes into it", path, None, "DIR",
        detail=", until Ctrl-C", page="video.md#a-folder-that-is-watched")
    every_frame: bool = flag(
        "classify all frames of --video, of a camera or stream, too", truth, False,
        detail=": what decodes them waits for the model", needs="video")
    newest_frame: bool = flag(
        "classify the newest frame of --video, of a file, too", truth, False,
        detail=": it is played at its own speed, and frames that come meanwhile are dropped",
        needs="video")
    source_timeout: float = flag(
        "end --video where nothing comes for so long; 0: wait for ever", seconds, 10.0, "SECONDS")
    video_options: dict[str, str] = flag(
        'FFmpeg\'s options of --video, as "video_size:640x480;framerate:30"', delegate_options,
        {}, "OPTIONS", detail="; format: of what kind it is", needs="video")
    output_video: OutputPath | None = flag(
        "with --video: write the frames with what was found in them as a video", output_path,
        None, detail=f" (.mp4, .mkv, ...){STDOUT}", needs="video")
    show: int | None = flag(
        "with --video: show the live picture, results and times as a page at this port; 0: at a "
        "free one", at_most(65535, not_negative), None, "PORT", needs="video")
    expect: str | None = shared("expect", None, "", ", mAP by COCO's JSON", page="#what-is-right")
    threshold: float | None = flag(
        "show no result with a lower score (default: the model's own, or 0.001; 0.25 for raw "
        "boxes)", part, None, "SCORE", is_common=True)
    classes: tuple[str, ...] = flag(
        "show these classes alone: names or numbers", names, (), "A,B")
    output_image: OutputPath | None = flag(
        "of one picture: write it with what was found in it", output_path, None,
        detail=": the boxes of a detector, the coloured classes of a segmenter (.png, .jpg, ...)",
        page="#boxes-points-and-masks", is_common=True, is_for_one=True,
        obstacle=picture_obstacle)
    task: str | None = flag(
        "what the model is for, if that is not seen", one_of(*TASKS), None, "TASK[:KIND]",
        detail=": classification, segmentation, detection, pose or embedding; with the kind of "
        "its outputs as detection:yolo8", page="#tasks")
    input: list[tuple[str, str]] = shared(
        "input", [], "; may be repeated", "; inputs without a file or a picture get zeros",
        metavar="NAME=FILE.npy", is_repeatable=True)
    output_dir: OutputPath | None = flag(
        "write every output as .npy into this folder, and the picture with what was found; each "
        "of several pictures gets a folder inside", output_path, None, "DIR",
        page="#boxes-points-and-masks", obstacle=folder_obstacle)
    quiet: bool = shared("quiet", False, is_common=True)
    help_all: bool = switch("show all flags and exit", is_common=True)
    fetch: str | None = flag(
        "download an official model and its labels and exit; --tflite_model NAME then means "
        "it", str, None, "NAME", page="#what-it-reads", is_common=True)
    version: bool = shared("version", False, is_common=True)
# fmt: on


def _rows(flags: type) -> dict[str, FlagRow]:
    return {each.name: each.metadata["row"] for each in fields(flags)}


TOOL, TFLITE, ALL = _rows(ToolFlags), _rows(TfliteFlags), _rows(Flags)
