"""Every importer on a sample small enough to count by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairlead.model.errors import InputError
from fairlead.rates.profile import Profile
from fairlead.traces.formats import FORMATS, Trace, find_format, read_trace, write_trace
from fairlead.traces.profiles import load_default_profile
from fairlead.traces.stats import trace_stats

from .conftest import Shared, Write

HELIOS = """job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
11,u1,vcA,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-09 20:41:01,7200,0
12,u2,vcB,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:42:27,2020-06-09 19:12:27,1800,60
13,u2,vcB,0,16,1,COMPLETED,2020-06-09 18:41:28,2020-06-09 18:41:28,2020-06-09 18:45:36,248,0
14,u1,vcA,8,16,1,CANCELLED,2020-06-09 18:41:29,2020-06-09 18:41:29,2020-06-09 18:41:29,0,0
10,u3,vcA,16,64,2,TIMEOUT,2020-06-09 18:40:01,2020-06-09 19:41:01,2020-06-09 20:11:01,1800,3660
"""  # 1 x 2 h + 4 x 0.5 h + 16 x 0.5 h = 12 GPU-hours

ACME = """job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time
a,u1,1.0,8,64,Pretrain,COMPLETED,2023-03-01 00:00:00+08:00,2023-03-01 00:00:00+08:00,2023-03-01 01:00:00+08:00,3600.0,0.0,28800.0
b,u2,0.0,0,8,Other,COMPLETED,2023-03-01 00:00:00+08:00,,,10.0,0.0,0.0
c,u2,2.0,16,64,SFT,FAILED,2023-02-28 16:30:00+00:00,2023-02-28 16:30:00+00:00,2023-02-28 18:30:00+00:00,7200.0,0.0,115200.0
"""  # 8 + 32 GPU-hours; the second was submitted half an hour after the first, in another zone

PAI = """j1,worker,2.0,Terminated,1000.0,8200.0,600.0,29.3,100.0,V100M32
j2,ps,1.0,Terminated,500.0,2300.0,600.0,29.3,,
j2,worker,3.0,Terminated,500.0,2300.0,600.0,29.3,50.0,MISC
j3,worker,1.0,Failed,700.0,4300.0,600.0,29.3,25.0,T4
j4,worker,1.0,Running,900.0,,600.0,29.3,100.0,P100
j5,cpu,1.0,Terminated,900.0,1000.0,600.0,29.3,0.0,CPU
j1,evaluator,1.0,Terminated,1000.0,1600.0,600.0,29.3,100.0,V100M32
"""  # j1 3 GPUs x 2 h, j2 1.5 -> 2 GPUs x 0.5 h, j3 0.25 -> 1 GPU x 1 h: 8 GPU-hours
PAI_JOBS = """j1,i1,alice,Terminated,900.0,8200.0
j2,i2,bob,Terminated,100.0,2300.0
j3,i3,bob,Failed,700.0,4300.0
j9,i9,eve,Failed,700.0,4300.0
"""

OPENB = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p0,12000,16384,1,1000,,LS,Running,0,7200,0
p1,6000,12288,1,460,V100M16|V100M32,LS,Succeeded,100,3700,100
p2,6000,12288,0,0,,LS,Succeeded,100,3700,100
p3,6000,12288,2,1000,G2,BE,Failed,200,2100,300
"""  # 2 + 1 + 2 x 0.5 = 4 GPU-hours

PHILLY: list[dict[str, Any]] = [
    {"status": "Pass", "vc": "ee9e8c", "jobid": "application_1_2", "user": "ce2c1f", "submitted_time": "2017-10-09 07:00:00",
     "attempts": [{"start_time": "2017-10-09 07:02:55", "end_time": "2017-10-09 08:02:55", "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu6", "gpu7"]}]}]},
    {"status": "Failed", "vc": "ee9e8c", "jobid": "application_1_3", "user": "ce2c1f", "submitted_time": "2017-10-09 06:00:00",
     "attempts": [{"start_time": "2017-10-09 07:00:00", "end_time": "2017-10-09 08:00:00", "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]},
                  {"start_time": "2017-10-09 09:00:00", "end_time": "2017-10-09 09:30:00", "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]},
    {"status": "Killed", "vc": "11cb48", "jobid": "application_1_4", "user": "x", "submitted_time": "2017-10-09 09:00:00", "attempts": []},
    {"status": "Killed", "vc": "11cb48", "jobid": "application_1_5", "user": "x", "submitted_time": "2017-10-09 09:00:00",
     "attempts": [{"start_time": "2017-10-09 09:00:00", "end_time": "None", "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]},
    {"status": "Killed", "vc": "11cb48", "jobid": "application_1_6", "user": "x", "submitted_time": "2017-10-09 09:00:00",
     "attempts": [{"start_time": "2017-10-09 09:00:00", "end_time": "2017-10-09 09:10:00", "detail": []}]},
]  # 4 x 1 h; (2 x 1 h + 1 x 0.5 h) on 1 GPU: 6.5 GPU-hours  # fmt: skip

POLLUX = "name,time,application,num_replicas,batch_size\ncifar10-0,107,cifar10,2,256\nimagenet-1,300,imagenet,8,1600\n"

SACCT = """JobID|User|Account|State|Submit|Start|End|Elapsed|ElapsedRaw|AllocTRES|ReqTRES
100|ann|vision|COMPLETED|2024-01-02T03:04:05|2024-01-02T03:05:05|2024-01-02T05:05:05|02:00:00|7200|billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=64G,node=1|cpu=8,gres/gpu=4
100.batch|||COMPLETED|2024-01-02T03:05:05|||02:00:00|7200|cpu=8,gres/gpu:a100=4,gres/gpu=4|
101_7|bob|nlp|CANCELLED by 1001|2024-01-02T03:00:05|||00:30:00|1800|billing=8,cpu=8,gres/gpu:tesla_v100-sxm2-16gb=2,gres/gpu=2|gres/gpu:tesla_v100-sxm2-16gb=2
102|bob|nlp|RUNNING|2024-01-02T03:00:05|||00:30:00|1800|gres/gpu=2|gres/gpu=2
103|bob|nlp|COMPLETED|2024-01-02T03:00:05|||00:30:00|1800|cpu=2,mem=1G|cpu=2
104|eve||TIMEOUT|2024-01-02T03:00:06|||1-00:00:00||gres/gpu:h100=1|
"""  # 8 + 1 + 24 = 33 GPU-hours

SACCT_JSON = {
    "meta": {"plugin": {"name": "openapi/slurmdbd"}},
    "jobs": [
        {"job_id": 100, "account": "vision", "user": "ann", "state": {"current": ["COMPLETED"], "reason": "None"},
         "time": {"submission": 1704164645, "start": 1704164705, "end": 1704171905, "elapsed": 7200},
         "tres": {"allocated": [{"type": "cpu", "name": "", "id": 1, "count": 8}, {"type": "gres", "name": "gpu", "id": 1001, "count": 4},
                                {"type": "gres", "name": "gpu:a100", "id": 1002, "count": 4}],
                  "requested": [{"type": "gres", "name": "gpu", "id": 1001, "count": 4}]}},
        {"job_id": 101, "account": "", "user": "bob", "state": {"current": "FAILED"},
         "time": {"submission": {"set": True, "number": 1704164405}, "elapsed": {"set": True, "number": 1800}},
         "tres": {"allocated": [{"type": "gres", "name": "gpu:v100", "count": {"set": True, "number": 2}}],
                  "requested": [{"type": "gres", "name": "gpu:v100", "count": 2}]}},
        {"job_id": 102, "account": "nlp", "state": {"current": ["PENDING"]}, "time": {"submission": 1704164405, "elapsed": 0}, "tres": {"allocated": []}},
        {"job_id": 103, "account": "nlp", "state": {"current": ["COMPLETED"]}, "time": {"submission": 1704164405, "elapsed": 10}, "tres": {"allocated": []}},
    ],
}  # 8 + 1 = 9 GPU-hours  # fmt: skip


def gpu_hours(trace: Trace, profile: Profile) -> float:
    return trace_stats(trace, profile, reference="v100").gpu_hours


@pytest.mark.parametrize(
    ("name", "text", "jobs", "hours", "tenants"),
    [
        ("helios", HELIOS, {"10": 16, "11": 1, "12": 4}, 12.0, {"vcA", "vcB"}),
        ("acme", ACME, {"a": 8, "c": 16}, 40.0, {"u1", "u2"}),
        ("pai", PAI, {"j1": 3, "j2": 2, "j3": 1}, 8.0, {"default"}),
        ("pollux", POLLUX, {"cifar10-0": 2, "imagenet-1": 8}, None, {"default"}),
        ("openb", OPENB, {"p0": 1, "p1": 1, "p3": 2}, 4.0, {"default"}),
        ("philly-json", json.dumps(PHILLY, indent=1), {"application_1_2": 4, "application_1_3": 1}, 6.5, {"ee9e8c"}),
        ("sacct", SACCT, {"100": 4, "101_7": 2, "104": 1}, 33.0, {"vision", "nlp", "eve"}),
        ("sacct-json", json.dumps(SACCT_JSON), {"100": 4, "101": 2}, 9.0, {"vision", "bob"}),
    ],
)
def test_a_sample_counted_by_hand_is_detected_and_read(
    write: Write,
    default_profile: Profile,
    name: str,
    text: str,
    jobs: dict[str, int],
    hours: float | None,
    tenants: set[str],
) -> None:
    trace = read_trace(write(text), profile=default_profile, reference="v100")
    assert trace.format == name
    assert {job.id: job.gpus for job in trace.jobs} == jobs
    assert hours is None or gpu_hours(trace, default_profile) == pytest.approx(hours)
    assert {job.tenant for job in trace.jobs} == tenants
    assert list(trace.jobs) == sorted(trace.jobs, key=lambda job: (job.arrival_s, job.id))


@pytest.mark.parametrize("text", [HELIOS, ACME, PAI, OPENB, json.dumps(PHILLY), SACCT, json.dumps(SACCT_JSON), POLLUX])
def test_what_was_imported_reads_back_from_our_own_format(
    write: Write, tmp_path: Path, default_profile: Profile, text: str
) -> None:
    trace = read_trace(write(text), profile=default_profile)
    write_trace(trace, tmp_path / "t.csv")
    again = read_trace(tmp_path / "t.csv", profile=default_profile)
    assert again.jobs == trace.jobs
    assert again.notes == trace.notes
    assert any(f"format {trace.format}" in note for note in again.notes)


def test_every_format_is_known_by_exactly_its_own_samples() -> None:
    samples = {
        "helios": HELIOS, "acme": ACME, "pai": PAI, "openb": OPENB, "philly-json": json.dumps(PHILLY), "sacct": SACCT,
        "sacct-json": json.dumps(SACCT_JSON), "pollux": POLLUX,
        "philly-csv": "timestamp,duration,num_gpus,gpu_time,cluster\n", "fairlead": "# fairlead: trace/1\n",
        "gavel": "a\t" * 9 + "b\n",
    }  # fmt: skip
    assert {known.name for known in FORMATS} == set(samples)
    for known in FORMATS:
        assert [name for name, text in samples.items() if known.detect(text)] == [known.name]
        assert find_format(known.name) is known


def test_what_is_left_out_is_counted_by_reason(write: Write, default_profile: Profile) -> None:
    notes = read_trace(write(HELIOS), profile=default_profile).notes
    assert "left out: 1 record, asked for no GPU" in notes
    assert "left out: 1 record, ran for no time" in notes


@pytest.mark.parametrize(
    ("text", "completed"),
    [
        (HELIOS, {"11"}),
        (ACME, {"a"}),
        (PAI, {"j1", "j2"}),
        (OPENB, {"p0", "p1"}),
        (json.dumps(PHILLY), {"application_1_2"}),
        (SACCT, {"100"}),
        (json.dumps(SACCT_JSON), {"100"}),
    ],
)
def test_jobs_that_did_not_complete_may_be_dropped(
    write: Write, default_profile: Profile, text: str, completed: set[str]
) -> None:
    trace = read_trace(write(text), profile=default_profile, completed_only=True)
    assert {job.id for job in trace.jobs} == completed


def test_acme_times_carry_their_zone(write: Write, default_profile: Profile) -> None:
    trace = read_trace(write(ACME), profile=default_profile)
    assert [(job.id, job.arrival_s) for job in trace.jobs] == [("a", 0.0), ("c", 1800.0)]


def test_pai_users_and_submissions_come_from_the_job_table_next_to_it(tmp_path: Path, default_profile: Profile) -> None:
    (tmp_path / "pai_task_table.csv").write_text(PAI)
    (tmp_path / "pai_job_table.csv").write_text(PAI_JOBS)
    trace = read_trace(tmp_path / "pai_task_table.csv", profile=default_profile)
    assert [(job.id, job.tenant, job.arrival_s) for job in trace.jobs] == [
        ("j2", "bob", 0.0),
        ("j3", "bob", 600.0),
        ("j1", "alice", 800.0),
    ]


def test_a_broken_job_table_is_named_in_the_error(tmp_path: Path, default_profile: Profile) -> None:
    (tmp_path / "pai_task_table.csv").write_text(PAI)
    (tmp_path / "pai_job_table.csv").write_text("j1,i1,alice\n")
    with pytest.raises(InputError, match=r"pai_job_table\.csv line 1"):
        read_trace(tmp_path / "pai_task_table.csv", profile=default_profile)


def test_types_are_pinned_only_on_request(write: Write, default_profile: Profile) -> None:
    free = read_trace(write(PAI), profile=default_profile)
    pinned = read_trace(write(PAI), profile=default_profile, pin_types=True)
    assert {job.types for job in free.jobs} == {()}
    assert {job.id: job.types for job in pinned.jobs} == {"j1": ("v100-32",), "j2": ("k80",), "j3": ("t4",)}


def test_openb_pods_keep_the_types_they_ask_for(write: Write, default_profile: Profile) -> None:
    trace = read_trace(write(OPENB), profile=default_profile, aliases={"G2": "t4"})
    assert {job.id: job.types for job in trace.jobs} == {"p0": (), "p1": ("v100", "v100-32"), "p3": ("t4",)}


def test_slurm_jobs_keep_the_types_they_ask_for_by_name(write: Write, default_profile: Profile) -> None:
    trace = read_trace(write(SACCT), profile=default_profile)
    assert {job.id: job.types for job in trace.jobs} == {"100": (), "101_7": ("v100",), "104": ()}


def test_a_duration_becomes_steps_on_the_type_that_the_job_ran_on(write: Write, default_profile: Profile) -> None:
    trace = read_trace(write(SACCT), profile=default_profile)
    job = next(job for job in trace.jobs if job.id == "100")
    assert job.steps is not None
    samples = job.steps * default_profile.samples_per_step(job.model, 4)
    assert samples / default_profile.samples_per_s(job.model, "a100", 4) == pytest.approx(7200)


def test_a_pollux_job_is_trained_for_the_samples_of_its_application(write: Write, default_profile: Profile) -> None:
    job = read_trace(write(POLLUX), profile=default_profile).jobs[0]
    assert (job.model, job.steps) == ("resnet18-cifar10", 39_062 * 128 / (2 * 128))


def test_openb_counts_agree_with_the_published_ones(shared: Shared, default_profile: Profile) -> None:
    trace = read_trace(shared("alibaba-v2023/openb_pod_list_gpuspec33.csv"), profile=default_profile)
    assert trace.format == "openb"
    left_out = sum(int(note.split()[2]) for note in trace.notes if note.startswith("left out"))
    assert len(trace.jobs) + left_out == 8152
    assert sum(int(note.split()[2]) for note in trace.notes if "no GPU" in note) == 8152 - 7064


HEAD = HELIOS.partition("\n")[0] + "\n"
GOOD = "1,u,v,1,1,1,COMPLETED,2020-06-09 18:41:01,,,60,0\n"


@pytest.mark.parametrize(
    ("name", "text", "line", "says"),
    [
        ("helios", HEAD + GOOD + GOOD, 3, 'job id "1" appears twice'),
        ("helios", HEAD + GOOD.replace(",60,", ",nan,"), 2, 'duration is "nan"'),
        ("helios", HEAD + GOOD.replace(",60,", ",-60,"), 2, "duration is -60 s"),
        ("helios", HEAD + GOOD.replace("v,1,", "v,-1,"), 2, "runs on -1 x v100"),
        ("helios", HEAD + GOOD.replace("v,1,", "v,1.5,"), 2, 'gpu_num is "1.5"'),
        ("helios", HEAD + GOOD.replace("v,1,", "v,999999999,"), 2, "gpus is 999999999"),
        ("helios", HEAD + GOOD.replace("2020-06-09", "2020-16-09"), 2, "is not understood"),
        ("helios", "job_id,vc\n", 1, 'has no column "user"'),
        ("acme", ACME + "d,u\n", 5, "has 2 fields; wanted 13"),
        ("pai", PAI + "j7,w,1.0,Terminated,x,5.0,1,1,100.0,T4\n", 8, 'start_time is "x"'),
        ("pai", PAI + "j7,w,1.0,Terminated,9.0,5.0,1,1,100.0,T4\n", 8, "duration is -4 s"),
        ("pai", PAI + "j7,w,1.0,Terminated,9.0,15.0,1,1,-100.0,T4\n", 8, "plan_gpu is -100"),
        ("pai", PAI + "j7\n", 8, "has 1 fields; wanted 10"),
        ("openb", OPENB + "p9,1,1,1,1,,LS,Running,later,10,0\n", 6, 'creation_time is "later"'),
        ("pollux", POLLUX + "x-1,5,alexnet,1,8\n", 4, 'application "alexnet" is not known'),
        ("sacct", SACCT + "105|a|b|COMPLETED|Unknown|||00:01:00|60|gres/gpu=1|\n", 8, 'time "Unknown"'),
        ("sacct", SACCT + "105|a|b|COMPLETED|2024-01-02T03:04:05|||soon||gres/gpu=1|\n", 8, "neither ElapsedRaw nor"),
        ("philly-json", '[\n{"jobid": "a", "attempts": []}\n]', 2, "submitted_time is None"),
        ("philly-json", '[{"jobid": 1},\n 5]', 1, "submitted_time is None"),
        ("sacct-json", '{"jobs": [\n {"job_id": 5}]}', 2, "is not a job of sacct --json"),
    ],
)
def test_a_bad_record_is_refused_with_file_and_line_or_skipped_and_counted(
    write: Write, default_profile: Profile, name: str, text: str, line: int, says: str
) -> None:
    path = write(text)
    with pytest.raises(InputError) as caught:
        read_trace(path, name, profile=default_profile)
    assert str(caught.value).startswith(f"{path} line {line}: ")
    assert says in str(caught.value)
    if line > 1:
        notes = read_trace(path, name, profile=default_profile, skip_bad_lines=True).notes
        assert any(note.startswith("skipped 1 bad line") for note in notes)


@pytest.mark.parametrize("text", ['[{"jobid": "a"', '[{"jobid": "a"}, oops]', '{"jobs": [{]}'])
def test_broken_json_is_refused_without_a_traceback(write: Write, default_profile: Profile, text: str) -> None:
    with pytest.raises(InputError, match="line 1"):
        read_trace(write(text), profile=default_profile)


def test_a_long_json_log_is_read_in_pieces(write: Write, default_profile: Profile) -> None:
    jobs = [{**PHILLY[0], "jobid": f"job-{i}"} for i in range(3000)]
    trace = read_trace(write(json.dumps(jobs, indent=2)), profile=default_profile)
    assert len(trace.jobs) == 3000


def test_a_slurm_job_over_two_nodes_takes_as_long_again_over_two_nodes(write: Write, default_profile: Profile) -> None:
    path = write(
        "JobID|Account|State|Submit|ElapsedRaw|AllocTRES\n"
        "7|nlp|COMPLETED|2024-01-02T03:04:05|7200|gres/gpu:v100=8,gres/gpu=8,node=2\n"
    )
    (job,) = read_trace(path, profile=default_profile).jobs
    assert job.steps is not None
    samples = job.steps * default_profile.samples_per_step(job.model, 8)
    assert samples / default_profile.samples_per_s(job.model, "v100", 8, 2) == pytest.approx(7200.0)


def test_an_unknown_gpu_type_is_noted_with_its_jobs(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(SACCT.replace("gpu:a100=", "gpu:rtx9000=").replace("gpu:h100=", "gpu:rtx9000="), encoding="utf-8")

    notes = read_trace(path, profile=load_default_profile()).notes
    named = read_trace(path, profile=load_default_profile(), aliases={"rtx9000": "a100"}).notes

    (warning,) = [note for note in notes if "rtx9000" in note]
    assert warning.startswith("2 jobs ran on rtx9000, whose speeds are not known; durations count as measured on v100")
    assert not [note for note in named if "rtx9000" in note]


def test_jobs_that_did_not_complete_are_counted_by_how_they_ended(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(SACCT, encoding="utf-8")

    (ended,) = [note for note in read_trace(path, profile=load_default_profile()).notes if "did not complete" in note]

    assert "1 cancelled, 1 timeout" in ended
