"""YAML whose values know their lines, so that an error message can name the line."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import dataclass

import yaml

from fairlead.model.errors import InputError
from fairlead.model.words import did_you_mean

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader is ten times faster, but not built everywhere

DEEPEST = 100  # lists and mappings inside each other
_INDENTATION = re.compile(r"^[ ?:-]*", re.MULTILINE)  # also `- - - x`, which is nested on one line


@dataclass(frozen=True, slots=True)
class Marked:
    """One YAML node of `path`. Reading it as another type raises an error with the file and the line."""

    node: yaml.Node
    path: str
    name: str

    @property
    def line(self) -> int:
        return int(self.node.start_mark.line) + 1

    def error(self, message: str) -> InputError:
        return InputError(message, path=self.path, line=self.line)

    def mapping(self, known: Collection[str] | None = None) -> dict[str, Marked]:
        """The values by key, in file order; a repeated key, or one that is not `known`, is refused."""
        if not isinstance(self.node, yaml.MappingNode):
            raise self.error(f"{self.name} is {self._shown()}; wanted keys with values, such as key: value")
        fields: dict[str, Marked] = {}
        for key_node, value_node in self.node.value:
            key = Marked(key_node, self.path, f"a key of {self.name}")
            word = key.text()
            if word in fields:
                raise key.error(f'key "{word}" appears twice in {self.name}; keep one')
            if known is not None and word not in known:
                raise key.error(f'{self.name} has an unknown key "{word}"; {did_you_mean(word, known)}')
            fields[word] = Marked(value_node, self.path, word)
        return fields

    def items(self) -> list[Marked]:
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.error(f"{self.name} is {self._shown()}; wanted a list")
        return [Marked(item, self.path, f"item {i} of {self.name}") for i, item in enumerate(self.node.value, 1)]

    def text(self) -> str:
        if not isinstance(self.node, yaml.ScalarNode) or not self.node.value:
            raise self.error(f"{self.name} is {self._shown()}; wanted a word")
        return str(self.node.value)

    def number(self) -> float:
        """A finite number, read from the text: YAML 1.1 itself reads 1e3 as a string and 010 as eight."""
        try:
            value = float(self._plain())
        except ValueError:
            raise self.error(f"{self.name} is {self._shown()}; wanted a number") from None
        if not math.isfinite(value):
            raise self.error(f"{self.name} is {self._shown()}; wanted a finite number")
        return value

    def whole(self) -> int:
        try:
            return int(self._plain())
        except ValueError:
            raise self.error(f"{self.name} is {self._shown()}; wanted a whole number") from None

    def _plain(self) -> str:
        if not isinstance(self.node, yaml.ScalarNode) or self.node.style in ("'", '"', "|", ">"):
            raise ValueError("not a plain scalar")
        return str(self.node.value)

    def _shown(self) -> str:
        if isinstance(self.node, yaml.ScalarNode):
            shown = self.node.value if len(self.node.value) <= 40 else self.node.value[:37] + "..."
            return f'"{shown}"' if shown else "empty"
        return "a list" if isinstance(self.node, yaml.SequenceNode) else "a mapping"


def parse_yaml(text: str, path: str, name: str) -> Marked:
    """The one document in `text`; `name` is its name in error messages."""
    try:
        if _may_be_deep(text) and _depth(text) > DEEPEST:
            raise InputError(f"is nested too deeply for {name}; at most {DEEPEST} levels are accepted", path=path)
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise InputError(f"is not YAML: {error.problem}", path=path, line=line) from None
    except yaml.YAMLError as error:
        raise InputError(f"is not YAML: {' '.join(str(error).split())}", path=path) from None
    if node is None:
        raise InputError(f"is empty; wanted {name}", path=path)
    return Marked(node, path, name)


def _may_be_deep(text: str) -> bool:
    """Whether the text can be nested more than DEEPEST levels: a level needs a bracket, or a column of indentation."""
    brackets = text.count("[") + text.count("{")
    return brackets > DEEPEST // 2 or max(map(len, _INDENTATION.findall(text)), default=0) > DEEPEST // 4


def _depth(text: str) -> int:
    """The depth of the document, from its events: composing nodes of a very deep one ends the process."""
    depth = deepest = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            deepest = max(depth, deepest)
            if deepest > DEEPEST:
                break
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return deepest


def check_kind(fields: dict[str, Marked], kind: str) -> None:
    """Raise an error if the key `fairlead` exists and names another kind or version."""
    head = fields.get("fairlead")
    if head is not None and head.text() != kind:
        raise head.error(f'this is a "{head.text()}" file; wanted {kind}')
