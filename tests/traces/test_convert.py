from __future__ import annotations

import random
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.errors import InputError
from fairlead.rates.profile import Profile
from fairlead.traces.formats import convert_trace, read_trace, write_trace
from fairlead.traces.importers.rows import Options
from fairlead.traces.sorting import sort_lines

from .conftest import Shared, Write
from .test_importers import HELIOS


def test_converting_gives_what_reading_and_writing_gives(
    write: Write, tmp_path: Path, default_profile: Profile
) -> None:
    path = write(HELIOS)
    done = convert_trace(path, tmp_path / "a.csv", options=Options(profile=default_profile))
    write_trace(read_trace(path, profile=default_profile), tmp_path / "b.csv")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert (done.format, done.jobs) == ("helios", 3)


def test_nothing_is_written_when_the_source_is_bad(write: Write, tmp_path: Path, default_profile: Profile) -> None:
    with pytest.raises(InputError, match="line 7"):
        convert_trace(write(HELIOS + "oops\n"), tmp_path / "out.csv", options=Options(profile=default_profile))
    assert not (tmp_path / "out.csv").exists()


def test_a_file_is_not_converted_onto_itself(write: Write, default_profile: Profile) -> None:
    path = write(HELIOS)
    with pytest.raises(InputError, match="the same file"):
        convert_trace(path, path, options=Options(profile=default_profile))


def test_a_target_that_cannot_be_written_is_an_input_error(
    write: Write, tmp_path: Path, default_profile: Profile
) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        convert_trace(write(HELIOS), tmp_path / "no" / "out.csv", options=Options(profile=default_profile))


@given(st.lists(st.tuples(st.floats(0, 10), st.text(max_size=3), st.just("a"), st.just("b"))), st.integers(1, 7))
def test_lines_are_sorted_in_runs_of_any_length(lines: list[tuple[float, str, str, str]], run: int) -> None:
    assert list(sort_lines(lines, run)) == sorted(lines)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_the_philly_csv_converts_in_300_mb(shared: Shared, tmp_path: Path) -> None:
    assert peak_mb_of_converting(shared("philly-derived/philly.csv"), tmp_path / "out.csv") < 300.0


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_a_long_file_converts_in_300_mb(tmp_path: Path) -> None:
    write_helios(tmp_path / "helios.csv", 300_000)
    assert peak_mb_of_converting(tmp_path / "helios.csv", tmp_path / "out.csv") < 300.0


def peak_mb_of_converting(source: Path, target: Path) -> float:
    """The peak memory in MB of a conversion in a separate process. VmHWM starts at zero; ru_maxrss is inherited."""
    code = (
        "import re, sys\n"
        "from fairlead.traces.formats import Options, convert_trace\n"
        "from fairlead.traces.profiles import load_default_profile\n"
        "convert_trace(sys.argv[1], sys.argv[2], options=Options(profile=load_default_profile()))\n"
        "print(re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read())[1])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, source, target], capture_output=True, text=True, check=True)
    return float(done.stdout) / 1024


def write_helios(path: Path, lines: int) -> None:
    rng = random.Random(1)
    vcs, states = [f"vc{i}" for i in range(25)], ["COMPLETED", "FAILED", "CANCELLED"]
    at = datetime(2020, 4, 1)
    with path.open("w") as file:
        file.write(HELIOS.partition("\n")[0] + "\n")
        for i in range(lines):
            at += timedelta(seconds=rng.randrange(30))
            submit = at - timedelta(seconds=rng.randrange(3000))
            length = int(rng.lognormvariate(6, 2))
            file.write(
                f"{i},u,{rng.choice(vcs)},{rng.choice((0, 1, 1, 1, 2, 4, 8))},4,1,{rng.choice(states)},"
                f"{submit},{submit},{submit + timedelta(seconds=length)},{length},0\n"
            )
