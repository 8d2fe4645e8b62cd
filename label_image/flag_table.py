# SPDX-License-Identifier: Apache-2.0
"""The table of all flags: TFLite's label_image's, its delegates', and our own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from label_image.heads.registry import TASKS
from tflite_opencl.common.flag_values import (
    MOST_PICTURES,
    at_most,
    compared,
    divisor,
    integer,
    named_file,
    names,
    not_negative,
    one_of,
    part,
    path,
    positive,
    real,
    seconds,
    shard,
    thread_count,
    truth,
)
from tflite_opencl.common.flags import SHARED

DEFAULT_MODEL = "./mobilenet_quant_v1_224.tflite"  # label_image's own defaults
DEFAULT_LABELS = "./labels.txt"
DEFAULT_IMAGE = "./grace_hopper.bmp"


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: what it takes, and what is said of it."""

    name: str
    help: str
    convert: Callable[[str], Any] | None  # None: a switch, which takes no value
    default: Any = None
    metavar: str = "N"
    short: str = ""
    not_done: str = ""  # why a value other than the default does nothing here
    group: str = "delegate"  # "label_image" (prefixes resolve among these), "delegate", "own"
    is_repeatable: bool = False  # every value counts, not the last


def _label_image(
    name: str,
    short: str,
    text: str,
    convert: Callable[[str], Any] | None,
    default: Any = None,
    metavar: str = "N",
    not_done: str = "",
) -> Flag:
    return Flag(name, text, convert, default, metavar, short, not_done, "label_image")


def _own(
    name: str,
    text: str,
    convert: Callable[[str], Any] | None,
    default: Any = None,
    metavar: str = "",
    is_repeatable: bool = False,
) -> Flag:
    return Flag(name, text, convert, default, metavar, group="own", is_repeatable=is_repeatable)


def _shared(
    name: str,
    more: str = "",
    default: Any = None,
    group: str = "own",
    convert: Callable[[str], Any] | None = None,
    metavar: str = "",
) -> Flag:
    """Return a flag that other commands have, too; `more`: what is said of it here besides."""
    flag = SHARED[name]
    convert, metavar = convert or flag.convert, metavar or flag.metavar or ""
    return Flag(name, f"{flag.help}{more}", convert, default, metavar, flag.short, group=group)


_NO_NNAPI = "there is no NNAPI here (Android has it)"
_NO_HEXAGON = "there is no Hexagon DSP here (Android has it)"
_NO_COREML = "there is no Core ML here (Apple has it)"
_NO_GL = "there is no OpenGL here; --use_gpu runs the model on OpenCL"
_NO_FP16 = "OpenCL computes floats in full precision"
_CACHE = "built kernels are always cached, in the user's cache folder"
_XNNPACK_DEFAULTS = "XNNPACK runs with TFLite's defaults"

FLAGS = (
    _shared("tflite_model", f" (default: {DEFAULT_MODEL}, or the embedded one)", None,
            "label_image"),
    _shared("labels", f" (default: the model's own, or {DEFAULT_LABELS})", None, "label_image"),
    _shared("image", "; - is stdin; or a folder of them", DEFAULT_IMAGE, "label_image"),
    _shared("count", "", 1, "label_image"),
    _shared("warmup_runs", "", 2, "label_image"),
    _shared("threads", "; -1: TFLite's own choice", 4, "label_image", thread_count),
    _label_image("num_results", "r", "results to show", positive, 5),
    _label_image("input_mean", "b", "subtracted from pixels, for float inputs (default: the "
                 "model's own, or 127.5)", real, None, metavar="X"),
    _label_image("input_std", "s", "then divided by this, for float inputs (default: the model's "
                 "own, or 127.5)", divisor, None, metavar="X"),
    _label_image("verbose", "v", "say more, show tracebacks", truth, False, metavar="0|1"),
    _label_image("profiling", "p", "times of the nodes that ran on OpenCL", truth, False,
                 metavar="0|1"),
    _label_image("max_profiling_buffer_entries", "e", "most rows of --profiling", positive, 1024),
    _label_image("xnnpack_delegate", "x", "XNNPACK: on by default", truth, False, metavar="0|1"),
    _label_image("allow_fp16", "f", "floats in half precision", truth, False, metavar="0|1",
                 not_done=_NO_FP16),
    _label_image("accelerated", "a", "NNAPI", truth, False, metavar="0|1", not_done=_NO_NNAPI),
    _label_image("gl_backend", "g", "OpenGL", truth, False, metavar="0|1", not_done=_NO_GL),
    _label_image("hexagon_delegate", "j", "Hexagon", truth, False, metavar="0|1",
                 not_done=_NO_HEXAGON),
    _label_image("help", "h", "show the most used flags and exit", None),
    Flag("use_gpu", "run the model through OpenCL", truth, False, metavar="BOOL"),
    Flag("gpu_backend", "cl is what runs here", one_of("", "cl", "gl"), "", metavar="cl|gl"),
    Flag("gpu_precision_loss_allowed", "never needed: floats have full precision", truth, True,
          metavar="BOOL"),
    Flag("gpu_experimental_enable_quant", "run quantised models", truth, True, metavar="BOOL",
          not_done="quantised models are what runs on OpenCL"),
    Flag("gpu_inference_for_sustained_speed", "a hint, always followed", truth, False,
          metavar="BOOL"),
    Flag("gpu_invoke_loop_times", "invoke several times", integer, -1,
          not_done="use --count"),
    Flag("gpu_wait_type", "how to wait for the GPU", str, "", metavar="WORD",
          not_done="the OpenCL driver decides how to wait"),
    Flag("max_delegated_partitions", "most partitions on OpenCL; 0: no limit", not_negative, 0),
    Flag("min_nodes_per_partition", "smallest partition on OpenCL; 0: any that saves time",
          not_negative, 0),
    _shared("num_threads", ", as --threads", -1, "delegate", thread_count),
    _shared("external_delegate_path", "", "", "delegate"),
    _shared("external_delegate_options", "", {}, "delegate"),
    Flag("use_xnnpack", "XNNPACK: on by default", truth, False, metavar="BOOL"),
    Flag("xnnpack_force_fp16", "floats in half precision", truth, False, metavar="BOOL",
          not_done=_XNNPACK_DEFAULTS),
    Flag("xnnpack_weight_cache_file_path", "XNNPACK's weight cache", str, "", metavar="FILE",
          not_done=_XNNPACK_DEFAULTS),
    Flag("xnnpack_runtime_flags", "XNNPACK's flags", integer, 0, not_done=_XNNPACK_DEFAULTS),
    Flag("delegate_serialize_dir", "where kernels are cached", str, "", metavar="DIR",
          not_done=_CACHE),
    Flag("delegate_serialize_token", "name of the cached kernels", str, "", metavar="WORD",
          not_done=_CACHE),
    Flag("first_delegate_node_index", "first node to delegate", integer, 0,
          not_done="use --exclude_ops"),
    Flag("last_delegate_node_index", "last node to delegate", integer, 2147483647,
          not_done="use --exclude_ops"),
    Flag("stable_delegate_settings_file", "settings of a stable delegate", str, "",
          metavar="FILE", not_done="use --external_delegate_path"),
    Flag("use_nnapi", "NNAPI", truth, False, metavar="BOOL", not_done=_NO_NNAPI),
    Flag("nnapi_execution_preference", "NNAPI", str, "", metavar="WORD", not_done=_NO_NNAPI),
    Flag("nnapi_execution_priority", "NNAPI", str, "", metavar="WORD", not_done=_NO_NNAPI),
    Flag("nnapi_accelerator_name", "NNAPI", str, "", metavar="WORD", not_done=_NO_NNAPI),
    Flag("nnapi_support_library_path", "NNAPI", str, "", metavar="FILE", not_done=_NO_NNAPI),
    Flag("disable_nnapi_cpu", "NNAPI", truth, True, metavar="BOOL", not_done=_NO_NNAPI),
    Flag("nnapi_allow_fp16", "NNAPI", truth, False, metavar="BOOL", not_done=_NO_NNAPI),
    Flag("nnapi_allow_dynamic_dimensions", "NNAPI", truth, False, metavar="BOOL",
          not_done=_NO_NNAPI),
    Flag("nnapi_use_burst_mode", "NNAPI", truth, False, metavar="BOOL", not_done=_NO_NNAPI),
    Flag("use_hexagon", "Hexagon", truth, False, metavar="BOOL", not_done=_NO_HEXAGON),
    Flag("hexagon_lib_path", "Hexagon", str, "/data/local/tmp", metavar="DIR",
          not_done=_NO_HEXAGON),
    Flag("hexagon_profiling", "Hexagon", truth, False, metavar="BOOL", not_done=_NO_HEXAGON),
    Flag("use_coreml", "Core ML", truth, False, metavar="BOOL", not_done=_NO_COREML),
    Flag("coreml_version", "Core ML", integer, 0, not_done=_NO_COREML),
    _shared("device", "; several pictures go to several devices by all, all WORDS or A,B (or set "
            "TFLITE_OPENCL_DEVICE); --list_devices shows them"),
    _shared("device_profile", ": etnaviv-gc7000, panfrost-g52, v3d, ..., or a file"),
    _own("list_devices", "show the OpenCL devices and exit", None),
    _own("batch", "several pictures, N at once where OpenCL runs the whole model",
         at_most(MOST_PICTURES, positive),
         None, metavar="N"),
    _own("compare", "with --use_gpu: run the CPU and the reference kernels too; of many pictures a "
         "sample, or all (default: true)", compared, True, metavar="BOOL|all"),
    _shared("exclude_ops", "", ()),
    _shared("tune", " or auto (quick, and on a terminal full once the results are shown)", "auto",
            "own", one_of("auto", "off", "quick", "full"), "off|quick|full|auto"),
    _own("profiling_order", "the rows of --profiling's table: node, as they run, or time, the "
         "longest first", one_of("node", "time"), "node", metavar="node|time"),
    _own("trace", "of one picture: write what happens in some runs, by time: for ui.perfetto.dev, "
         "or as Chrome's JSON if it ends in .json", path, None, metavar="FILE"),
    _own("report", "of one picture: write a page of HTML for a bug report: results, times of nodes "
         "on both paths, what was refused, the device, versions and the command", path, None,
         metavar="FILE.html"),
    _own("cpu_kernels", "what runs the CPU's part: auto (TFLite's default, XNNPACK), builtin (no "
         "XNNPACK) or reference", one_of("auto", "builtin", "reference"), "auto",
         metavar="auto|builtin|reference"),
    _own("device_timeout", "run OpenCL in a child process and end it after so many seconds; "
         "0: no child", seconds, 0.0, metavar="SECONDS"),
    _shared("json"),
    _own("json_lines", "write a line of JSON for each picture to this file; - is stdout, which "
         "then holds nothing else", path, None, metavar="FILE"),
    _shared("csv", "; a row for each result of each picture"),
    _own("coco", "write the boxes of a detector to this file, as COCO's results; - is stdout, "
         "which then holds nothing else", path, None, metavar="FILE"),
    _shared("resume", ": the file of --json_lines says how far it came", False),
    _own("shard", "of all pictures only part I of N: every Nth, from the Ith on", shard, None,
         metavar="I/N"),
    _own("expect", "count what is right: top-1 and top-5 by a CSV file with the columns file and "
         "index, mAP by COCO's JSON", path, None, metavar="FILE"),
    _own("threshold", "show no result with a lower score (default: the model's own, or 0.001; 0.25 "
         "where many boxes are left to choose from)", part, None, metavar="SCORE"),
    _own("classes", "show these classes alone: their names or numbers", names, (),
         metavar="A,B"),
    _own("output_image", "of one picture: write it with what was found in it: the boxes of a "
         "detector, the coloured classes of a segmenter (.png, .jpg, ...)", path, None,
         metavar="FILE"),
    _own("task", "what the model is for, if that is not seen: classification, segmentation, "
         "detection, pose or embedding; with the kind of its outputs as detection:yolo8",
         one_of(*TASKS), None, metavar="TASK[:KIND]"),
    _own("input", "an input's values, and of which input: its name or its number (0 is the first); "
         "may be repeated; inputs without a file or a picture get zeros", named_file, [],
         metavar="NAME=FILE.npy", is_repeatable=True),
    _own("output_dir", "write every output as .npy into this folder, and the picture with what was "
         "found in it; of several pictures each gets a folder inside", path, None, metavar="DIR"),
    _shared("quiet", "", False),
    _own("help_all", "show all flags, those that do nothing included, and exit", None),
    _own("fetch", "download an official model and its labels into the cache and exit; "
         "--tflite_model NAME then means it", str, None, metavar="NAME"),
    _shared("version"),
)  # fmt: skip

# Those that --help shows; --help_all shows all.
COMMON = frozenset(
    (
        *("tflite_model", "labels", "image", "count", "threads", "num_results", "verbose"),
        *("profiling", "help", "use_gpu", "external_delegate_path", "device", "list_devices"),
        *("batch", "compare", "exclude_ops", "tune", "report", "json", "threshold"),
        *("output_image", "fetch", "quiet", "help_all", "version"),
    )
)
