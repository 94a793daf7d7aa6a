"""Reads a journal as text and reports what is wrong with it.

Nothing of the product is imported: the checker knows the file format and the rules, so that a bug in the state or in the
engine cannot hide from it. The log of a service is *live*: commands are answered later or not at all, and work is what
jobs report, so that it is not recounted from rates.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlead.studies.policy_lab.pre_emption_recount import PreemptionRecount, limits_of
from fairlead.studies.policy_lab.reason_checker import NodesNow, check_reason, types_that_run

SAME = 1e-6  # relative, for samples that are counted in two different ways
DEVIATIONS = 8.0  # standard deviations by which a noisy report may be wrong
BOUNDARY = 1e-6  # in rounds: how far from a multiple of the round a round may be decided


class BadJournalError(AssertionError):
    """The journal shows something that must not happen."""


@dataclass
class JobReport:
    """What the journal has reported about one job."""

    spec: dict[str, Any]
    holds: dict[str, int] = field(default_factory=dict)  # node -> GPUs
    mean_gpus: list[float] = field(default_factory=list)  # by type, if GPUs go from job to job with every task
    since_s: float = math.inf
    rate: float = 0.0
    resume_s: float = 0.0
    at_start: float = 0.0  # samples at its last start
    saved: float = 0.0  # samples that are certain to be in a checkpoint
    doubt: float = 0.0  # largest relative error of `rate`, if it comes from a noisy report
    done: float = 0.0
    reason: str = ""  # why it waits, as the last decision that had a new one said
    asked_to: str = ""  # "start", "stop" or "move" until the engine has answered
    starts: int = 0
    first_start_s: float = math.inf
    end_s: float | None = None
    is_held: bool = False  # by its owner
    pauses: bool = False  # after starts that came to nothing, until it is released
    attained_gpu_s: float = 0.0


@dataclass
class Checked:
    """The contents of a journal that passed all checks."""

    header: dict[str, Any]
    jobs: dict[str, JobReport]
    records: Counter[str]
    causes: Counter[str]


def check_journal(path: Path, asked: Mapping[str, float] | None = None, *, all_finish: bool = True) -> Checked:
    """Raise at the first mistake. `asked` are the true samples by job, if the caller knows them."""
    lines = path.read_text(encoding="utf-8").splitlines()
    checker = _Checker(json.loads(lines[0]), asked)
    for number, line in enumerate(lines[1:], start=2):
        try:
            checker.read(json.loads(line))
        except BadJournalError as error:
            raise BadJournalError(f"line {number}: {error}\n{line}") from None
    checker.close(all_finish=all_finish)
    return Checked(checker.header, checker.jobs, checker.records, checker.causes)


def need(holds: bool, complaint: str) -> None:
    if not holds:
        raise BadJournalError(complaint)


class _Checker:
    def __init__(self, header: dict[str, Any], asked: Mapping[str, float] | None) -> None:
        need(header["fairlead"] in ("journal/1", "journal/2"), "the first line is not a header")
        cluster = header["cluster"]
        self.header = header
        self.live = "engine" in header
        self.cluster = {name: list(column) for name, column in cluster.items()}
        self.asked = asked
        self.jobs: dict[str, JobReport] = {}
        self.records: Counter[str] = Counter()
        self.causes: Counter[str] = Counter()
        self.now_s = 0.0
        self.size = dict(zip(cluster["nodes"], cluster["node_gpus"], strict=True))
        self.type_of = dict(zip(cluster["nodes"], cluster["node_type"], strict=True))
        self.usable = dict(self.size)
        self.unexplained: dict[str, set[str]] = {}  # jobs lost while their nodes are up -> these nodes
        self.down: set[str] = set()
        self.used: Counter[str] = Counter()
        self.round_s = header["settings"]["round_s"]
        self.min_run_s = header["settings"]["min_run_s"]
        self.pre_emptions = PreemptionRecount(header)
        self.capacity = Counter[int]()
        for node, t in self.type_of.items():
            self.capacity[t] += self.size[node]
        self.slice_gpu_s = [0.0] * len(self.capacity)  # held in this round, if tasks are decided
        self.slice = 0
        if "begins" in header:
            self._begin(header["begins"])

    def _begin(self, begins: dict[str, Any]) -> None:
        """Read the state from which the run began from the header; jobs that are over or held take no part."""
        self.now_s, self.down = begins["time_s"], set(begins["down"])
        self.usable.update(begins["usable"])
        asked_to = {"starting": "start", "stopping": "stop", "moving": "move"}
        for row in begins["jobs"]:
            report = self.jobs[row["job"]["id"]] = JobReport(row["job"], at_start=row["samples"], done=row["samples"])
            report.reason = row.get("reason", "")
            if row["phase"] in ("finished", "failed", "cancelled", "held"):
                report.end_s = self.now_s
            if "rate" in row:
                report.holds, report.asked_to = row["holds"], asked_to.get(row["phase"], "")
                report.since_s = math.inf if row["since_s"] is None else row["since_s"]
                report.rate, report.resume_s, report.starts = row["rate"], row["resume_s"], 1
                report.doubt = DEVIATIONS * self.header["world"].get("sensing_noise", 0.0)
            self.used.update(report.holds)
        for node, held in self.used.items():
            need(held <= self.usable[node], f"{node} begins with {held} GPUs held of {self.usable[node]}")

    def read(self, record: dict[str, Any]) -> None:
        kind, time_s = record["event"], record["time_s"]
        need(time_s >= self.now_s, f"time runs backwards from {self.now_s}")
        pending = [job for job, report in self.jobs.items() if report.asked_to]
        need(self.live or time_s == self.now_s or not pending, f"time passes while {pending} wait for the engine")
        need(time_s == self.now_s or not self.unexplained, f"{[*self.unexplained]} were lost for no reason")
        if time_s > self.now_s:
            self._check_stranded()
        self._pass_slices(time_s)
        self.now_s = time_s
        self.records[kind] += 1
        getattr(self, f"_{kind}")(record)
        if kind != "node_down" and not self.live:
            self._check_stranded()

    def _check_stranded(self) -> None:
        stranded = [job for job, report in self.jobs.items() if self.down & report.holds.keys()]
        need(not stranded, f"{stranded} hold GPUs of nodes that are down")

    def close(self, *, all_finish: bool) -> None:
        pending = [job for job, report in self.jobs.items() if report.asked_to]
        need(self.live or not pending, f"{pending} were never answered")
        need(not self.unexplained, f"{[*self.unexplained]} were lost for no reason")
        if self.asked is not None:
            need(self.asked.keys() == self.jobs.keys(), "the jobs that arrived are not the jobs of the trace")
        if all_finish:
            left = [job for job, report in self.jobs.items() if report.end_s is None]
            need(not left, f"{left} never finished")

    # ---- events ----------------------------------------------------------------------------------------------------

    def _arrived(self, record: dict[str, Any]) -> None:
        spec = record["job"]
        need(spec["id"] not in self.jobs, f"{spec['id']} arrives twice")
        need(spec["arrival_s"] == record["time_s"], "it arrives at another time than its specification states")
        self.jobs[spec["id"]] = JobReport(spec)

    def _decision(self, record: dict[str, Any]) -> None:
        stop, start = record["stop"], record["start"]
        self.causes[record["cause"]] += 1
        need(len(set(stop)) == len(stop), "a job is stopped twice")
        answered = not any(report.asked_to for report in self.jobs.values())
        need(self.live or answered, "the last commands have not been answered")
        if record["cause"] == "event":
            need(not stop, f"{stop} are pre-empted inside a round")
        elif not self.live:  # where a busy machine may wake up late
            rounds = self.now_s / self.round_s
            need(abs(rounds - round(rounds)) < BOUNDARY, "a round is decided off its boundary")
        self.pre_emptions.check(self.now_s, [self._known(job) for job in stop], need)
        for job in stop:
            self._stop(job, moves=job in start)
        for job, spot in start.items():
            self._start(job, spot)
        if "why" in record:
            self._why(record)

    def _why(self, record: dict[str, Any]) -> None:
        """Every job that waits has one reason, and those that are new agree with the cluster as it is now."""
        up = {node: 0 if node in self.down else gpus for node, gpus in self.usable.items()}
        nodes = NodesNow(self.type_of, self.size, up, self.used)
        in_all = nodes.in_all(set(self.type_of.values()))
        active = {job: report for job, report in self.jobs.items() if report.end_s is None and not report.is_held}
        waiting = {job: report for job, report in active.items() if not report.holds}
        running = sum(1 for report in self.jobs.values() if report.holds)
        for job, row in record["why"].items():
            need(job in waiting, f"{job} has a reason to wait and does not wait")
            report = waiting[job]
            need(row[0] != report.reason, f"{job} waits for the same reason as before, {row[0]}")
            types = types_that_run(report.spec, self.header, self.cluster, in_all)
            check_reason(job, report.spec, row, types, nodes, record, running, self.pre_emptions.sums(), need)
            report.reason = row[0]
        for job, report in waiting.items():
            if report.pauses:
                continue  # its reason is in the event with which the pause began
            nowhere = not report.reason and not types_that_run(report.spec, self.header, self.cluster, in_all)
            need(bool(report.reason) or nowhere, f"{job} waits for no reason")
        for job, others in record.get("taken_by", {}).items():
            need(job in record["stop"] and job not in record["start"], f"{job} is not pre-empted and has successors")
            need(set(others) <= set(record["start"]), f"{others} take over from {job} and do not start")

    def _stop(self, job: str, *, moves: bool) -> None:
        report = self._known(job)
        need(bool(report.holds), f"{job} is stopped and does not run")
        need(self.now_s - report.since_s >= self.min_run_s * (1 - SAME), f"{job} is stopped before min_run is over")
        need(self.now_s > report.since_s, f"{job} is stopped at the time at which it started")
        self._release(report)
        report.asked_to = "move" if moves else "stop"

    def _start(self, job: str, spot: dict[str, int]) -> None:
        report = self._known(job)
        spec = report.spec
        need(not report.holds, f"{job} runs already")
        need(all(gpus > 0 for gpus in spot.values()), f"{job} is given no GPU of a node")
        need(sum(spot.values()) in spec["widths"], f"{job} gets {spot}, wanted a gang of {spec['widths']}")
        if exact := spec.get("nodes"):
            need(
                sorted(spot.values()) == [spec["gpus"] // exact] * exact,
                f"{job} gets {spot}, wanted {exact} equal parts",
            )
        types = {self.type_of[node] for node in spot}
        need(len(types) == 1 or spec["relaxed"], f"{job} mixes GPU types")
        for t in types:
            need(self._may_use(spec, t), f"{job} runs on type {t}, which it cannot or may not use")
        need(not self.down & spot.keys(), f"{job} is placed on a node that is down")
        need(all(self.size[node] for node in spot), f"{job} is placed on a node that has left")
        report.holds, report.reason, report.pauses = dict(spot), "", False
        report.since_s = self.now_s
        report.asked_to = "move" if report.asked_to == "stop" else report.asked_to or "start"
        report.starts += 1
        report.first_start_s = min(report.first_start_s, self.now_s)
        self.used.update(spot)
        for node in spot:
            most = self.usable[node]
            need(self.used[node] <= most, f"{node} has {most} GPUs for us, {self.used[node]} are held")

    def _started(self, record: dict[str, Any]) -> None:
        for job, rate, resume_s in zip(record["jobs"], record["rate"], record["resume_s"], strict=True):
            report = self._answer(job, "start")
            need(rate > 0 and resume_s >= self.now_s, f"{job} starts at rate {rate} from {resume_s}")
            report.rate, report.resume_s, report.at_start = rate, resume_s, report.done
            report.saved, report.doubt = report.done, 0.0

    def _progress(self, record: dict[str, Any]) -> None:
        for job, samples, rate in zip(record["jobs"], record["samples"], record["rate"], strict=True):
            report = self._known(job)
            need(bool(report.holds) and not report.asked_to, f"{job} reports progress while it does not run")
            before = report.rate
            self._count(job, report, samples)
            if rate and before:  # a report, perhaps noisy: in a simulation a job runs on at the speed of its start
                report.rate = before
            else:  # it pauses, for which it saves its state, or continues
                report.at_start, report.rate, report.resume_s = samples, rate, max(report.resume_s, self.now_s)
                report.saved = samples

    def _served(self, record: dict[str, Any]) -> None:
        columns = zip(*(record[name] for name in ("jobs", "samples", "rate", "part", "gpus")), strict=True)
        for job, samples, rate, part, gpus in columns:
            report = self._known(job)
            if report.mean_gpus:
                self._count(job, report, samples)
            else:
                need(samples == 0.0, f"{job} has done {samples} samples before its first task")
                report.first_start_s, report.starts = self.now_s, 1
            need(
                0 <= part <= 1 and rate >= 0 and min(gpus) >= 0, f"{job} is served less than never or more than always"
            )
            most = report.spec["gpus"] * (1 + SAME)
            need(sum(gpus) <= most, f"{job} holds {sum(gpus)} GPUs on average and has {most:.0f} tasks")
            for t, count in enumerate(gpus):
                need(not count or self._may_use(report.spec, t), f"{job} runs on type {t}, which it may not use")
            report.mean_gpus, report.rate, report.resume_s, report.at_start = gpus, rate, self.now_s, samples

    def _pass_slices(self, time_s: float) -> None:
        """Check averages of GPUs that go from job to job with every task: over a whole round, the type must have them."""
        served = [report.mean_gpus for report in self.jobs.values() if report.mean_gpus]
        while served and self.now_s < time_s:
            until_s = min(time_s, (self.slice + 1) * self.round_s)
            for gpus in served:
                for t, count in enumerate(gpus):
                    self.slice_gpu_s[t] += count * max(until_s - self.now_s, 0.0)
            self.now_s = max(self.now_s, until_s)
            if until_s < (self.slice + 1) * self.round_s:
                return
            self.slice += 1
            for t, held in enumerate(self.slice_gpu_s):
                most = self.capacity[t] * self.round_s * (1 + SAME)
                need(held <= most, f"{held} GPU-seconds of type {t} were held in a round that has {most}")
            self.slice_gpu_s = [0.0] * len(self.capacity)
        now = int(time_s / self.round_s + BOUNDARY)
        if now != self.slice:
            self.slice, self.slice_gpu_s = now, [0.0] * len(self.capacity)

    def _stopped(self, record: dict[str, Any]) -> None:
        for job, samples in zip(record["jobs"], record["samples"], strict=True):
            report = self.jobs[job]
            moves = report.asked_to == "move"
            report = self._answer(job, report.asked_to if report.asked_to in ("stop", "move") else "stop")
            report.asked_to = "start" if moves else ""
            self._count(job, report, samples)

    def _finished(self, record: dict[str, Any]) -> None:
        for job, samples in zip(record["jobs"], record["samples"], strict=True):
            report = self._known(job)
            runs = self._is_there(report) if self.live else report.holds and not report.asked_to
            need(bool(runs or report.mean_gpus), f"{job} finishes while it does not run")
            self._count(job, report, samples)
            if self.asked is not None:
                need(math.isclose(samples, self.asked[job], rel_tol=SAME), f"{job} asked for {self.asked[job]} samples")
            self._end(report)
            report.mean_gpus = []

    def _failed(self, record: dict[str, Any]) -> None:
        for job in record["jobs"]:
            report = self._known(job)
            need(self._is_there(report), f"{job} fails while it does not run")
            self._end(report)

    def _cancelled(self, record: dict[str, Any]) -> None:
        for job in record["jobs"]:
            self._end(self._known(job))

    def _held(self, record: dict[str, Any]) -> None:
        for job in record["jobs"]:
            report = self._known(job)
            need(not report.is_held, f"{job} is held twice")
            self._release(report)
            report.asked_to, report.is_held, report.reason, report.pauses = "", True, "", False

    def _released(self, record: dict[str, Any]) -> None:
        for job in record["jobs"]:
            report = self._known(job)
            need(not self._is_there(report), f"{job} is released while it has GPUs")  # twice changes nothing
            report.is_held = report.pauses = False

    def _refused(self, record: dict[str, Any]) -> None:
        for job in record["jobs"]:
            report = self._known(job)
            need(bool(report.holds) and bool(report.asked_to), f"{job} is refused and was not to start")
            self._release(report)
            self._pause(report, record)

    def _tenant_set(self, record: dict[str, Any]) -> None:
        need(record["weight"] >= 0, f"{record['tenant']} has the weight {record['weight']}")
        self.pre_emptions.has_quotas |= bool(record["quotas"])

    def _policy_set(self, record: dict[str, Any]) -> None:
        pass

    def _settings_set(self, record: dict[str, Any]) -> None:
        self.round_s, self.min_run_s = record["settings"]["round_s"], record["settings"]["min_run_s"]
        self.pre_emptions.limits = limits_of(record["settings"])

    def _limits_set(self, record: dict[str, Any]) -> None:
        need(isinstance(record["tenant"], str), "limits are set for no tenant")

    def _first_progress(self, record: dict[str, Any]) -> None:
        for job, cost_s in zip(record["jobs"], record["cost_s"], strict=True):
            need(bool(self._known(job).holds) and cost_s >= 0, f"{job} needed {cost_s} s for its first progress")
        self.pre_emptions.is_measured = True

    def _lost(self, record: dict[str, Any]) -> None:
        if self.live:
            self._lose_live(record)
            return
        every_s = self.header["world"]["checkpoint_s"]
        for job, samples in zip(record["jobs"], record["samples"], strict=True):
            report = self._known(job)
            need(bool(report.holds), f"{job} is lost while it does not run")
            if not self.down & report.holds.keys():
                self.unexplained[job] = set(report.holds)
            would = report.at_start + report.rate * max(self.now_s - report.resume_s, 0.0)
            least = max(report.saved, would - report.rate * every_s)
            slack = SAME * max(would, 1.0) + report.doubt * abs(would - report.at_start)
            need(least - slack <= samples <= would + slack, f"{job} keeps {samples} of {would} samples")
            self._release(report)
            report.done, report.rate = samples, 0.0

    def _lose_live(self, record: dict[str, Any]) -> None:
        for job in record["jobs"]:
            report = self._known(job)
            need(self._is_there(report), f"{job} is lost while it does not run")
            self._release(report)
            self._pause(report, record)

    def _renumbered(self, record: dict[str, Any]) -> None:
        for job in record["jobs"]:
            need(job in self.jobs, f"{job} is renumbered and has not arrived")

    def _forgotten(self, record: dict[str, Any]) -> None:
        for job in record["jobs"]:
            need(job in self.jobs, f"{job} is forgotten and has not arrived")
            need(self.jobs[job].end_s is not None, f"{job} is forgotten before it has ended")

    def _node_down(self, record: dict[str, Any]) -> None:
        need(record["node"] not in self.down, "it is down already")
        self.down.add(record["node"])

    def _node_up(self, record: dict[str, Any]) -> None:
        need(record["node"] in self.down, "it is up already")
        self.down.remove(record["node"])

    def _node_added(self, record: dict[str, Any]) -> None:
        node, cluster = record["name"], self.cluster
        need(not self.size.get(node), f"{node} is there already")
        kinds = list(zip(cluster["gpu"], cluster["memory_gib"], strict=True))
        kind = (record["gpu"], record["memory_gib"])
        if kind not in kinds:
            taken = record["gpu"] in cluster["types"]
            cluster["types"].append(f"{kind[0]}-{kind[1]:g}gib" if taken else kind[0])
            cluster["gpu"].append(kind[0])
            cluster["memory_gib"].append(kind[1])
            kinds.append(kind)
        self.type_of[node] = kinds.index(kind)
        self.size[node] = self.usable[node] = record["gpus"]
        self._forget_reasons()

    def _node_removed(self, record: dict[str, Any]) -> None:
        """A node that leaves is down or empty by then."""
        node = record["node"]
        need(self.size[node] > 0, f"{node} has left already")
        need(not self.used[node], f"{node} leaves while {self.used[node]} of its GPUs are held")
        self.size[node] = self.usable[node] = 0
        self.down.discard(node)
        self._forget_reasons()

    def _forget_reasons(self) -> None:
        """Jobs for which the cluster has no usable GPUs any more; they are decided again once it has."""
        in_all = Counter[int]()
        for node, t in self.type_of.items():
            in_all[t] += self.size[node]
        for report in self.jobs.values():
            if not types_that_run(report.spec, self.header, self.cluster, in_all):
                report.reason = ""

    def _node_usable(self, record: dict[str, Any]) -> None:
        """Jobs on GPUs that are no longer usable are lost at the same time, before this record."""
        node, gpus = record["node"], record["gpus"]
        need(self.used[node] <= gpus <= self.size[node], f"{gpus} GPUs of {node} cannot be usable")
        shrinks = gpus < self.usable[node]
        self.unexplained = {job: on for job, on in self.unexplained.items() if not (shrinks and node in on)}
        self.usable[node] = gpus

    # ---- shared helpers --------------------------------------------------------------------------------------------

    def _is_there(self, report: JobReport) -> bool:
        """Whether processes of the job may exist: it has GPUs, or was asked to stop and has not answered."""
        return bool(report.holds or report.asked_to)

    def _pause(self, report: JobReport, record: dict[str, Any]) -> None:
        """The engine has nothing of the job any more; it may pause before it is started again."""
        report.asked_to = report.reason = ""
        report.pauses = record.get("again_s") is not None

    def _release(self, report: JobReport) -> None:
        if report.holds:
            self.used.subtract(report.holds)
            report.attained_gpu_s += sum(report.holds.values()) * (self.now_s - report.since_s)
            report.holds = {}

    def _end(self, report: JobReport) -> None:
        self._release(report)
        report.end_s, report.asked_to = self.now_s, ""

    def _known(self, job: str) -> JobReport:
        need(job in self.jobs, f"{job} has not arrived")
        report = self.jobs[job]
        need(report.end_s is None, f"{job} has finished already")
        return report

    def _answer(self, job: str, command: str) -> JobReport:
        report = self._known(job)
        need(report.asked_to == command, f"{job} was asked to {report.asked_to or 'do nothing'}, not to {command}")
        report.asked_to = ""
        return report

    def _count(self, job: str, report: JobReport, samples: float) -> None:
        """Work is conserved: the reported samples are what the rate yields since the start."""
        if self.live:
            need(samples >= 0, f"{job} reports {samples} samples")
            return
        would = report.at_start + report.rate * max(self.now_s - report.resume_s, 0.0)
        # The allowance covers a few steps in the last digit of the time.
        slack = SAME * max(would, samples) + 4 * report.rate * math.ulp(self.now_s)
        slack += report.doubt * abs(would - report.at_start)
        need(abs(would - samples) <= slack, f"{job} reports {samples} samples, its rate gave {would}")
        report.done, report.rate = samples, 0.0

    def _may_use(self, spec: dict[str, Any], t: int) -> bool:
        cluster, facts = self.cluster, self.header["profile"]["facts"].get(spec["model"], {})
        label, gpu = cluster["types"][t], cluster["gpu"][t]
        allowed = not spec["types"] or label in spec["types"] or gpu in spec["types"]
        return bool(allowed and facts.get("memory_gib", 0.0) <= cluster["memory_gib"][t])
