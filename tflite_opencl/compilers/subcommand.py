# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl kernels MODEL...`: statistics of a driver's compiler for some models' kernels.

Runs no kernels, so the device need not pass its self-test: only a compiler is required.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from delegate import DelegateError, DeviceInfo
from delegate.inspect import KernelUse, kernel_uses
from tflite_opencl.boards import drivers
from tflite_opencl.boards.drivers import SurveyedDevice
from tflite_opencl.cli.flag_values import OutputFolder
from tflite_opencl.cli.flags import add_flag, add_flags, add_models, device_asked, models_of
from tflite_opencl.cli.outputs import as_json, shown
from tflite_opencl.compilers.builds import Built, build_all
from tflite_opencl.compilers.paper import CHIPS, Estimate, estimate, paper_text
from tflite_opencl.compilers.rows import (
    compared,
    comparison_text,
    csv_of,
    read_csv,
    row_of,
    table_text,
)
from tflite_opencl.console.errors import CommandError, cannot_read
from tflite_opencl.console.exit_codes import NO_DEVICE, NOT_SO

HELP = "what a device's compiler makes of every kernel that some models need; runs none"
EXAMPLES = (
    ("tflite-opencl kernels model.tflite", "registers, instructions and the like, as far as told"),
    ("tflite-opencl kernels model.tflite --csv before.csv", "keep it"),
    ("tflite-opencl kernels model.tflite --against before.csv", "and see what another driver does"),
    ("tflite-opencl kernels *.tflite --expected", "fails where one spills that is to be fast"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this subcommand's arguments."""
    add_models(parser)
    add_flag(parser, "signature")
    add_flag(parser, "device", more="; the first one if not given")
    add_flag(parser, "allow_fp16", False)
    parser.add_argument(
        "--specialised",
        "--literal",  # until the next release
        action="store_true",
        help="show each kernel that is expected to run with its numbers as literals, too",
    )
    parser.add_argument(
        "--expected",
        action="store_true",
        help="only kernels that are expected to be the fastest; exit code 1 if one is not built or "
        "keeps values in memory",
    )
    add_flags(parser, "csv", "json")
    add_flag(
        parser,
        "against",
        more=" by --csv; exit code 1 if a kernel is no longer built or keeps values in memory",
    )
    parser.add_argument(
        "--dump",
        type=OutputFolder,
        metavar="DIR",
        help="write each kernel into DIR as one .cl file, with its build options and a README",
    )


def run(options: argparse.Namespace) -> str:
    """Return the text to print.

    Raises:
        CommandError: a model or OLD.csv cannot be read, no device matches, DIR cannot be
            written, or the comparison found a kernel that became unusable.
    """
    models = models_of(options)
    old = read_csv(options.against) if options.against else []
    device = _device(device_asked(options.device))
    uses = [use for use in _uses(models, device, options) if _is_asked(use, options)]
    built = build_all(device.info, uses)
    rows = [row_of(device.info, use, each) for use, each in zip(uses, built, strict=True)]
    if options.dump is not None:
        _dump(options.dump, device.info, uses, built)
    paper = _on_paper(device.info.name, models, uses, built)
    facts = {
        "device": asdict(device.info),
        "self_test": device.failure or "passed",
        "kernels": [asdict(row) for row in rows],
        "paper": {model: asdict(each) for model, each in paper.items()},
    }
    comparison = compared(old, rows) if options.against else None
    if comparison:
        text = comparison_text(comparison)
    else:
        table = table_text(rows, shutil.get_terminal_size((120, 24)).columns)
        on_paper = [paper_text(CHIPS[device.info.name], paper)] if paper else []
        text = "\n".join([_head(device), table, *on_paper])
    text = shown(options, text, csv=lambda: csv_of(rows), json=lambda: as_json(facts))
    if comparison and comparison.broken:
        raise CommandError(text, NOT_SO)
    if options.expected:
        pairs = [(use.expected[0].model, row) for use, row in zip(uses, rows, strict=True)]
        bad = [f"{row.flaw}, for {models[first]}" for first, row in pairs if row.flaw]
        if bad:
            raise CommandError("\n".join([text, *bad]), NOT_SO)
    return text


def _is_asked(use: KernelUse, options: argparse.Namespace) -> bool:
    return bool(use.expected) if options.expected else options.specialised or not use.is_specialised


def _device(selector: str | None) -> SurveyedDevice:
    """Return the selected device; its self-test need not pass."""
    found, why_none = drivers.ask_devices()
    if not found:
        raise CommandError(why_none or "no OpenCL device", NO_DEVICE)
    device = drivers.ask_device(drivers.meant(selector, found)[0], with_rates=False)
    if device.limits is None:
        text = f"{device.info.name} does not tell its limits: {device.failure}"
        raise CommandError(text, NO_DEVICE)
    return device


def _uses(
    models: Sequence[str], device: SurveyedDevice, options: argparse.Namespace
) -> tuple[KernelUse, ...]:
    """Return the kernels of all models; shared kernels count for each model."""
    assert device.limits is not None
    isa = None if device.failure else device.isa
    try:
        found = kernel_uses(
            models, device.info, device.limits, isa, options.allow_fp16, options.signature
        )
    except OSError as error:
        raise cannot_read(error.filename, error) from error
    except DelegateError as error:
        raise CommandError(str(error)) from error
    if not found:
        raise CommandError(f"{', '.join(models)}: no node runs on OpenCL")
    return found


def _on_paper(
    name: str, models: Sequence[str], uses: Sequence[KernelUse], built: Sequence[Built]
) -> dict[str, Estimate]:
    """Return each model's estimated run time; nothing for a device missing in CHIPS."""
    listings = [each.listing for each in built]
    if name not in CHIPS or not any(listings):
        return {}
    launches = [
        (launch, listing)
        for use, listing in zip(uses, listings, strict=True)
        for launch in use.expected
    ]
    return {
        Path(model).stem: estimate(CHIPS[name], [each for each in launches if each[0].model == n])
        for n, model in enumerate(models)
    }


def _named(info: DeviceInfo) -> str:
    return f"{info.name} ({info.platform}, {info.driver})"


def _head(device: SurveyedDevice) -> str:
    name = _named(device.info)
    if device.failure is None:
        return f"{name}, proven: {', '.join(device.isa) or 'nothing beyond OpenCL C 1.2'}"
    return (
        f"{name}. Its self-test did not pass: {device.failure}\n"
        "Nothing is proven here. The kernels are those of a device that does all that OpenCL C 1.2 "
        "can express."
    )


_README = """# OpenCL C kernels of tflite-opencl

As {device} is given them. Each file is whole: it
includes no other, and its macros are its first lines. Licence: Apache-2.0.

Arguments: `global uchar* arena, global const uchar* constants`, and then a structure of
2 + FIELDS ints; where a file defines no FIELDS, `global const int* params, int first`.
No argument is an image, and local memory is declared in the kernel.

| file | kernel | work-items a work-group | build options | launches a run |
|---|---|---|---|---|
"""


def _dump(folder: str, info: DeviceInfo, uses: Sequence[KernelUse], built: Sequence[Built]) -> None:
    """Write all kernels to a folder, for driver developers: each as a complete .cl file."""
    readme = _README.format(device=_named(info))
    try:
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        for use, each in zip(uses, built, strict=True):
            # A name that does not depend on the model.
            variant = re.sub(r"\W+", "_", use.variants[0])
            mark = hashlib.sha256(use.source.encode()).hexdigest()[:8]
            name, options = f"{use.kernel}-{variant}-{mark}.cl", " ".join(each.options)
            head = (
                f"// {use.kernel} ({' / '.join(use.variants)}): build options {options}; "
                f"{use.group_items} work-items a work-group.\n"
            )
            (path / name).write_text(head + use.source, encoding="utf-8")
            cells = name, use.kernel, f"{use.group_items}", f"`{options}`", f"{use.launches}"
            readme += f"| {' | '.join(cells)} |\n"
        (path / "README.md").write_text(readme, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write to {folder}: {error.strerror or error}") from error
