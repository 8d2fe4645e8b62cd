# SPDX-License-Identifier: Apache-2.0
"""The table of all flags: TFLite's label_image's, its delegates', and our own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from label_image.meaning import TASKS
from tflite_opencl.common.flag_values import (
    MOST_PICTURES,
    at_most,
    compared,
    delegate_options,
    divisor,
    integer,
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
    convert: Callable[[str], Any] | None = None  # None: a switch, which takes no value
    default: Any = None
    metavar: str = ""  # "": as it mostly is
    short: str = ""
    not_done: str = ""  # why a value other than the default does nothing here
    is_repeatable: bool = False  # every value counts, not the last

    @property
    def value(self) -> str:
        """What the help calls its value."""
        usual: dict[Any, str] = {truth: "0|1" if self in LABEL_IMAGE else "BOOL", path: "FILE"}
        return self.metavar or usual.get(self.convert, "N")


def _shared(name: str, more: str = "", default: Any = None, **changes: Any) -> Flag:
    """Return a flag that other commands have, too; `more`: what is said of it here besides."""
    flag = SHARED[name]
    own = Flag(name, f"{flag.help}{more}", flag.convert, default, flag.metavar or "", flag.short)
    return replace(own, **changes)


def _not_done(why: str, text: str, **defaults: Any) -> Iterator[Flag]:
    """Yield flags that are accepted and do nothing; what they take is what their default is."""
    kinds: dict[type, tuple[Callable[[str], Any], str]]
    kinds = {bool: (truth, ""), int: (integer, ""), str: (str, "WORD")}
    endings = {"path": "FILE", "file": "FILE", "dir": "DIR"}
    for name, default in defaults.items():
        convert, metavar = kinds[type(default)]
        metavar = endings.get(name.rpartition("_")[2], metavar)
        yield Flag(name, text, convert, default, metavar, not_done=why)


_NO_NNAPI = "there is no NNAPI here (Android has it)"
_NO_HEXAGON = "there is no Hexagon DSP here (Android has it)"
_NO_COREML = "there is no Core ML here (Apple has it)"
_NO_GL = "there is no OpenGL here; --use_gpu runs the model on OpenCL"
_CACHE = "built kernels are always cached, in the user's cache folder"
_XNNPACK = "XNNPACK runs with TFLite's defaults"
_NODES = "use --exclude_ops"

# Prefixes resolve among label_image's own. A delegate's stand in TFLite's tools, too.
LABEL_IMAGE: tuple[Flag, ...] = (
    _shared("tflite_model", f" (default: {DEFAULT_MODEL}, or the embedded one); or as an "
            "argument that ends in .tflite"),
    _shared("labels", f" (default: the model's own, or {DEFAULT_LABELS})"),
    _shared("image", "; - is stdin; or a folder of them", DEFAULT_IMAGE),
    _shared("count", "", 1),
    _shared("warmup_runs", "", 2),
    _shared("threads", "; -1: TFLite's own choice", 4, convert=thread_count),
    Flag("num_results", "results to show", positive, 5, short="r"),
    Flag("input_mean", "subtracted from pixels (default: the model's own, or for float inputs "
         "127.5)", real, metavar="X", short="b"),
    Flag("input_std", "then divided by this (default: the model's own, or for float inputs 127.5)",
         divisor, metavar="X", short="s"),
    Flag("verbose", "say more, show tracebacks", truth, False, short="v"),
    Flag("profiling", "times of the nodes that ran on OpenCL", truth, False, short="p"),
    Flag("max_profiling_buffer_entries", "most rows of --profiling", positive, 1024, short="e"),
    Flag("xnnpack_delegate", "XNNPACK: on by default", truth, False, short="x"),
    _shared("allow_fp16", " (with --use_gpu)", False),
    Flag("accelerated", "NNAPI", truth, False, short="a", not_done=_NO_NNAPI),
    Flag("gl_backend", "OpenGL", truth, False, short="g", not_done=_NO_GL),
    Flag("hexagon_delegate", "Hexagon", truth, False, short="j", not_done=_NO_HEXAGON),
    Flag("help", "show the most used flags and exit", short="h"),
)  # fmt: skip
DELEGATE: tuple[Flag, ...] = (
    Flag("use_gpu", "run the model through OpenCL", truth, False),
    Flag("gpu_backend", "cl is what runs here", one_of("", "cl", "gl"), "", "cl|gl"),
    Flag("gpu_precision_loss_allowed", "floats have full precision without --allow_fp16", truth,
         True),
    Flag("gpu_experimental_enable_quant", "run quantised models", truth, True,
         not_done="quantised models are what runs on OpenCL"),
    Flag("gpu_inference_for_sustained_speed", "a hint, always followed", truth, False),
    *_not_done("use --count", "invoke several times", gpu_invoke_loop_times=-1),
    *_not_done("the OpenCL driver decides how to wait", "how to wait for the GPU",
               gpu_wait_type=""),
    Flag("max_delegated_partitions", "most partitions on OpenCL; 0: no limit", not_negative, 0),
    Flag("min_nodes_per_partition", "smallest partition on OpenCL; 0: any that saves time",
         not_negative, 0),
    _shared("num_threads", ", as --threads", -1, convert=thread_count),
    _shared("external_delegate_path", "", ""),
    _shared("external_delegate_options", "", {}),
    Flag("use_xnnpack", "XNNPACK: on by default", truth, False),
    *_not_done(_XNNPACK, "floats in half precision", xnnpack_force_fp16=False),
    *_not_done(_XNNPACK, "XNNPACK's weight cache", xnnpack_weight_cache_file_path=""),
    *_not_done(_XNNPACK, "XNNPACK's flags", xnnpack_runtime_flags=0),
    *_not_done(_CACHE, "where kernels are cached", delegate_serialize_dir=""),
    *_not_done(_CACHE, "name of the cached kernels", delegate_serialize_token=""),
    *_not_done(_NODES, "first node to delegate", first_delegate_node_index=0),
    *_not_done(_NODES, "last node to delegate", last_delegate_node_index=2147483647),
    *_not_done("use --external_delegate_path", "settings of a stable delegate",
               stable_delegate_settings_file=""),
    *_not_done(_NO_NNAPI, "NNAPI", use_nnapi=False, nnapi_execution_preference="",
               nnapi_execution_priority="", nnapi_accelerator_name="",
               nnapi_support_library_path="", disable_nnapi_cpu=True, nnapi_allow_fp16=False,
               nnapi_allow_dynamic_dimensions=False, nnapi_use_burst_mode=False),
    *_not_done(_NO_HEXAGON, "Hexagon", use_hexagon=False, hexagon_profiling=False),
    Flag("hexagon_lib_path", "Hexagon", str, "/data/local/tmp", "DIR", not_done=_NO_HEXAGON),
    *_not_done(_NO_COREML, "Core ML", use_coreml=False, coreml_version=0),
)  # fmt: skip
OWN: tuple[Flag, ...] = (
    _shared("signature"),
    _shared("input_size", " (default: the picture's own, or 224x224)"),
    _shared("device", "; several pictures go to several devices by all, all WORDS or A,B (or "
            "set TFLITE_OPENCL_DEVICE); --list_devices shows them"),
    _shared("device_profile", ": etnaviv-gc7000, panfrost-g52, v3d, ..., or a file"),
    Flag("list_devices", "show the OpenCL devices and exit"),
    _shared("batch"),
    _shared("compare", " (with --use_gpu), and on the reference kernels; of many pictures a "
            "sample, or all (default: true)", True, convert=compared, metavar="BOOL|all"),
    _shared("exclude_ops", "", ()),
    _shared("plan"),
    _shared("tune", " or auto (quick, and on a terminal full once the results are shown)",
            "auto", convert=one_of("auto", "off", "quick", "full"),
            metavar="off|quick|full|auto"),
    Flag("profiling_order", "the rows of --profiling's table: node, as they run, or time, the "
         "longest first", one_of("node", "time"), "node", "node|time"),
    Flag("trace", "of one picture: write what happens in some runs, by time: for "
         "ui.perfetto.dev, or as Chrome's JSON if it ends in .json", path),
    Flag("report", "of one picture: write a page of HTML for a bug report: results, times of "
         "nodes on both paths, what was refused, the device, versions and the command", path,
         metavar="FILE.html"),
    Flag("cpu_kernels", "what runs the CPU's part: auto (TFLite's default, XNNPACK), builtin "
         "(no XNNPACK) or reference", one_of("auto", "builtin", "reference"), "auto",
         "auto|builtin|reference"),
    _shared("isolate", " (default: with --video, --watch or --device_timeout)"),
    _shared("device_timeout", "; 0: no limit (default: 60 with --video and --watch, else 0)",
            convert=seconds),
    _shared("json"),
    Flag("json_lines", "write a line of JSON for each picture to this file; - is stdout, which "
         "then holds nothing else", path),
    _shared("csv", "; a row for each result of each picture"),
    Flag("coco", "write the boxes of a detector to this file, as COCO's results; - is stdout, "
         "which then holds nothing else", path),
    _shared("resume", ": the file of --json_lines says how far it came", False),
    Flag("shard", "of all pictures only part I of N: every Nth, from the Ith on", shard,
         metavar="I/N"),
    _shared("scheduler", ": pictures"),
    Flag("unordered", "with --scheduler: rows come as they are ready, not in the order of the "
         "pictures"),
    Flag("chunk", "with --scheduler: pictures that a worker gets at once (default: what takes two "
         "seconds)", at_most(MOST_PICTURES, positive)),
    Flag("chunk_timeout", "with --scheduler: a worker that takes longer for them is ended; 0: no "
         "limit", seconds, 600.0, "SECONDS"),
    Flag("video", "classify a video's frames instead of pictures: a file, /dev/videoN, rtsp:// or "
         "http://, or - for stdin; of a file every frame, of others the newest, and those between "
         "are dropped", path, metavar="SOURCE"),
    Flag("watch", "classify the pictures of a folder, and each that comes into it, until Ctrl-C",
         path, metavar="DIR"),
    Flag("every_frame", "classify all frames of --video, of a camera or stream, too: what decodes "
         "them waits for the model", truth, False),
    Flag("newest_frame", "classify the newest frame of --video, of a file, too: it is played at "
         "its own speed, and frames that come meanwhile are dropped", truth, False),
    Flag("source_timeout", "end --video where nothing comes for so long; 0: wait for ever",
         seconds, 10.0, "SECONDS"),
    Flag("video_options", 'FFmpeg\'s options of --video, as "video_size:640x480;framerate:30"; '
         "format: of what kind it is", delegate_options, {}, "OPTIONS"),
    Flag("output_video", "with --video: write the frames with what was found in them as a video "
         "(.mp4, .mkv, ...); - is stdout, which then holds nothing else", path),
    Flag("show", "with --video: a page on this machine with the live picture, results and times; "
         "0: at a free port", at_most(65535, not_negative), metavar="PORT"),
    _shared("expect", ", mAP by COCO's JSON"),
    Flag("threshold", "show no result with a lower score (default: the model's own, or 0.001; "
         "0.25 where many boxes are left to choose from)", part, metavar="SCORE"),
    Flag("classes", "show these classes alone: their names or numbers", names, (), "A,B"),
    Flag("output_image", "of one picture: write it with what was found in it: the boxes of a "
         "detector, the coloured classes of a segmenter (.png, .jpg, ...)", path),
    Flag("task", "what the model is for, if that is not seen: classification, segmentation, "
         "detection, pose or embedding; with the kind of its outputs as detection:yolo8",
         one_of(*TASKS), metavar="TASK[:KIND]"),
    _shared("input", "; may be repeated; inputs without a file or a picture get zeros", [],
            metavar="NAME=FILE.npy", is_repeatable=True),
    Flag("output_dir", "write every output as .npy into this folder, and the picture with what "
         "was found in it; of several pictures each gets a folder inside", path,
         metavar="DIR"),
    _shared("quiet", "", False),
    Flag("help_all", "show all flags, those that do nothing included, and exit"),
    Flag("fetch", "download an official model and its labels into the cache and exit; "
         "--tflite_model NAME then means it", str, metavar="NAME"),
    _shared("version"),
)  # fmt: skip
FLAGS = (*LABEL_IMAGE, *DELEGATE, *OWN)

# Those that --help shows; --help_all shows all.
COMMON = frozenset(
    (
        *("tflite_model", "labels", "image", "count", "threads", "num_results", "verbose"),
        *("profiling", "help", "use_gpu", "external_delegate_path", "device", "list_devices"),
        *("batch", "compare", "exclude_ops", "tune", "report", "json", "threshold"),
        *("output_image", "fetch", "quiet", "help_all", "version"),
    )
)
