# SPDX-License-Identifier: Apache-2.0
"""Tokenizers: round trips of any Unicode text, chat templates, damaged files."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate.guard.children.environment import ResourceUsage
from tests.support.llama import write_gguf
from tflite_opencl.console.errors import CommandError
from tflite_opencl.generate.llama import Llama
from tflite_opencl.generate.tokens import CONFIG_FILE, FILE, Tokens, files_of
from tflite_opencl.models import chat_template

START, END = 1, 2


@pytest.fixture(scope="module")
def tokens(model: Path) -> Tokens:
    return Tokens(model.parent)


@given(st.text())
def test_text_round_trips(tokens: Tokens, text: str) -> None:
    result = tokens.encode(text)
    assert tokens.decode(result) == text
    stream = tokens.stream()
    assert "".join(map(stream, result)) == text


def test_merges_and_digits(tokens: Tokens) -> None:
    assert len(tokens.encode("hello")) == 1
    assert len(tokens.encode(" w")) == 1
    assert len(tokens.encode("123")) == 3


def test_invalid_unicode_is_replaced(tokens: Tokens) -> None:
    assert tokens.decode(tokens.encode("a\udcff b\ud800")) == "a? b?"


def test_partial_character_is_buffered(tokens: Tokens) -> None:
    stream = tokens.stream()
    pieces = [stream(token) for token in tokens.encode("é🙂")]
    assert pieces == ["", "é", "", "", "", "🙂"]


def test_conversation_ends_with_generation_prompt(tokens: Tokens) -> None:
    output = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hello"}]
    result = tokens.conversation(output)
    assert result[0] == START
    assert result.count(START) == 3
    assert result.count(END) == 2
    assert tokens.decode(result) == "system\nBe kind.\nuser\nhello\nassistant\n"
    assert tokens.ends == {END}


def test_template_of_file_is_used(tmp_path: Path) -> None:
    template = "{{ bos_token }}{% for m in messages %}[{{ m['content'] }}]{% endfor %}"
    path = write_gguf(tmp_path / "a.gguf", tokenizer__chat_template=template)
    result = read(path, tmp_path)
    text = result.decode(result.conversation([{"role": "user", "content": "hello"}]))
    assert text == "[hello]"


def test_beginning_of_sequence_token(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf", tokenizer__ggml__add_bos_token=True)
    assert read(path, tmp_path).encode("hello")[0] == START


def read(gguf: Path, folder: Path) -> Tokens:
    for name, content in files_of(Llama(str(gguf))).items():
        (folder / name).write_bytes(content)
    return Tokens(folder)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tokenizer__ggml__model": "llama"}, "it is of the kind 'llama', and only 'gpt2'"),
        ({"tokenizer__ggml__pre": "qwen2"}, "it cuts texts as 'qwen2' does, which is not known"),
        ({"tokenizer__ggml__merges": ["h q"]}, "has a tokenizer that cannot be used"),
        ({"tokenizer__ggml__eos_token_id": 5000}, "has a tokenizer that cannot be used"),
        ({"tokenizer__ggml__token_type": [1, 2]}, "has a tokenizer that cannot be used"),
    ],
)
def test_unknown_tokenizer_is_one_line(
    changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    llama = Llama(str(write_gguf(tmp_path / "a.gguf", **changes)))
    with pytest.raises(CommandError) as caught:
        files_of(llama)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{}", b"nonsense", b"\xff\xfe", None])
def test_damaged_file_is_one_line(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / FILE).write_bytes(content)
    with pytest.raises(CommandError, match=r"tokenizer\.json"):
        Tokens(tmp_path)


ENDLESS = "{% for a in range(99999) %}" * 3 + "{% endfor %}" * 3
HOSTILE = [
    *("{% for", "{{ 1 / 0 }}", "{{ messages.pop() }}", "{{ ''.__class__.__mro__ }}"),
    *("{{ 'a' * 10**11 }}", "{{ '%0999999999d' % 1 }}", "{{ 'a' | center(10**11) }}"),
    *(ENDLESS, ENDLESS.replace("{% end", "abc{% end", 1), "{% set a = 9**(9**9) %}"),
]


def test_reserved_address_space_does_not_count_for_template(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """NumPy reserves address space for threads on all cores."""
    monkeypatch.setattr(chat_template, "resource_usage", lambda: ResourceUsage(1 << 40, 0))
    limits: list[int] = []
    monkeypatch.setattr(resource, "setrlimit", lambda what, limit: limits.append(limit[0]))
    assert [*chat_template._answers("{{ a }}", {"a": "text"})] == [("text", "")]
    assert max(limits) > 1 << 40


@pytest.mark.parametrize("template", HOSTILE)
def test_unusable_template_is_one_line(template: str, model: Path, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes((model.parent / FILE).read_bytes())
    config = json.loads((model.parent / CONFIG_FILE).read_text())
    (tmp_path / CONFIG_FILE).write_text(json.dumps(config | {"chat_template": template}))
    with pytest.raises(CommandError, match="the chat template cannot be used: "):
        Tokens(tmp_path).conversation([{"role": "user", "content": "hello"}])


@pytest.mark.parametrize("template", [5, ["a"], {"a": "b"}, "a" * 2_000_000])
def test_template_that_is_no_text_is_one_line(
    template: object, model: Path, tmp_path: Path
) -> None:
    (tmp_path / FILE).write_bytes((model.parent / FILE).read_bytes())
    config = json.loads((model.parent / CONFIG_FILE).read_text())
    (tmp_path / CONFIG_FILE).write_text(json.dumps(config | {"chat_template": template}))
    with pytest.raises(CommandError, match="the chat template is no text of at most 1048576"):
        Tokens(tmp_path)


def test_too_long_text_is_one_line(tokens: Tokens) -> None:
    with pytest.raises(CommandError, match="the text has more than 16777216 letters"):
        tokens.encode("a" * (1 + (1 << 24)))
