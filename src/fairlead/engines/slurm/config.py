"""The settings of `scontrol show config` and the partitions of `scontrol show partition`, of whatever version.

Lines that are not understood are left out, so that a newer version cannot make the reading fail.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from fairlead.engines.slurm.tables import value

_AS_OF = re.compile(r"^Configuration data as of (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)", re.MULTILINE)
_PAIR = re.compile(r"(\S+?)=(\S*)")


@dataclass(frozen=True, slots=True)
class SlurmConfig:
    """What the controller is configured for. Names of settings are compared without regard to case."""

    settings: dict[str, str]  # by name in lower case; empty values for Slurm's words for nothing
    as_of: datetime | None  # the controller's clock; in UTC, because our commands run in that zone

    def get(self, name: str) -> str:
        return self.settings.get(name.lower(), "")

    def words(self, name: str) -> list[str]:
        """The parts of a setting that is a list."""
        return [word.strip() for word in self.get(name).split(",") if word.strip()]

    def number(self, name: str) -> int | None:
        """The number of a setting such as `300 sec`."""
        digits = re.match(r"\d+", self.get(name))
        return int(digits[0]) if digits else None

    def part(self, name: str, key: str) -> str:
        """The value of a key in a setting such as `socket=/run/munge,cred_expire=30`."""
        pairs = dict(word.partition("=")[::2] for word in self.words(name))
        return pairs.get(key, "")


def read_config(text: str) -> SlurmConfig:
    pairs = (line.partition("=") for line in text.splitlines())
    settings = {name.strip().lower(): value(rest) for name, sign, rest in pairs if sign and " " not in name.strip()}
    as_of = _AS_OF.search(text)
    return SlurmConfig(settings, _time(as_of[1]) if as_of else None)


@dataclass(frozen=True, slots=True)
class SlurmPartition:
    name: str
    tier: int  # a job of a higher tier is started before all of lower ones
    up: bool
    default: bool
    fields: dict[str, str]  # all that was printed, by name in lower case


def read_partitions(text: str) -> dict[str, SlurmPartition]:
    """The partitions by name, from one line or from several lines for each."""
    partitions: dict[str, SlurmPartition] = {}
    for block in re.split(r"(?=\bPartitionName=)", text):
        fields = {name.lower(): value(rest) for name, rest in _PAIR.findall(block)}
        name = fields.get("partitionname", "")
        if name:
            tier = fields.get("prioritytier", "")
            partitions[name] = SlurmPartition(
                name,
                tier=int(tier) if tier.isdecimal() else 1,
                up=fields.get("state", "UP") == "UP",
                default=fields.get("default") == "YES",
                fields=fields,
            )
    return partitions


def exit_codes(words: list[str]) -> set[int]:
    """The exit codes of a list such as `1,80-90`."""
    codes: set[int] = set()
    for word in words:
        first, _, last = word.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            codes.update(range(int(first), min(int(last or first), 255) + 1))
    return codes


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        return None
