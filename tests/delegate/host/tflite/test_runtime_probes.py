# SPDX-License-Identifier: Apache-2.0
"""Arithmetic rules are probed by calls of TFLite's kernels."""

from __future__ import annotations

import ctypes
import platform
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest

from delegate.host.tflite import library
from delegate.host.tflite.questions import REFERENCE, Question, of_rows, questions
from delegate.host.tflite.runtime_probes import (
    CannotProbe,
    Kernels,
    library_kernels,
    package_kernels,
    probed_rules,
    rounds_rows_twice,
)
from delegate.target import Rules
from tests.support.compare import RUNTIME

PACKAGE = RUNTIME.module.__package__
# Kernels that read past their tensors, and undefined behaviour of C.
NOT_PROBED = {"batch_matmul_mixes_rows", "linked_lstms", "norm_products_wrap"}
OLDER, NEWER = (library.rules_of_version("TFLite", "2.15.0", older) for older in (True, False))
# A C interface without kernels. An interpreter's output is the code of the op that its resolver
# gave, or 255 for none, then the last byte of each input. It refuses ops of the code 114 (DIV).
TINY = r"""
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
typedef struct { void *a[5]; int code; char* custom; int version; void* rest[20]; } Kernel;
typedef Kernel* (*Find)(void*, int, int);
static Kernel reference = {{0}, 0, 0, 0, {&reference}};
static Find find;
static unsigned char result[8];
static size_t length;
static int is_refused;
Kernel* _ZN6tflite3ops7builtin28Register_FULLY_CONNECTED_REFEv(void) { return &reference; }
Kernel* _ZN6tflite3ops7builtin12Register_DIVEv(void) { return &reference; }
void* TfLiteModelCreate(const void* bytes, size_t size) { return size > 100 ? (void*)1 : NULL; }
void TfLiteModelDelete(void* model) {}
void* TfLiteInterpreterOptionsCreate(void) { find = NULL; return (void*)2; }
void TfLiteInterpreterOptionsDelete(void* options) {}
void TfLiteInterpreterOptionsSetErrorReporter(void* options, void* reporter, void* user) {}
void TfLiteInterpreterOptionsSetNumThreads(void* options, int threads) {}
void TfLiteInterpreterOptionsSetOpResolver(void* options, Find builtin, void* custom, void* user) {
  find = builtin;
}
void* TfLiteInterpreterCreate(void* model, void* options) {
  Kernel* found = find ? find(NULL, 9, 1) : NULL;
  result[0] = found ? found->code : 255;
  length = 1;
  is_refused = found && (found->code == 42 || found->rest[0]);
  return model ? (void*)3 : NULL;
}
void TfLiteInterpreterDelete(void* interpreter) {}
int TfLiteInterpreterAllocateTensors(void* interpreter) { return is_refused; }
int TfLiteInterpreterInvoke(void* interpreter) { return 0; }
void* TfLiteInterpreterGetInputTensor(void* interpreter, int number) { return (void*)4; }
const void* TfLiteInterpreterGetOutputTensor(const void* interpreter, int number) { return result; }
size_t TfLiteTensorByteSize(const void* tensor) { return length; }
int TfLiteTensorCopyFromBuffer(void* tensor, const void* bytes, size_t size) {
  result[length++] = ((const unsigned char*)bytes)[size - 1];
  return 0;
}
int TfLiteTensorCopyToBuffer(const void* tensor, void* bytes, size_t size) {
  memcpy(bytes, result, size);
  return 0;
}
"""


def test_probed_rules_of_installed_runtime() -> None:
    kernels = package_kernels(PACKAGE)
    assert kernels is not None
    rules = {question.rule for question in questions()}
    assert rules | NOT_PROBED == {
        field.name for field in fields(Rules) if isinstance(getattr(Rules(), field.name), bool)
    }
    expected = library.rules(PACKAGE)
    for start in (OLDER, NEWER):
        result = probed_rules(start, kernels)
        assert {rule: getattr(result, rule) for rule in rules} == {
            rule: getattr(expected, rule) for rule in rules
        }


def test_rounding_of_row_sums_depends_on_processor() -> None:
    kernels = package_kernels(PACKAGE)
    assert kernels is not None
    rounds_twice = rounds_rows_twice(kernels)
    assert rounds_twice is True if platform.machine() == "x86_64" else rounds_twice is not None
    assert rounds_rows_twice(lambda _: of_rows().newer) is False
    assert rounds_rows_twice(lambda _: b"") is None


def test_rules_are_probed_independently() -> None:
    def mixed(question: Question) -> bytes | None:
        is_older = question.rule == "reverses_first_axis"
        return next(iter(question.older)) if is_older else question.newer

    result = probed_rules(OLDER, mixed)
    assert result.reverses_first_axis
    assert result.saturating_cast
    assert not result.fully_connected_double_rounding
    assert result.batch_matmul_mixes_rows  # without probing: the version's rules


def test_unsafe_probes_are_skipped_for_old_kernels() -> None:
    """Debian's TFLite 2.14.1 wrote past its memory when probed with blockwise weights."""
    heard = []

    def older(question: Question) -> bytes | None:
        heard.append(question.rule)
        return next(iter(question.older))

    assert not probed_rules(NEWER, older).knows_blocks
    assert "knows_blocks" not in heard
    probed_rules(OLDER, lambda question: heard.append(question.rule) or question.newer)
    assert "knows_blocks" in heard


def test_unexpected_answers_change_no_rule(caplog: pytest.LogCaptureFixture) -> None:
    def strange(question: Question) -> bytes | None:
        return b"?" if question.op == "CAST" else question.newer

    assert probed_rules(OLDER, strange).saturating_cast is OLDER.saturating_cast
    assert "2.15.0 answers like neither of the two that are known: saturating_cast" in caplog.text


def test_unreachable_kernels_change_no_rule() -> None:
    def silent(_: Question) -> bytes | None:
        raise CannotProbe

    for rules in (OLDER, NEWER):
        assert probed_rules(rules, silent) == rules


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "tiny.c").write_text(TINY)
    file = folder / "libtiny.so"
    subprocess.run(["cc", "-w", "-shared", "-fPIC", "-o", file, folder / "tiny.c"], check=True)
    ctypes.CDLL(str(file))
    kernels = library_kernels(str(file))
    assert kernels is not None
    return kernels


def question_of(op: str) -> Question:
    return next(question for question in questions() if question.op == op)


def test_library_is_probed_by_c_interface(tiny: Kernels) -> None:
    # The reference kernel of FULLY_CONNECTED (9) is exported, but that of GREATER is not.
    assert tiny(question_of("FULLY_CONNECTED")) == bytes([9, 1])
    assert tiny(question_of("GREATER")) == bytes([255, 0, 0])


def test_refused_probe_has_no_answer(tiny: Kernels) -> None:
    assert tiny(question_of("DIV")) is None


def test_missing_reference_kernel_has_no_answer(tmp_path: Path) -> None:
    source = tmp_path / "tiny.c"
    source.write_text(TINY.replace("28Register_FULLY", "28Register_OTHER"))
    file = tmp_path / "libother.so"
    subprocess.run(["cc", "-w", "-shared", "-fPIC", "-o", file, source], check=True)
    ctypes.CDLL(str(file))
    kernels = library_kernels(str(file))
    assert kernels is not None
    assert question_of("FULLY_CONNECTED").kernel == REFERENCE
    with pytest.raises(CannotProbe, match="FULLY_CONNECTED is not exported"):
        kernels(question_of("FULLY_CONNECTED"))


def test_library_without_c_interface_cannot_be_probed() -> None:
    assert library_kernels("libc.so.6") is None


def test_package_without_interpreter_cannot_be_probed() -> None:
    assert package_kernels("delegate") is None
