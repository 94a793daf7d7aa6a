from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.errors import InputError
from fairlead.model.jobs import JobSpec
from fairlead.rates.profile import Profile
from fairlead.traces.formats import Trace, read_trace, write_trace
from fairlead.traces.profiles import read_profile

from .conftest import Shared, Write

OWN = "# fairlead: trace/1\n# name: two jobs\n# note: made by hand\nid,tenant,model,arrival_s,gpus,steps,widths,types,weight,relaxed\n"
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
GAVEL = "A3C\tpython3 main.py\trl\t--max-steps\t0\t25832\t2\t1\t-1.000000\t86\n"


@pytest.fixture(scope="session")
def gavel(shared: Shared) -> Profile:
    return read_profile(shared("gavel/simulation_throughputs.json"))


def test_our_own_csv_describes_a_job_completely(write: Write) -> None:
    text = OWN + "b,vision,resnet50,360.5,4,12000,2|4|8,v100|a100,2.0,true\na,text,bert-large,0,1,,,,,\n"
    trace = read_trace(write(text))
    assert trace.jobs == (
        JobSpec("a", "text", "bert-large", 0.0, 1, None),
        JobSpec("b", "vision", "resnet50", 360.5, 4, 12000.0, (2, 4, 8), ("v100", "a100"), 2.0, True),
    )
    assert (trace.name, trace.format, trace.notes) == ("two jobs", "fairlead", ("made by hand",))
    assert trace.sha256 == hashlib.sha256(text.encode()).hexdigest()


def test_columns_that_have_a_default_may_be_left_out(write: Write) -> None:
    trace = read_trace(write("id,model,arrival_s,gpus\n7,resnet50,5,2\n"))
    assert trace.jobs == (JobSpec("7", "default", "resnet50", 5.0, 2, None),)


def test_an_empty_trace_is_a_trace(write: Write) -> None:
    assert read_trace(write(OWN)).jobs == ()


NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
JOBS = st.builds(
    JobSpec,
    id=NAMES,
    tenant=NAMES,
    model=NAMES,
    arrival_s=st.floats(0, 1e9),
    gpus=st.just(4),
    steps=st.none() | st.floats(1e-3, 1e15),
    widths=st.sampled_from([(), (4,), (1, 4), (2, 4, 8)]),
    types=st.sampled_from([(), ("v100",), ("v100", "a100-80")]),
    weight=st.floats(1e-3, 1e6),
    relaxed=st.booleans(),
)


@settings(max_examples=200)
@given(st.lists(JOBS, max_size=5, unique_by=lambda job: job.id))
def test_a_written_trace_reads_back_exactly(tmp_path_factory: pytest.TempPathFactory, jobs: list[JobSpec]) -> None:
    path = tmp_path_factory.mktemp("trace") / "t.csv"
    jobs.sort(key=lambda job: (job.arrival_s, job.id))
    write_trace(Trace(tuple(jobs), "name", "generated", notes=("one", "two")), path)
    trace = read_trace(path)
    assert trace.jobs == tuple(jobs)
    assert (trace.name, trace.notes) == ("name", ("one", "two"))


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("a,t,m,nan,1,5,,,1,", 'arrival_s is "nan"'),
        ("a,t,m,-1,1,5,,,1,", "arrival_s is -1.0"),
        ("a,t,m,1e300,1,5,,,1,", "arrival_s is 1e+300"),
        ("a,t,m,0,0,5,,,1,", "gpus is 0"),
        ("a,t,m,0,-2,5,,,1,", "gpus is -2"),
        ("a,t,m,0,1.5,5,,,1,", 'gpus is "1.5"'),
        ("a,t,m,0,1,0,,,1,", "steps is 0.0"),
        ("a,t,m,0,1,inf,,,1,", 'steps is "inf"'),
        ("a,t,m,0,1,5,2|1,,1,", "widths (2, 1) must ascend"),
        ("a,t,m,0,1,5,1|x,,1,", 'widths is "x"'),
        ("a,t,m,0,1,5,,,0,", "weight is 0.0"),
        ("a,t,m,0,1,5,,,1,maybe", 'relaxed is "maybe"; wanted true or false'),
        ("a,t,,0,1,5,,,1,", "model is empty"),
        (",t,m,0,1,5,,,1,", "id is empty"),
        ("a,t,m,0", "has 4 fields; wanted 10"),
        ("ok,t,m,0,1,5,,,1,", 'job id "ok" appears twice'),
    ],
)
def test_a_bad_line_is_refused_with_file_and_line(write: Write, row: str, says: str) -> None:
    path = write(OWN + "ok,t,m,0,1,5,,,1,\n" + row + "\n")
    with pytest.raises(InputError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path} line 6: ")
    assert says in str(caught.value)


def test_bad_lines_may_be_skipped_and_are_counted(write: Write) -> None:
    path = write(OWN + "a,t,m,nan,1,5,,,1,\nb,t,m,0,1,5,,,1,\nc,t\n")
    trace = read_trace(path, skip_bad_lines=True)
    assert [job.id for job in trace.jobs] == ["b"]
    assert (
        trace.notes[-1] == f'skipped 2 bad lines, the first: {path} line 5: arrival_s is "nan"; wanted a finite number'
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("id,model,arrival_s,gpsu\n", 'line 1: unknown column "gpsu"; did you mean "gpus"'),
        ("id,model,arrival_s\n", 'line 1: has no column "gpus"'),
        ("id,id,model,arrival_s,gpus\n", 'line 1: column "id" appears twice'),
        ("# fairlead: trace/9\nid,model,arrival_s,gpus\n", 'line 1: this is a "trace/9" file'),
        ("hello\n", "is in no known format"),
        ("", "is empty; wanted a trace"),
    ],
)
def test_a_file_that_is_not_a_trace_is_refused_even_when_bad_lines_are_skipped(
    write: Write, text: str, says: str
) -> None:
    with pytest.raises(InputError, match=says):
        read_trace(write(text), skip_bad_lines=True)


def test_an_unknown_format_is_refused_with_the_nearest(write: Write) -> None:
    with pytest.raises(InputError, match='"gavle" is not known; did you mean "gavel"'):
        read_trace(write(GAVEL), "gavle")


def test_a_gavel_line_of_ten_fields_is_read(write: Write) -> None:
    trace = read_trace(write(GAVEL))
    assert trace.format == "gavel"
    assert trace.jobs == (JobSpec("0", "default", "A3C", 86.0, 2, 12916.0),)


def test_a_shockwave_line_of_twelve_fields_is_read(write: Write) -> None:
    line = "LM (batch size 10)\tpython3 main.py\tlm\t--steps\t1\t134583\t1\tgns\t3\t-1.000000\t1418\t55\n"
    trace = read_trace(write(line), "shockwave")
    assert trace.jobs == (JobSpec("0", "default", "LM (batch size 10)", 55.0, 1, 134583.0, weight=3.0),)


def test_an_older_gavel_line_of_seven_fields_is_read(write: Write) -> None:
    trace = read_trace(write("LM (batch size 5)\tcd %s && python3 x.py\t-step\t1\t27788\t6.000000\t4\n"))
    assert trace.jobs == (JobSpec("0", "default", "LM (batch size 5)", 6.0, 4, 6947.0),)


@pytest.mark.parametrize(
    ("name", "jobs", "gpus"),
    [
        ("gavel/traces/generated/g120_l600_s0.trace", 120, 120),
        ("gavel/traces/msr_seed0/51b7ef.trace", 18, None),
        ("shockwave/120_0.2_5_100_40_25_0,0.5,0.5_0.6,0.3,0.09,0.01_multigpu_dynamic.trace", 120, None),
    ],
)
def test_published_traces_are_read_whole(
    shared: Shared, gavel: Profile, name: str, jobs: int, gpus: int | None
) -> None:
    trace = read_trace(shared(name), profile=gavel)
    assert len(trace.jobs) == jobs
    assert gpus is None or sum(job.gpus for job in trace.jobs) == gpus
    assert list(trace.jobs) == sorted(trace.jobs, key=lambda job: (job.arrival_s, job.id))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (GAVEL.replace("25832", "nan"), 'total_steps is "nan"'),
        (GAVEL.replace("25832", "0"), "steps is 0.0"),
        (GAVEL.replace("25832", "-5"), "steps is -2.5"),
        (GAVEL.replace("\t2\t", "\t0\t"), "scale_factor is 0"),
        (GAVEL.replace("\t86", "\tsoon"), 'arrival_time is "soon"'),
        (GAVEL.replace("\trl", ""), "has 9 tab-separated fields"),
    ],
)
def test_a_bad_gavel_line_is_refused_with_file_and_line(write: Write, line: str, says: str) -> None:
    path = write(GAVEL + line)
    with pytest.raises(InputError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path} line 2: ")
    assert says in str(caught.value)


def test_a_gavel_model_without_speeds_is_refused_with_a_remedy(write: Write, default_profile: Profile) -> None:
    with pytest.raises(InputError, match=r'line 1: model "A3C" is not in profile "default".*--throughputs'):
        read_trace(write(GAVEL), profile=default_profile)


def test_tenants_are_dealt_out_by_seed_where_a_trace_has_none(shared: Shared, gavel: Profile) -> None:
    path = shared("gavel/traces/generated/g300_static_s0.trace")
    one, same, other = (read_trace(path, profile=gavel, tenants=4, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert {job.tenant for job in one.jobs} == {"tenant-1", "tenant-2", "tenant-3", "tenant-4"}
    assert [job.tenant for job in one.jobs] != [job.tenant for job in other.jobs]
    assert any(note.startswith("tenant: one of 4") for note in one.notes)


def test_philly_jobs_get_a_model_and_the_steps_of_their_duration_on_a_v100(
    write: Write, default_profile: Profile
) -> None:
    path = write(PHILLY + "2017-10-09 07:01:55,3600.0,4,14400,11cb48\n2017-10-09 06:01:55,66.0,1,66.0,6214e9\n")
    trace = read_trace(path, profile=default_profile)
    first, second = trace.jobs
    assert (first.id, first.tenant, first.arrival_s, first.gpus) == ("1", "6214e9", 0.0, 1)
    assert (second.id, second.tenant, second.arrival_s, second.gpus) == ("0", "11cb48", 3600.0, 4)
    assert second.steps is not None
    samples = second.steps * default_profile.samples_per_step(second.model, 4)
    assert samples / default_profile.samples_per_s(second.model, "v100", 4) == pytest.approx(3600.0)
    assert any("2017-10-09T06:01:55Z" in note for note in trace.notes)


def test_a_jobs_model_does_not_depend_on_what_else_the_file_holds(write: Write, default_profile: Profile) -> None:
    rows = ["2017-10-09 07:01:55,60.0,1,60,a\n"] * 30
    whole = {job.id: job.model for job in read_trace(write(PHILLY + "".join(rows)), profile=default_profile).jobs}
    rows[5] = "broken\n"
    rest = read_trace(write(PHILLY + "".join(rows)), profile=default_profile, skip_bad_lines=True)
    assert {job.id: job.model for job in rest.jobs} == {id_: model for id_, model in whole.items() if id_ != "5"}


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("soon,66.0,1,66.0,c", 'time "soon" is not understood'),
        ("2017-10-09 07:01:55,nan,1,66.0,c", 'duration is "nan"'),
        ("2017-10-09 07:01:55,0,1,66.0,c", "steps is 0.0"),
        ("2017-10-09 07:01:55,-5,1,66.0,c", "steps is -"),
        ("2017-10-09 07:01:55,66,0,66.0,c", "runs on 0 x v100"),
        ("1917-10-09 07:01:55,66,1,66.0,c", "arrival_s is -"),
    ],
)
def test_a_bad_philly_line_is_refused_with_file_and_line(
    write: Write, default_profile: Profile, row: str, says: str
) -> None:
    path = write(PHILLY + row + "\n")
    with pytest.raises(InputError) as caught:
        read_trace(path, profile=default_profile)
    assert str(caught.value).startswith(f"{path} line 2: ")
    assert says in str(caught.value)


def test_a_time_zone_shifts_clock_changes_and_must_be_known(write: Write, default_profile: Profile) -> None:
    path = write(PHILLY + "2017-11-04 12:00:00,66,1,66,c\n2017-11-05 12:00:00,66,1,66,c\n")
    plain = read_trace(path, profile=default_profile)
    zoned = read_trace(path, profile=default_profile, timezone="America/Los_Angeles")
    assert [trace.jobs[1].arrival_s for trace in (plain, zoned)] == [86400.0, 90000.0]
    with pytest.raises(InputError, match='time zone "Mars" is not known'):
        read_trace(path, profile=default_profile, timezone="Mars")


def test_the_whole_philly_csv_is_read(shared: Shared, default_profile: Profile) -> None:
    trace = read_trace(shared("philly-derived/philly.csv"), profile=default_profile)
    assert len(trace.jobs) == 82_247
    assert len({job.tenant for job in trace.jobs}) == 15
    assert max(job.gpus for job in trace.jobs) == 128


def test_a_missing_trace_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_trace(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("100|ann|COMPLETED|2024-01-02T03:04:05|gres/gpu=1\n", "without its line of column names"),
        ("JobID,State,Submit,AllocTRES\n100,COMPLETED,2024-01-02T03:04:05,gres/gpu=1\n", "sacct with commas"),
    ],
)
def test_a_file_that_is_nearly_a_trace_gets_its_own_message(write: Write, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_trace(write(text))
