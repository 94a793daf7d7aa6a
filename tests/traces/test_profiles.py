from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairlead.model.errors import InputError
from fairlead.rates.profile import Profile
from fairlead.traces.profiles import format_profile, parse_gavel_table, parse_profile, read_profile

from .conftest import Shared

HEAD = "fairlead: profile/1\nname: small\nmodels:\n  m: {memory_gib: 7.5, restart_s: 20, spread: 0.5}\n---\n"
COLUMNS = "model,gpu,gpus,nodes,batch,rate,unit,source\n"
GOOD = HEAD + COLUMNS + "m,v100,1,1,32,10,steps/s,ours\n"


def test_rates_have_the_unit_in_which_they_were_published() -> None:
    rows = "m,v100,2,1,32,10,steps/s,a\nm,p100,2,1,32,640,samples/s,b\nm,k80,2,1,32,320,samples/s/gpu,c\n"
    profile = parse_profile(HEAD + COLUMNS + rows, "p")
    assert [row.steps_per_s for row in profile.speeds] == [10.0, 10.0, 10.0]
    assert [row.source for row in profile.speeds] == ["a", "b", "c"]


def test_facts_of_a_model_are_in_the_head() -> None:
    facts = parse_profile(GOOD, "p").facts_of("m")
    assert (facts.memory_gib, facts.restart_s, facts.spread) == (7.5, 20.0, 0.5)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("m,v100,1,1,32,nan,steps/s,ours", 'rate is "nan"'),
        ("m,v100,1,1,32,inf,steps/s,ours", 'rate is "inf"'),
        ("m,v100,1,1,32,-1,steps/s,ours", "rate is -1;"),
        ("m,v100,1,1,32,1e300,steps/s,ours", "steps_per_s is 1e+300"),
        ("m,v100,1,1,32,fast,steps/s,ours", 'rate is "fast"'),
        ("m,v100,1,1,0,1,samples/s,ours", "batch is 0"),
        ("m,v100,1,1,nan,1,steps/s,ours", 'batch is "nan"'),
        ("m,v100,0,1,32,1,steps/s,ours", "gpus is 0"),
        ("m,v100,1.5,1,32,1,steps/s,ours", 'gpus is "1.5"'),
        ("m,v100,99999999999999999999,1,32,1,steps/s,ours", "gpus is 99999999999999999999"),
        ("m,v100,1,2,32,1,steps/s,ours", "nodes is 2"),
        ("m,v€100,1,1,32,1,steps/s,ours", 'GPU type "v€100"'),
        ("m,v100,1,1,32,1,steps/h,ours", 'unit "steps/h" is not known; did you mean "steps/s"? (known: samples/s'),
        ("m,v100,1,1,32,1,steps/s,", "source is empty"),
        (",v100,1,1,32,1,steps/s,ours", "model is empty"),
        ("m,v100,1,1", "has 4 fields; wanted 8"),
    ],
)
def test_a_bad_row_is_refused_with_file_and_line(row: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_profile(GOOD + row + "\n", "p.txt")
    assert str(caught.value).startswith("p.txt line 8: ")
    assert says in str(caught.value)


def test_a_repeated_row_is_refused_with_both_lines() -> None:
    with pytest.raises(InputError, match=r"p\.txt line 8: .* is already in line 7"):
        parse_profile(GOOD + "m,v100,1,1,64,11,steps/s,other\n", "p.txt")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (GOOD.replace("7.5", ".nan"), 'line 4: memory_gib is ".nan"'),
        (GOOD.replace("0.5", "2"), "line 4: spread is 2.0"),
        (GOOD.replace("spread", "sprad"), 'line 4: .*unknown key "sprad"; did you mean "spread"'),
        (GOOD.replace("  m:", "  n:"), 'line 4: model "n" has facts but neither rows nor parts'),
        (GOOD.replace("profile/1", "profile/2"), 'line 1: this is a "profile/2" file'),
        (GOOD.replace("fairlead: profile/1\n", ""), "does not begin with fairlead: profile/1"),
        (GOOD.replace("unit", "units"), 'line 6: unknown column "units"; did you mean "unit"'),
        (GOOD.replace(",unit,", ",rate,"), "line 6: column .* must appear once"),
        (HEAD + COLUMNS, "has no rows"),
        ("hello\n", "is not a profile"),
        ("", "is not a profile"),
    ],
)
def test_a_bad_head_is_refused(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        parse_profile(text, "p.txt")


def test_a_written_profile_reads_back_as_the_same(default_profile: Profile) -> None:
    assert parse_profile(format_profile(default_profile), "p") == default_profile


PARTS = """\
fairlead: profile/1
models:
  m:
    restart_s: 20
    parts:
      v100: {batch: 32, forward_s: 0.1, backward_s: 0.2, update_s: 0.05, params_gib: 1, cached: 0.9, load_disk_s: 0.5, source: ours}
      k80: {batch: 8, forward_s: 0.3, backward_s: 0.4, update_s: 0.05, params_gib: 1, loads_ahead: false}
links:
  v100: {link_gib_per_s: 10, net_gib_per_s: 2, source: nccl-tests}
  k80: {link_gib_per_s: 5, net_gib_per_s: 1}
---
"""


def test_parts_and_links_are_in_the_head_and_need_no_rows() -> None:
    profile = parse_profile(PARTS, "p")

    parts = profile.parts["m", "k80"]
    assert (parts.batch, parts.loads_ahead, parts.cached) == (8.0, False, 1.0)
    assert profile.links["v100"].net_gib_per_s == 2.0
    assert profile.known("m", "v100", 2).source == "ours; links: nccl-tests"
    assert profile.facts_of("m").restart_s == 20.0


def test_a_written_profile_with_parts_reads_back_as_the_same() -> None:
    profile = parse_profile(PARTS + COLUMNS + "n,v100,1,1,32,10,steps/s,ours\n", "p")

    assert parse_profile(format_profile(profile), "p") == profile


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("forward_s: 0.1", "forward_s: 0", "line 6: forward_s is 0; wanted a number from 1e-09 to 1e"),
        ("forward_s: 0.1", "forward_s: fast", 'line 6: forward_s is "fast"; wanted a number'),
        ("forward_s: 0.1, ", "", "line 6: parts on v100 lack forward_s; wanted batch, forward_s, backward_s"),
        ("cached: 0.9", "cached: 1.1", "line 6: cached is 1.1; wanted a number from 0 to 1"),
        ("cached: 0.9", "cashed: 0.9", 'line 6: parts on v100 has an unknown key "cashed"; did you mean "cached"'),
        ("loads_ahead: false", "loads_ahead: 2", 'line 7: loads_ahead is "2"; wanted true or false'),
        ("net_gib_per_s: 2", "net_gib_per_s: 0", "line 9: net_gib_per_s is 0; wanted a number from"),
        (
            "  k80: {link",
            "  t4: {link",
            r"line 7: parts on k80, but there are no links of k80; add to the head.*links: \{k80",
        ),
        ("      k80:", "      k 80€:", "line 7: GPU type"),
    ],
)
def test_bad_parts_are_refused_with_file_line_and_remedy(old: str, new: str, says: str) -> None:
    assert old in PARTS
    with pytest.raises(InputError, match=r"p\.txt " + says):
        parse_profile(PARTS.replace(old, new), "p.txt")


def test_gavels_table_gives_whole_job_steps_and_two_nodes_for_unconsolidated(shared: Shared) -> None:
    path = shared("gavel/simulation_throughputs.json")
    cells = json.loads(path.read_text())
    profile = read_profile(path)
    model, batch = "ResNet-50 (batch size 64)", 64
    key = f"('{model}', 4)"
    assert profile.samples_per_s(model, "v100", 4) == batch * cells["v100"][key]["null"]
    assert profile.samples_per_s(model, "p100", 4, 2) == batch * cells["p100_unconsolidated"][key]["null"]
    assert profile.samples_per_step("A3C", 1) == 1.0
    assert {row.gpu for row in profile.speeds} == {"k80", "p100", "v100"}
    assert {row.source for row in profile.speeds} == {"gavel:simulation_throughputs.json"}
    assert len(profile.speeds) == 3 * 83 + (57 + 57 + 51)  # wide rows once more over two nodes; k80 lacks six of them


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"v100": {"(\'m\', 1)": {"null": NaN}}}', "steps_per_s is nan"),
        ('{"v100": {"(\'m\', 1)": {"null": -1}}}', "steps_per_s is -1"),
        ('{"v100": {"(\'m\', 1)": {"null": 1e999}}}', "steps_per_s is inf"),
        ('{"v100": {"(\'m\', 1)": {"null": 1' + "0" * 400 + "}}}", "too large"),
        ('{"v100": {"(\'m\', 1)": {"null": "4"}}}', "'4'; wanted a number"),
        ('{"v100": {"(\'m\', 1)": {}}}', "None; wanted a number"),
        ('{"v100": {"(\'m\', 0)": {"null": 1}}}', "is not understood"),
        ('{"v100": {"m": {"null": 1}}}', 'key "m" of v100 is not understood'),
        ('{"v100": 3}', "v100 is 3; wanted an object"),
        ('{"V 100": {}}', 'GPU type "V 100"'),
        ("{}", "has no speeds"),
        ('{"v100":\n oops}', "line 2: is not JSON"),
    ],
)
def test_a_bad_gavel_table_is_refused_with_its_path(text: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_gavel_table(text, "t.json")
    assert str(caught.value).startswith("t.json")
    assert says in str(caught.value)


def test_a_missing_profile_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_profile(tmp_path / "none")
