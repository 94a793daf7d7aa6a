"""Which commands a process that runs already can execute."""

from __future__ import annotations

import re
import shlex

import pytest

from fairlead.engines.python_command import PythonCommand, python_command
from fairlead.model.errors import InputError


@pytest.mark.parametrize(
    ("run", "words", "target", "is_module", "arguments"),
    [
        ("python train.py", ("python",), "train.py", False, ()),
        ("  exec python3.11 -u a/b.py --lr 0.1\n", ("python3.11", "-u"), "a/b.py", False, ("--lr", "0.1")),
        (
            "/opt/v/bin/python -W ignore -Xdev -m pkg.train x",
            ("/opt/v/bin/python", "-W", "ignore", "-Xdev"),
            *("pkg.train", True, ("x",)),
        ),
        ("python 'my train.py' \"a b\"c ''", ("python",), "my train.py", False, ("a bc", "")),
        ("python train.py -m -c -u", ("python",), "train.py", False, ("-m", "-c", "-u")),
    ],
)
def test_a_plain_python_command_is_taken_apart(
    run: str, words: tuple[str, ...], target: str, is_module: bool, arguments: tuple[str, ...]
) -> None:
    assert python_command(run) == PythonCommand(words, target, is_module, arguments)
    module = ("-m",) if is_module else ()
    assert [word for word in shlex.split(run) if word != "exec"] == [*words, *module, target, *arguments]


@pytest.mark.parametrize(
    ("run", "problem"),
    [
        ("python train.py | tee log", "because of '|'"),
        ("python train.py $SEED", "because of '$'"),
        ('python train.py "$SEED"', "because of '\"'"),
        ("python train.py *.csv", "because of '*'"),
        ("cd x\npython train.py", "because of '\\n'"),
        ("python train.py; true", "because of ';'"),
        ("SEED=1 python train.py", 'first word is "SEED=1"'),
        ("torchrun train.py", 'first word is "torchrun"'),
        ("pythonic train.py", 'first word is "pythonic"'),
        ("", "first word is nothing"),
        ("python", "names no script"),
        ("python -u -m", "names no script"),
        ("python -c pass", "option -c"),
        ("python -i train.py", "option -i"),
        ("python -", "option -"),
    ],
)
def test_a_command_that_needs_a_shell_or_is_not_python_is_refused_with_the_cause(run: str, problem: str) -> None:
    with pytest.raises(InputError, match=re.escape(problem)):
        python_command(run)
