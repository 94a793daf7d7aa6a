"""Mistyped words: the message names the nearest known word, wherever the word was entered."""

from __future__ import annotations

import sys

import pytest

from fairlead.cli.main import main
from fairlead.model.errors import InputError
from fairlead.model.words import choose, did_you_mean, parse_pairs

COMPARE = ["compare", "--generate", "defaults", "--jobs", "3"]


def test_the_nearest_word_is_named_whatever_its_case() -> None:
    known = ["resnet50", "bert", "gpt2", "dlrm", "a3c", "lstm", "vgg16"]

    assert did_you_mean("ResNet-50", known) == 'did you mean "resnet50"?'
    assert did_you_mean("zzz", known) == "known: a3c, bert, dlrm, gpt2, lstm, resnet50, vgg16"
    assert did_you_mean("evnt", ["rounds", "events"]) == 'did you mean "events"? (known: events, rounds)'
    assert did_you_mean("x", []) == "known: none"


def test_only_the_first_of_thousands_of_words_are_listed() -> None:
    message = did_you_mean("zzz", [f"tenant-{k:04}" for k in range(5000)])

    assert message.startswith("known: tenant-0000, tenant-0001, ")
    assert message.endswith(", tenant-0039 and 4,960 more")


def test_a_known_word_is_returned() -> None:
    assert choose("--decide", "rounds", ["rounds", "events"]) == "rounds"
    with pytest.raises(InputError, match='--decide "Rounds" is not known; did you mean "rounds"'):
        choose("--decide", "Rounds", ["rounds", "events"])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([*COMPARE, "--cluster", "v100:2", "--policies", "fifo,gavle"], 'policy "gavle" is not known'),
        ([*COMPARE, "--cluster", "v10:2", "--policies", "fifo"], 'did you mean "v100"?'),
        ([*COMPARE, "--cluster", "v100:2", "--policies", "fifo", "--decide", "event"], 'did you mean "events"?'),
        ([*COMPARE, "--cluster", "v100:2", "--policies", "fifo", "--sensing", "tabel"], 'did you mean "table"?'),
        ([*COMPARE, "--cluster", "v100:2", "--policies", "fifo", "--executor", "process"], 'did you mean "processes"?'),
        (["compare", "--generate", "laod=1", "--cluster", "v100:2", "--policies", "fifo"], 'did you mean "load"?'),
        (["simulate", "--trace", "x", "--cluster", "v100:2", "--policy", "gavle"], 'did you mean "gavel"?'),
        (
            ["trace", "generate", "--cluster", "v100:2", "--out", "x", "--model", "resnet5=1"],
            'did you mean "resnet50"?',
        ),
        (["rates", "show", "resnet5"], 'did you mean "resnet50"?'),
    ],
)
def test_every_command_suggests_it_in_one_line(
    args: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["fairlead", *args])
    with pytest.raises(SystemExit) as stopped:
        main()

    lines = capsys.readouterr().err.splitlines()
    answer = [line for line in lines if not line.startswith("comparing: ")]  # progress, where a machine is busy
    assert stopped.value.code in (2, 3)
    assert len(answer) == 1
    assert message in answer[0]


@pytest.mark.parametrize("example", ["v100=8+4-2", "tenants=5,load=1.5"])
def test_a_pair_without_its_sign_is_answered_with_an_example(example: str) -> None:
    with pytest.raises(InputError, match="is not NAME=VALUE") as raised:
        parse_pairs(["v100:8"], "--quota", example)

    assert str(raised.value).endswith(f"write it as in --quota {example}")
