# SPDX-License-Identifier: Apache-2.0
"""The structure of ARCHITECTURE.md: layers, files that belong together, names and sizes."""

from __future__ import annotations

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import delegate
import delegate.inspect
from delegate.isa import FEATURES, instructions
from delegate.plan.sources import files, folder

ROOT = Path(__file__).resolve().parents[1]
# The public names of `delegate`, for users and tools.
PUBLIC = {
    "delegate": {*delegate.__all__},
    "delegate.inspect": {name for name in vars(delegate.inspect) if not name.startswith("_")},
}
# Packages that use only public names of `delegate`.
COMMANDS = ("label_image", "benchmarks", "tflite_opencl")
# Layer of `delegate` -> earlier layers that it imports; a layer is a file, a folder or a folder in
# one, without the layers inside it.
LAYERS = {
    "errors": "",
    "isa": "",
    "target": "",
    "graph": "",
    "launch": "errors graph",
    "profiles": "errors",
    "guard/cache": "errors",
    "guard/store": "guard/cache",
    "guard/children": "errors guard/store",
    "format": "errors graph guard/cache guard/children",
    "plan": "errors graph guard/cache isa launch target",
    "plan/fp16": "errors graph isa launch target",
    "plan/ieee": "errors graph isa launch",
    "ops": "errors graph isa launch plan/fp16 plan/ieee target",
    "plan/passes": "graph",
    "plan/lowering": "errors graph guard/children launch ops plan/fp16 plan/passes target",
    "host/tflite": "errors format graph guard/children launch target",
    "run": "errors graph guard/cache guard/children isa launch plan profiles",
    "plan/dispatch": (
        "errors graph guard/cache guard/children guard/store isa launch plan profiles run"
    ),
    "plan/tuning": (
        "errors graph guard/children guard/store launch plan plan/dispatch plan/lowering run"
    ),
    "options": "plan/passes plan/tuning profiles",
    "guard/isolation": "errors graph guard/children launch options plan run",
    "guard/probing": (
        "errors graph guard/children guard/isolation guard/store isa launch ops options plan "
        "plan/dispatch profiles run target"
    ),
    "plan/planners": (
        "errors format graph guard/cache guard/children guard/isolation guard/probing "
        "guard/store host/tflite isa launch options plan plan/dispatch plan/lowering "
        "plan/tuning run target"
    ),
    "guard": (
        "errors graph guard/children guard/isolation guard/probing isa options plan "
        "plan/dispatch plan/planners profiles run target"
    ),
    "engine": (
        "errors graph guard/children guard/isolation guard/probing guard/store options plan "
        "plan/fp16 plan/ieee plan/planners run target"
    ),
    "host": (
        "engine errors format graph guard/children guard/isolation host/tflite isa launch "
        "options plan run target"
    ),
    "model": (
        "engine errors format graph guard/children guard/isolation host/tflite options plan "
        "run target"
    ),
    "__init__": "errors graph host model options run",
    "inspect": (
        "engine errors format graph guard/cache guard/children guard/isolation guard/probing "
        "guard/store host host/tflite launch model ops options plan plan/dispatch plan/ieee "
        "plan/planners "
        "plan/tuning profiles run"
    ),
}
# Room of `tflite_opencl`, which all commands share -> earlier rooms that it imports.
ROOMS = {
    "console": "",
    "interpreters": "console",
    "models": "console interpreters",
    "pictures": "console models",
    "cli": "console interpreters",
    "oracle": "console interpreters models",
    "timing": "console",
    "faults": "console interpreters models oracle",
    "harness": "cli console interpreters models oracle pictures timing",
    "boards": "console",
    "cluster": "cli console",
}
# Module -> the folders and files that may import it.
CONFINED = {
    # plan/dispatch builds kernels while planning.
    "pyopencl": ("delegate/run", "delegate/plan/dispatch"),
    "ctypes": (
        *(
            "delegate/host/tflite",
            "delegate/guard/children/process.py",
            "delegate/run/dot_products.py",
        ),
    ),
    # The options of a custom op are a flexbuffer, and its shapes depend on them.
    "flatbuffers": ("delegate/format", "delegate/graph/flexbuffer.py"),
    "tflite": ("delegate/format", "tflite_opencl/interpreters/runtime.py"),  # names of ops
    "aiohttp": ("tflite_opencl/serve",),
    "prometheus_client": ("tflite_opencl/serve",),
    "ai_edge_litert": (),  # found by name at run time
    "tflite_runtime": (),
    # Child processes are a `Child`, except a C compiler, pip, and programs that benchmarks time.
    "subprocess": (
        "delegate/guard/children/child.py",
        "tflite_opencl/interpreters/plugin_library.py",
        "tflite_opencl/generate/package.py",
        "benchmarks",
    ),
    "multiprocessing": (),  # OpenCL does not survive a fork, and a spawned script runs twice
}
# <op>[_<case>][_<arithmetic>][_<family>], see kernels/README.md
_WORDS = (
    "row|row_part|row_range|shared|select|columns|tiled|vector|staged|groups|computed|boxes|best"
    "|output|projection|sums|cells|blocks|row_blocks|vector_blocks|undone|parts|parts_merged"
)
CASES = rf"(?:_(?:\d+x\d+|{_WORDS}))?"
_ISA = {feature.kernel.removeprefix("runtime_isa_") for feature in FEATURES}
ARITHMETIC = rf"(?:_(?:float4|{'|'.join(_ISA)}))?"
FAMILIES = r"(?:_(?:quant8|quant16|int4|int32|int64|float|hybrid))?"


def _sources() -> list[Path]:
    packages = [ROOT / "delegate", *(ROOT / name for name in COMMANDS)]
    return sorted(path for package in packages for path in package.rglob("*.py"))


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


SOURCES = _sources()
OPS = sorted(p for p in (ROOT / "delegate/ops").glob("*.py") if not p.name.startswith("_"))
# Shared launches may have kernels: _launches/copy.py has copy.cl.
SHARED = sorted(path.stem for path in (ROOT / "delegate/ops/_launches").glob("[a-z]*.py"))
KERNEL_FILES = sorted(folder().rglob("*.cl*"))
KERNELS = [path for path in KERNEL_FILES if path.suffix == ".cl"]


def each(paths: Sequence[Path]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """Turn a rule for one file into a test of many, which reports all violations.

    A parametrised test would have 4,000 cases, and pytest's overhead would exceed their work.
    """

    def test_of(rule: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            assert paths
            broken = {}
            for path in paths:
                try:
                    rule(path)
                except AssertionError as error:
                    broken[_name(path)] = str(error)
            assert broken == {}

        test.__name__ = rule.__name__
        return test

    return test_of


every_source = each(SOURCES)
every_kernel = each(KERNELS)


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _imports(path: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each imported module and the names imported from it."""
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{_name(path)}:{node.lineno}: imports are absolute"
            yield node.module or "", tuple(alias.name for alias in node.names)


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {_module(path): path for path in SOURCES}


def _modules_of(path: Path) -> set[str]:
    """Return the modules of this project that a file imports."""
    imported = [(module, name) for module, names in _imports(path) for name in names or ("",)]
    both = [(f"{module}.{name}", module) for module, name in imported]
    return {inside if inside in MODULES else module for inside, module in both} & {*MODULES}


def _layer(module: str) -> str:
    """Return the longest of LAYERS that is a prefix of a module's path below `delegate`."""
    parts = module.split(".")[1:] or ["__init__"]
    heads = ("/".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((head for head in heads if head in LAYERS), "")


IN_DELEGATE = [path for path in SOURCES if path.is_relative_to(ROOT / "delegate")]


def test_layers_table_is_complete() -> None:
    assert {_layer(_module(path)) for path in IN_DELEGATE} == set(LAYERS)


@pytest.mark.parametrize("table", [LAYERS, ROOMS], ids=["delegate", "tflite_opencl"])
def test_tables_list_only_earlier_layers(table: Mapping[str, str]) -> None:
    before: set[str] = set()
    for layer, allowed in table.items():
        assert {*allowed.split()} <= before, layer
        before.add(layer)


@each(IN_DELEGATE)
def test_layer_imports(path: Path) -> None:
    own = _layer(_module(path))
    allowed = {own, *LAYERS[own].split()}
    for module in _modules_of(path):
        assert module.startswith("delegate"), f"imports {module}"
        assert _layer(module) in allowed, f"imports {module}"


def test_no_import_cycles() -> None:
    """No module imports itself indirectly, not even within a layer."""
    needs = {name: _modules_of(path) for name, path in MODULES.items()}
    assert [*TopologicalSorter(needs).static_order()]


# The folders of delegate/ops from the bottom up: each may import itself and earlier ones.
OP_FOLDERS = ("_numbers", "_checks", "_launches", "_convolution", "_recurrent")


@each([p for folder in OP_FOLDERS for p in sorted((ROOT / "delegate/ops" / folder).rglob("*.py"))])
def test_order_of_op_folders(path: Path) -> None:
    own = path.relative_to(ROOT / "delegate/ops").parts[0]
    allowed = OP_FOLDERS[: OP_FOLDERS.index(own) + 1]
    for module, names in _imports(path):
        if module == "delegate.ops":
            assert set(names) <= set(allowed)
        elif module.startswith("delegate.ops."):
            assert module.split(".")[2] in allowed, module


def test_numbers_import_no_tensor() -> None:
    for path in (ROOT / "delegate/ops/_numbers").glob("*.py"):
        for module, _ in _imports(path):
            is_own = module.startswith("delegate.ops._numbers")
            assert is_own or not module.startswith("delegate"), f"{_name(path)}: {module}"


every_op_file = each(sorted((ROOT / "delegate/ops").rglob("*.py")))


@every_op_file
def test_op_records_are_frozen(path: Path) -> None:
    for record in ast.walk(_tree(path)):
        if isinstance(record, ast.ClassDef):
            made_by = [ast.unparse(decorator) for decorator in record.decorator_list]
            assert all("frozen=True" in text for text in made_by), record.name


# Package -> the non-public modules of `delegate` that it may import.
INTERNALS_OF = {
    "tflite_opencl/rewrites": ("delegate.graph.", "delegate.format.", "delegate.ops._numbers.")
}


@each([path for path in SOURCES if not path.is_relative_to(ROOT / "delegate")])
def test_commands_use_public_names(path: Path) -> None:
    own = next((below for name, below in INTERNALS_OF.items() if _name(path).startswith(name)), ())
    for module, names in _imports(path):
        if f"{module}.".startswith(own):
            continue
        # Running child processes is not public, but commands do.
        of_children = ("child", "channel", "environment")
        is_sandbox = module in {f"delegate.guard.children.{name}" for name in of_children}
        if module.split(".")[0] == "delegate" and not is_sandbox:
            assert set(names) <= PUBLIC.get(module, set())


def _command(path: Path) -> str:
    """Return the command or room of a file: "label_image", "tflite_opencl.compare", ..."""
    first, *rest = path.relative_to(ROOT).with_suffix("").parts
    return f"{first}.{rest[0]}" if first == "tflite_opencl" else first


SHARED_ROOMS = {f"tflite_opencl.{room}" for room in ROOMS}
# The only file of the service that may import label_image.
READS_PICTURES = "tflite_opencl/serve/pictures.py"
SUBCOMMANDS = {_command(path) for path in (ROOT / "tflite_opencl").rglob("*.py")} - {
    *SHARED_ROOMS,
    *(f"tflite_opencl.{name}" for name in ("__init__", "__main__", "command")),
}


@each([path for path in SOURCES if not path.is_relative_to(ROOT / "delegate")])
def test_commands_import_rooms_but_not_each_other(path: Path) -> None:
    own = _command(path)
    allowed = {own, *SHARED_ROOMS} | (SUBCOMMANDS if own == "tflite_opencl.command" else set())
    if own in SHARED_ROOMS:
        rooms = ROOMS[own.removeprefix("tflite_opencl.")].split()
        allowed = {own, *(f"tflite_opencl.{room}" for room in rooms)}
    if own == "benchmarks":
        # Competitors run behind the same server, interleaved with the same paths.
        allowed |= {"tflite_opencl.serve", "tflite_opencl.generate"}
    if _name(path) == READS_PICTURES:
        allowed.add("label_image")
    for module, names in _imports(path):
        first, *rest = module.split(".")
        if first in COMMANDS:
            below = rest[:1] or names if first == "tflite_opencl" else ()
            of = {f"{first}.{name}" for name in below} or {first}
            assert of - {"tflite_opencl.__version__"} <= allowed, module


@every_source
def test_confined_modules(path: Path) -> None:
    for module, _ in _imports(path):
        places = CONFINED.get(module.split(".")[0])
        assert places is None or _name(path).startswith(places), module


@every_source
def test_only_commands_print_and_exit(path: Path) -> None:
    body = list(_tree(path).body)
    if body and isinstance(body[-1], ast.If) and "__name__" in ast.unparse(body[-1].test):
        del body[-1]  # the part that `python -m` runs
    called = {
        ast.unparse(node.func)
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.Call)
    }
    assert not called & {"os.fork", "os._exit", "exit", "quit"}
    if path.name != "command.py":
        assert not called & {"print", "sys.exit"}


@every_source
def test_local_imports_are_optional_or_explained(path: Path) -> None:
    lines = path.read_text().splitlines()
    optional = {
        statement
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Try)
        and any(h.type and ast.unparse(h.type) == "ImportError" for h in node.handlers)
        for statement in node.body
    }
    for function in ast.walk(_tree(path)):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Import | ast.ImportFrom) and node not in optional:
                assert lines[node.lineno - 2].strip().startswith("#"), f"line {node.lineno}"


@every_source
def test_loggers(path: Path) -> None:
    allowed = {path.relative_to(ROOT).parts[0], "delegate", "tflite_opencl"}
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "logging.getLogger":
            (name,) = map(ast.literal_eval, node.args)
            # A command may use the loggers of the library and the rooms, but not vice versa.
            assert name.split(".")[0] in allowed


@every_source
def test_modules_have_licence_and_docstring(path: Path) -> None:
    text = path.read_text()
    assert text.startswith("# SPDX-License-Identifier: Apache-2.0\n")
    # An empty __init__.py needs no docstring.
    has_code = any(line.strip() for line in text.splitlines()[1:])
    assert ast.get_docstring(_tree(path)) or not has_code


def _public_modules() -> list[str]:
    return ["delegate", *(name for name in COMMANDS if (ROOT / name / "__init__.py").exists())]


@pytest.mark.parametrize("name", _public_modules())
def test_all_is_sorted_and_complete(name: str) -> None:
    module = importlib.import_module(name)
    imported = [n for _, names in _imports(Path(str(module.__file__))) for n in names]
    if imported:
        assert module.__all__ == sorted(imported)
        assert all(hasattr(module, public) for public in module.__all__)


# Test file -> its subject, if that is no file or folder of the mirrored path.
OTHER_TESTS = {
    "test_architecture.py": "the whole tree",
    "test_boards.py": "the delegate on boards, by docs/boards",
    "test_build.py": "all kernels, each with the macros that its op emits",
    "test_classifiers.py": "real models",
    "test_converters.py": "real models",
    "test_detectors.py": "models that tests/support/detectors.py and yolo.py build",
    "test_documents.py": "the documents",
    "test_floats.py": "a real model",
    "test_guards.py": "tests/support/guards.py on a kernel",
    "test_inputs_survive.py": "the outputs of all commands",
    "test_int64.py": "the ops on integers of 64 bits, which share their arithmetic",
    "test_judged.py": "models of tests/support/judged.py by all commands",
    "test_models.py": "real models",
    "test_oclgrind.py": "all kernels, by .ci/oclgrind",
    "test_packaging.py": "pyproject.toml",
    "test_release.py": ".ci/release",
    "test_serving.py": "a service with failing drivers",
    "test_shortages.py": "the environment of a start",
    "test_speech.py": "models that tests/support/speech.py builds",
    "test_transformers.py": "models that tests/support/transformers.py builds",
}


@each(sorted((ROOT / "tests").rglob("test_*.py")))
def test_test_files_mirror_sources(path: Path) -> None:
    """tests/a/test_b.py and test_b_more.py test a/b.py, a/_b.py or the folder a/b.

    `a` is a folder of the sources or of tests.
    """
    folder = path.relative_to(ROOT / "tests").parent
    beside = [each for base in (ROOT, ROOT / "tests") for each in (base / folder).glob("*")]
    stems = {each.stem.strip("_") for each in beside if not each.stem.startswith("test_")}
    is_named = any(f"{path.stem}_".startswith(f"test_{stem}_") for stem in stems)
    assert is_named != (path.name in OTHER_TESTS), "is a file or folder of that name beside it?"


def test_every_op_file_has_a_test() -> None:
    tests = [f"{path.stem}_" for path in (ROOT / "tests/delegate/ops").glob("test_*.py")]
    assert OPS
    for op in OPS:
        assert any(test.startswith(f"test_{op.stem}_") for test in tests), op.stem


def test_every_op_file_registers_an_op() -> None:
    for path in OPS:
        assert re.search(r"^@lowers\(\"\w+\"", path.read_text(), re.MULTILINE), path.name


@cache
def _ops() -> set[str]:
    """Return the names of the op files, and of the ops in them."""
    lowered = [re.findall(r"^@lowers\((.*)\)", path.read_text(), re.MULTILINE) for path in OPS]
    names = {name for each in lowered for text in each for name in re.findall(r"\w+", text)}
    return {path.stem for path in OPS} | {name.lower() for name in names}


def _op_of(stem: str) -> str | None:
    """Return the op or op file that a kernel file belongs to: the longest prefix of its name."""
    owners = [op for op in _ops() if stem == op or stem.startswith(op + "_")]
    return max(owners, key=len, default=stem if stem in SHARED else None)


def test_every_kernel_file_has_an_op() -> None:
    assert [p.name for p in KERNELS if not _op_of(p.stem) and p.stem[:8] != "runtime_"] == []


def test_files_finds_every_kernel_file() -> None:
    assert sorted(files().values()) == KERNEL_FILES


_INSTRUCTION = "|".join([*instructions("cpu"), *instructions("gpu")])


@each(IN_DELEGATE)
def test_only_lowering_for_its_devices_names_an_instruction(path: Path) -> None:
    # Other modules ask for a property of delegate/isa.py, or of a module's configuration.
    is_of_devices = path.parent.parent == ROOT / "delegate/ops/_convolution"
    if not is_of_devices and _name(path) != "delegate/isa.py":
        words = re.findall(rf"\b(?:{_INSTRUCTION})\b", path.read_text(), re.IGNORECASE)
        assert words == []


def test_device_kinds_have_folders_of_kernels_and_launches() -> None:
    launches, kernels = ROOT / "delegate/ops/_convolution", ROOT / "kernels/convolution"
    kinds = {path.name for path in kernels.iterdir() if path.is_dir()}
    assert kinds == {path.parent.name for path in launches.glob("*/__init__.py")}


OF_SEVERAL = ("runtime_fused", "runtime_persistent")  # these run tiles of other kernels


@every_kernel
def test_kernel_names(path: Path) -> None:
    text = path.read_text()
    kernels = re.findall(r"^KERNEL\((\w+)\)$", text, re.MULTILINE)
    assert kernels or path.stem in OF_SEVERAL
    for name in kernels:
        grammar = rf"{_op_of(path.stem) or path.stem}{CASES}{ARITHMETIC}{FAMILIES}"
        assert re.fullmatch(grammar, name), f"{name} is not {grammar}"
        assert f"\nTILE({name}) {{" in text
        # each kernel's name has all words of the file's name
        assert set(path.stem.split("_")) <= set(name.split("_"))


def test_inactive_items_leave_no_float_loop() -> None:
    # llvmpipe of Mesa 26.2 loads floats for inactive items, too: see kernels/README.md.
    tile = re.compile(r"^TILE\((\w+_float)\) \{$(.*?)^\}$", re.MULTILINE | re.DOTALL)
    bodies = {name: body for path in KERNELS for name, body in tile.findall(path.read_text())}
    leave = re.compile(r"if \(\w+ >= \w+\) break;|EACH_ITEM \(")
    assert len(bodies) > 20
    assert [name for name, body in bodies.items() if leave.search(body)] == []


def test_fma_is_called_only_if_supported() -> None:
    # float.clh queries the device; the others are built only for proven instructions or built-ins.
    callers = {path.name for path in KERNEL_FILES if re.search(r"\bfma\(", path.read_text())}
    exempt = {path.name for path in KERNEL_FILES if "no fma()" in path.read_text()}
    allowed = {"float.clh", "requantize_word.clh", "runtime_isa.cl", "builtins.clh"}
    assert callers - exempt == allowed


# Functions that quantize.clh defines for several lane counts, by macros.
_ROUNDING = ("requantize", "requantize_once", "rounding_doubling_high_mul")


@each(KERNEL_FILES)
def test_kernel_functions_can_share_a_program(path: Path) -> None:
    text = re.sub(r"//.*|/\*.*?\*/", "", path.read_text())
    own = re.findall(r"^(?:static|kernel)\b.*", text, re.MULTILINE)
    allowed = ("LOCAL(", "void runtime_persistent(", "kernel void runtime_fused(")
    assert [line for line in own if not any(words in line for words in allowed)] == []
    for name in {*re.findall(r"\bLOCAL\((\w+)\)\(", text), *_ROUNDING}:
        assert not re.search(rf"(?<!\w){name}(?:2|4|8|16)?\(", text), f"{name} without LOCAL"


@each(KERNEL_FILES)
def test_params_may_lie_in_local_memory(path: Path) -> None:
    # kernel.clh and the kernels of several launches turn the host's pointer into PARAMS.
    if path.name != "kernel.clh" and path.stem not in OF_SEVERAL:
        assert "global const int* params" not in path.read_text(), "its type is PARAMS"


# neon.clh also has the emulations for tests.
OF_CPUS = [p for p in KERNEL_FILES if p.parent.name in ("x86", "arm") and p.name != "neon.clh"]
OF_CPUS += [files()["finish_bytes.clh"], files()["conv_2d_panel.clh"]]


@each(OF_CPUS)
def test_cpu_kernels_call_no_opencl_builtins(path: Path) -> None:
    # requantize_x86.clh explains how PoCL 7.1 compiles them.
    text = re.sub(r"//.*", "", path.read_text())
    declared = re.findall(r" BUILTIN_\w+ ([a-z]\w*)\(", files()["builtins.clh"].read_text())
    assert {"min", "max", "rint", "mul_hi", "get_group_id"} <= set(declared)
    moves = ("vload", "vstore", "convert_")
    calls = set(re.findall(r"(?<!\w)([a-z]\w*)\(", text))
    assert {name for name in calls if name in declared or name.startswith(moves)} == set()


@every_kernel
def test_kernel_file_headers(path: Path) -> None:
    text = path.read_text()
    assert text.startswith("// SPDX-License-Identifier: Apache-2.0\n")
    assert "#pragma OPENCL FP_CONTRACT OFF\n" in text.split("#include")[0].split("{")[0]


@every_kernel
def test_kernels_document_their_tile(path: Path) -> None:
    text = path.read_text()
    if path.stem[:8] != "runtime_":
        assert text.count("\n// tile: ") == len(re.findall(r"^KERNEL\(", text, re.MULTILINE))


def test_included_files_have_a_licence() -> None:
    for path in set(KERNEL_FILES) - set(KERNELS):
        assert path.read_text().startswith("// SPDX-License-Identifier: Apache-2.0\n")


# A longer file, and why it is not split.
LONGER_FILES = {"kernels/ops/binary.cl": "one body, and all expressions that it can be built with"}
MOST_FILE_LINES, MOST_FUNCTION_LINES, MOST_COLUMNS = 300, 60, 100


@each([*SOURCES, *KERNEL_FILES])
def test_files_are_short(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert (len(lines) > MOST_FILE_LINES) == (_name(path) in LONGER_FILES), len(lines)


@each(KERNEL_FILES)
def test_no_variadic_macros(path: Path) -> None:
    """OpenCL C has no variadic macros; NVIDIA's compiler refuses them. AVX-512 implies clang."""
    if "avx512" not in path.stem:
        assert not re.search(r"#define \w+\([^)]*\.\.\.\)", path.read_text())


@each(KERNEL_FILES)
def test_kernel_line_length(path: Path) -> None:
    assert max(map(len, path.read_text().splitlines())) <= MOST_COLUMNS


@every_source
def test_functions_are_short(path: Path) -> None:
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= MOST_FUNCTION_LINES, node.name


def _duplicate_classes(trees: Mapping[str, ast.Module]) -> dict[str, list[str]]:
    """Return names of more than one class, nested ones included, with their places."""
    places = defaultdict(list)
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{file}:{node.lineno}")
    return {name: where for name, where in places.items() if len(where) > 1}


def test_no_two_classes_share_a_name() -> None:
    outer, nested = ast.parse("class A: ..."), ast.parse("def f():\n    class A: ...")
    assert _duplicate_classes({"a.py": outer, "b.py": nested}) == {"A": ["a.py:1", "b.py:2"]}
    assert _duplicate_classes({_name(path): _tree(path) for path in SOURCES}) == {}


def _written_here() -> list[Path]:
    folders = ("assets", "delegate", "docs", "kernels", "tests", *COMMANDS)
    inside = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    return [path for path in (*inside, *ROOT.glob("*.*")) if path.is_file()]


def test_no_absolute_paths_and_licences_everywhere() -> None:
    absolute = re.compile(r"(?<![\w.~}/:])/(?:home|work|var|tmp|root|mnt|srv|Users)/\w")
    for path in _written_here():
        if path.suffix not in (".py", ".cl", ".clh", ".toml", ".md"):
            continue
        text = path.read_text()
        for number, line in enumerate(text.splitlines(), 1):
            assert not absolute.search(line), f"{_name(path)}:{number}: {line.strip()}"
        if path.suffix == ".py":
            assert text.startswith("# SPDX-License-Identifier: Apache-2.0\n"), _name(path)
