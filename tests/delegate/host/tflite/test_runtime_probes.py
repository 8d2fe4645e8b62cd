# SPDX-License-Identifier: Apache-2.0
"""Which rules hold is told by TFLite's own kernels."""

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
# Kernels that read past their tensors, and what C leaves undefined.
NOT_ASKED = {"batch_matmul_mixes_rows", "linked_lstms", "norm_products_wrap"}
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


def test_the_installed_runtime_tells_its_own_rules() -> None:
    kernels = package_kernels(PACKAGE)
    assert kernels is not None
    told = {question.rule for question in questions()}
    assert told | NOT_ASKED == {
        field.name for field in fields(Rules) if isinstance(getattr(Rules(), field.name), bool)
    }
    expected = library.rules(PACKAGE)
    for start in (OLDER, NEWER):
        found = probed_rules(start, kernels)
        assert {rule: getattr(found, rule) for rule in told} == {
            rule: getattr(expected, rule) for rule in told
        }


def test_how_sums_of_rows_are_rounded_is_asked_of_the_processor() -> None:
    kernels = package_kernels(PACKAGE)
    assert kernels is not None
    told = rounds_rows_twice(kernels)
    assert told is True if platform.machine() == "x86_64" else told is not None
    assert rounds_rows_twice(lambda _: of_rows().newer) is False
    assert rounds_rows_twice(lambda _: b"") is None


def test_each_rule_is_told_by_itself() -> None:
    def mixed(question: Question) -> bytes | None:
        is_older = question.rule == "reverses_first_axis"
        return next(iter(question.older)) if is_older else question.newer

    found = probed_rules(OLDER, mixed)
    assert found.reverses_first_axis
    assert found.saturating_cast
    assert not found.fully_connected_double_rounding
    assert found.batch_matmul_mixes_rows  # nobody is asked: as the version has it


def test_what_older_kernels_would_read_past_they_are_not_asked() -> None:
    """Debian's TFLite 2.14.1 wrote past its memory where it was asked for weights in blocks."""
    heard = []

    def older(question: Question) -> bytes | None:
        heard.append(question.rule)
        return next(iter(question.older))

    assert not probed_rules(NEWER, older).knows_blocks
    assert "knows_blocks" not in heard
    probed_rules(OLDER, lambda question: heard.append(question.rule) or question.newer)
    assert "knows_blocks" in heard


def test_kernels_that_answer_otherwise_change_no_rule(caplog: pytest.LogCaptureFixture) -> None:
    def strange(question: Question) -> bytes | None:
        return b"?" if question.op == "CAST" else question.newer

    assert probed_rules(OLDER, strange).saturating_cast is OLDER.saturating_cast
    assert "2.15.0 answers like neither of the two that are known: saturating_cast" in caplog.text


def test_kernels_out_of_reach_change_no_rule() -> None:
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


def test_a_library_is_asked_by_its_c_interface(tiny: Kernels) -> None:
    # The reference kernel of FULLY_CONNECTED (9) is exported; of GREATER nothing is.
    assert tiny(question_of("FULLY_CONNECTED")) == bytes([9, 1])
    assert tiny(question_of("GREATER")) == bytes([255, 0, 0])


def test_what_tflite_refuses_has_no_answer(tiny: Kernels) -> None:
    assert tiny(question_of("DIV")) is None


def test_no_reference_kernel_is_no_answer(tmp_path: Path) -> None:
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


def test_a_library_without_the_c_interface_cannot_be_asked() -> None:
    assert library_kernels("libc.so.6") is None


def test_a_package_without_an_interpreter_cannot_be_asked() -> None:
    assert package_kernels("delegate") is None
