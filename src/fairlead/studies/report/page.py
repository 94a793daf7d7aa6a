"""One self-contained HTML page: numbers, charts and the code that draws them, in the look of the dashboard."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from fairlead.model.units import format_duration, format_gpu_time, format_number
from fairlead.numerics.paired import ALPHA
from fairlead.rates.three_layer import Sensing
from fairlead.rounds.loop import Settings
from fairlead.sim.truth import World
from fairlead.studies.compare.answer import ComparisonAnswer, Metric, PolicyRow
from fairlead.studies.compare.compare import Comparison
from fairlead.studies.compare.journal_runs import JobLine
from fairlead.studies.compare.promise_rows import PERCENTAGES, promise_text
from fairlead.studies.compare.table import by_tenant
from fairlead.studies.compare.wording import (
    NOT_RANKED,
    best_note,
    gpus_of,
    mark_of,
    rules_of,
    run_notes,
    title_of,
    unfinished_of,
    value_text,
    why_no_best,
)
from fairlead.studies.look.files import CHARTS, STYLE, TABLES, look_file
from fairlead.studies.look.glossary import TERMS, explained
from fairlead.studies.report import charts, data
from fairlead.traces.files import create_text

KIND = "report/1"
MOST_JOBS = 2000  # of a list of jobs
MOST_DOWN, MOST_ACROSS = 30, 11  # of the table by tenant; a page of 1280 pixels has room for this many columns


def write_page(
    comparison: Comparison, path: str, window_h: tuple[float, float] | None = None, jobs: Sequence[JobLine] = ()
) -> None:
    """`jobs` are listed on a page of a single run."""
    text = render(comparison, window_h, jobs)
    with create_text(path) as file:
        file.write(text)


def render(comparison: Comparison, window_h: tuple[float, float] | None = None, jobs: Sequence[JobLine] = ()) -> str:
    from jinja2 import Environment

    source = files("fairlead.studies.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    answer = comparison.answer
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["explained"] = explained
    page = environment.from_string(source)
    gantt = charts.gantts(comparison, window_h)
    return page.render(
        kind=KIND,
        title=title_of(answer),
        several=len(answer.policies) > 1,
        knowing={policy.name: ", ".join(policy.knows) for policy in answer.policies if policy.knows},
        of_seed=f"Seed {answer.seeds[0]}. " if answer.most_runs > 1 else "",
        jobs=jobs[:MOST_JOBS],
        jobs_left_out=max(len(jobs) - MOST_JOBS, 0),
        terms=TERMS,
        style=look_file(STYLE),
        tables_script=look_file(TABLES),
        charts_script=look_file(CHARTS),
        answer=answer,
        loads=[{"value": load, "label": _load_text(load)} for load in answer.loads],
        colour={policy: style.colour for policy, style in data.styles(comparison).items()},
        cell=_cell,
        promise_names=list(dict.fromkeys(one.promise for row in answer.rows for one in row.promises)),
        promise_text=promise_text,
        percentages=PERCENTAGES,
        unfinished=unfinished_of,
        not_ranked=NOT_RANKED if any(map(unfinished_of, answer.rows)) else "",
        seeds=answer.most_runs,
        no_best=why_no_best(answer),
        best_note=best_note(answer),
        mark={(row.policy, row.load): mark_of(answer, row) for row in answer.rows},
        rules_differ=len(answer.rule_sets) > 1,
        assumed=[*rules_of(answer), *answer.assumptions, *run_notes(answer)],
        alpha=ALPHA,
        world=_world(answer),
        tenants=_tenant_table(answer),
        gantt_window=_window(comparison, window_h) if gantt else "",
        duration=format_duration,
        number=format_number,
        figures=_script([_figures(comparison, load) for load in answer.loads]),
        gantt=_script(gantt),
        gantt_policies=list(gantt),
        numbers=_script(answer.to_json()),
    )


def _figures(comparison: Comparison, load: float | None) -> dict[str, Any]:
    return {
        **({"frontier": charts.frontier(comparison, load)} if len(comparison.answer.policies) > 1 else {}),
        **{f"cdf-{column}": charts.distribution(comparison, load, column) for column in data.CDFS},
        "utilisation": charts.utilisation(comparison, load),
        "fragmentation": charts.fragmentation(comparison, load),
        "migrations": charts.bars(comparison, load, "migrations", "moves per job"),
        "decisions": charts.bars(comparison, load, "decision_mean", "CPU time of a decision, ms", log=True),
        "tenants": charts.tenants(comparison, load),
    }


def _cell(row: PolicyRow, metric: Metric) -> dict[str, str]:
    cell = row.metrics[metric.name]
    values = data.range_of(cell)
    if values is None:
        return {"mean": "-", "spread": "", "range": ""}
    mean, low, high = (value_text(value, metric.unit) for value in values)
    spread = "" if cell.sd is None else f"±{value_text(cell.sd, metric.unit, 2)}"
    return {"mean": mean, "spread": spread, "range": f"{low} to {high}"}


def _load_text(load: float | None) -> str:
    return "the trace's own load" if load is None else f"load {load:g}"


def _world(answer: ComparisonAnswer) -> list[tuple[str, str]]:
    """The rules that were the same for all policies."""
    settings, world = answer.settings, answer.world
    rows = [
        ("cluster", f"{gpus_of(answer)} in {answer.cluster.nodes} nodes"),
        ("round", format_duration(settings.round_s) + f", decided at {settings.when}"),
        ("minimum run", format_duration(settings.min_run_s)),
        *_pre_emption(settings),
        ("restart cost", "each model's own" if answer.restart_s is None else format_duration(answer.restart_s)),
        ("hidden server speeds", _range(world.server_factor)),
        ("hidden speeds of jobs on servers", _range(world.job_server_factor)),
        ("failures", "none" if not world.mtbf_s else f"every {format_duration(world.mtbf_s)} per node"),
        ("error in declared lengths", "none" if not world.length_error else f"up to {world.length_error:.0%}"),
        ("measuring a new model", _profiling(world.profiling_s)),
        ("speeds learnt while running", "no" if answer.sensing == "table" else _sensing(answer.sensing, world)),
    ]
    if world.start_s or world.notice_s:
        texts = format_duration(world.start_s), format_duration(world.notice_s)
        rows.append(("latencies", f"a first start takes {texts[0]}, news of arrivals and ends {texts[1]}"))
    if world.declared_speeds:
        named = ", ".join(f"{name} times {factor:g}" for name, factor in world.declared_speeds)
        rows.append(("declared speeds that are not true", named))
    if answer.tenant_weight:
        rows.append(("weights", ", ".join(f"{name} {weight:g}" for name, weight in answer.tenant_weight.items())))
    return rows


def _pre_emption(settings: Settings) -> list[tuple[str, str]]:
    """The limits on pre-emption, if there are any."""
    limits = (("", settings.preemption_gpu_s), (", each tenant", settings.tenant_preemption_gpu_s))
    return [
        (f"limit on pre-emption{whose}", f"{format_gpu_time(gpu_s)} in an hour")
        for whose, gpu_s in limits
        if gpu_s is not None
    ]


def _range(factors: tuple[float, float]) -> str:
    low, high = factors
    return "none" if low == high == 1 else f"{low:g} to {high:g}"


def _sensing(sensing: Sensing, world: World) -> str:
    noise = f", reports off by {world.sensing_noise:.0%}" if world.sensing_noise else ""
    return f"{sensing}, reported every {format_duration(world.report_s)}{noise}"


def _profiling(seconds: float) -> str:
    return f"{format_duration(seconds)} on every type" if seconds else "free"


def _tenant_table(answer: ComparisonAnswer) -> list[dict[str, Any]]:
    """By load: tenants as rows and policies as columns, or vice versa if there are many policies; large tenants first."""
    policies = answer.policy_names
    turned = len(policies) > MOST_ACROSS
    most = MOST_ACROSS if turned else MOST_DOWN
    tables = []
    for load in answer.loads:
        names, cells = by_tenant(answer, load)
        shown, more = names[:most], max(len(names) - most, 0)
        rows = policies if turned else shown
        across = shown if turned else policies
        table = [[cells.get((b, a) if turned else (a, b)) for b in across] for a in rows]
        first, lines = "policy" if turned else "tenant", list(zip(rows, table, strict=True))
        tables.append({"first": first, "across": across, "rows": lines, "more": more})
    return tables


def _window(comparison: Comparison, window_h: tuple[float, float] | None) -> str:
    chart = data.gantts(comparison, window_h)[0]
    left = f"; {chart.left_out} further GPUs are not shown" if chart.left_out else ""
    return f"hours {chart.from_h:g} to {chart.to_h:g}{left}"


def _script(value: Any) -> str:
    """JSON that is safe inside a script element, whatever names it contains."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").replace("\u2028", "\\u2028")
