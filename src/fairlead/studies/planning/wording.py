"""The result of planning in a few sentences, and as JSON values."""

from __future__ import annotations

from typing import Any

from fairlead.model.cluster import Cluster
from fairlead.numerics.paired import ALPHA, fewest_pairs
from fairlead.studies.planning.fleets import MONEY, Market, freed_text
from fairlead.studies.planning.plan import AS_IT_IS, BETTER, IMPOSSIBLE, NOISE, Compared, Goal, PlanResult, PlanRow
from fairlead.studies.what_if.figures import figures_to_json


def recommendation(result: PlanResult, market: Market, cluster: Cluster, goal: Goal) -> list[str]:
    """What to do, how sure that is, and what may be retired."""
    return [_purchase(result, market, goal), *_retirements(result, cluster, goal)]


def cost_text(market: Market, cost: float) -> str:
    return f"{cost:,.10g}" if market.unit == MONEY else f"{cost:,.10g} {market.unit}"


def change_text(compared: Compared) -> str:
    """`-31 % (-40 to -22 %)`."""
    change = compared.change
    if compared.verdict == IMPOSSIBLE:
        return "-"
    low, mean, high = (_percent(part) for part in (change.low, change.mean, change.high))
    return f"{mean} %" if low == high else f"{mean} % ({low} to {high} %)"


def _percent(part: float) -> str:
    return f"{100 * part:+,.1f}" if abs(part) < 1 else f"{100 * part:+,.0f}"


def _purchase(result: PlanResult, market: Market, goal: Goal) -> str:
    seeds = f"over {len(result.seeds)} seeds"
    best = result.row(result.best)
    if result.advised == AS_IT_IS:
        few = ""
        if len(result.seeds) < fewest_pairs():
            few = f" (fewer than {fewest_pairs()} seeds can never show one)"
        if best.against_present is None:
            return f"Buy nothing: no purchase within the budget lowers the {goal.label}."
        moved = change_text(best.against_present)
        return (
            f"Buy nothing yet: the best plan within the budget ({_name(best)}) changes the {goal.label} by {moved} "
            f"{seeds}, no difference beyond noise{few}."
        )
    advised = result.row(result.advised)
    assert advised.against_present is not None, "the advised plan changes something"
    text = (
        f"{_capital(_name(advised))} for {cost_text(market, advised.cost)}: {goal.label} "
        f"{change_text(advised.against_present)} {seeds}, beyond noise (p = {advised.against_present.p:.2g})."
    )
    if result.advised != result.best and best.against_present is not None:
        text += (
            f" The best plan of the search, {_name(best)} for {cost_text(market, best.cost)}, is hardly better or not "
            f"beyond noise: {change_text(best.against_present)}."
        )
    return text


def _retirements(result: PlanResult, cluster: Cluster, goal: Goal) -> list[str]:
    sentences: list[str] = []
    for fleet, compared in result.retiring.items():
        type_ = fleet.retired[-1]
        after = AS_IT_IS.bought != fleet.bought
        if after != (result.advised != AS_IT_IS):
            continue  # without the advised purchase it is a row of the table only
        then = "Then retiring" if after else "Retiring"
        what = f"{then} {type_} (frees {freed_text(cluster, (type_,))})"
        if compared.verdict == IMPOSSIBLE:
            sentences.append(f"{what} is impossible: {result.row(fleet).stranded} jobs could never run.")
        elif compared.verdict == NOISE:
            sentences.append(f"{what} makes no difference beyond noise: {goal.label} {change_text(compared)}.")
        else:
            word = "lowers" if compared.verdict == BETTER else "raises"
            sentences.append(f"{what} {word} the {goal.label}: {change_text(compared)}.")
    return sentences


def _name(row: PlanRow) -> str:
    return row.fleet.name


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def plan_to_json(result: PlanResult, market: Market, cluster: Cluster, goal: Goal) -> dict[str, Any]:
    return {
        "budget": {"amount": market.budget, "unit": market.unit},
        "goal": goal.label,
        "recommendation": recommendation(result, market, cluster, goal),
        "advised": result.advised.name,
        "best_of_search": result.best.name,
        "significance": ALPHA,
        "seeds": list(result.seeds),
        "simulations": result.simulations,
        "jobs": result.jobs,
        "offers": [
            {
                "gpu": offer.gpu,
                "gpus": offer.gpus,
                "price": offer.price,
                "worth_of_a_gpu": _worth_json(result, offer.gpu),
            }
            for offer in market.offers
        ],
        "worth_of_a_gpu": {type_: _worth_json(result, type_) for type_ in result.worth},
        "plans": [_row_json(result, row, cluster) for row in result.rows],
    }


def _worth_json(result: PlanResult, type_: str) -> dict[str, float] | None:
    if type_ not in result.worth:
        return None
    return dict(zip(("mean", "low", "high"), result.worth[type_], strict=True))


def _row_json(result: PlanResult, row: PlanRow, cluster: Cluster) -> dict[str, Any]:
    return {
        "name": row.fleet.name,
        "buy": {offer.name: count for offer, count in row.fleet.bought},
        "retire": list(row.fleet.retired),
        "frees": freed_text(cluster, row.fleet.retired) if row.fleet.retired else None,
        "cost": row.cost,
        "figures": figures_to_json(row.figures),
        "worst_tenants": list(row.worst_tenants),
        "unfinished": row.unfinished,
        "stranded_jobs": row.stranded,
        "change": _compared_json(row.against_present),
        "change_by_retiring": _compared_json(result.retiring.get(row.fleet)),
        "saved_job_hours_per_unit": row.gain_per_cost,
    }


def _compared_json(compared: Compared | None) -> dict[str, Any] | None:
    if compared is None:
        return None
    change = compared.change
    finite = compared.verdict != IMPOSSIBLE
    values = {"mean": change.mean, "low": change.low, "high": change.high} if finite else None
    return {"goal": values, "verdict": compared.verdict, "p": compared.p}
