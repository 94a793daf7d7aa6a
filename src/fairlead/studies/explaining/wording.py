"""An explanation as text for a terminal of 80 columns."""

from __future__ import annotations

from textwrap import wrap

from fairlead.model.explanation import By, Explanation, Holder, Remedy, Stay, Takeover
from fairlead.model.public_job import ENDED_PHASES
from fairlead.model.units import format_duration
from fairlead.model.words import counted

WIDTH = 80
_MOST_HOLDERS = 10
_NOTHING = 0.005  # GPUs


def lines(answer: Explanation) -> list[str]:
    """The answer in paragraphs: the reason first, then what is behind it, then what would help."""
    parts = [
        [*_wrapped(f"Job {answer.job} of tenant {answer.tenant}: {_phase(answer)}."), *_wrapped(_why(answer))],
        _wrapped(" ".join(_background(answer))),
        _holders(answer),
        [] if answer.stay is None else _stay(answer.stay, answer.time_s),
        _help(answer),
    ]
    text = list[str]()
    for part in parts:
        if part:
            text += ["", *part] if text else part
    return text


def _wrapped(text: str, first: str = "", later: str = "") -> list[str]:
    return wrap(text, WIDTH, initial_indent=first, subsequent_indent=later, break_on_hyphens=False)


def _phase(answer: Explanation) -> str:
    return f"{answer.phase}, {answer.code}" if answer.phase in ("waiting", "held") else answer.phase


def _why(answer: Explanation) -> str:
    since = ""
    if answer.phase == "waiting" and answer.decided_s is not None:
        since = f" (decided {_ago(answer.decided_s, answer.time_s)})"
    return f"{answer.sentence[0].upper()}{answer.sentence[1:]}{since}."


def _ago(time_s: float, now_s: float) -> str:
    return f"{format_duration(max(now_s - time_s, 0.0))} ago"


def _in(time_s: float, now_s: float) -> str:
    return f"in {format_duration(time_s - now_s)}" if time_s > now_s else "now"


def _background(answer: Explanation) -> list[str]:
    text = list[str]()
    if answer.phase == "waiting":
        types = f" of {' or '.join(answer.types)}" if answer.types else ""
        text.append(f"It asks for {counted(answer.gpus, 'GPU')}{types}.")
    if answer.position is not None:
        text.append(f"By arrival it is number {answer.position} of {counted(answer.waiting or 0, 'waiting job')}.")
    if answer.waited_s is not None:
        so_far = "It" if answer.phase in ENDED_PHASES else "So far it"
        text.append(f"{so_far} waited {format_duration(answer.waited_s)} and ran {format_duration(answer.ran_s)}.")
    if answer.restarts or answer.lost_gpu_hours:
        text.append(_restarts(answer))
    if answer.terms:
        terms = ", ".join(f"{label} {value:.3g}" for label, value in answer.terms.items())
        text.append(f"The policy's numbers about it: {terms}.")
    if answer.takeover is not None:
        text.append(_takeover(answer.takeover, answer.time_s))
    return text


def _restarts(answer: Explanation) -> str:
    what = counted(answer.restarts, "restart") if answer.restarts else "Work that was lost"
    if answer.lost_gpu_hours is None:
        return f"It had {what}."
    return f"{what} cost it {answer.lost_gpu_hours:.2g} GPU-hours."


def _takeover(takeover: Takeover, now_s: float) -> str:
    ago = _ago(takeover.time_s, now_s)
    detail = f" ({takeover.detail})" if takeover.detail else ""
    if takeover.how != "stopped":
        was = {"lost": "lost its GPUs", "refused": "could not be started", "failed": "failed"}[takeover.how]
        return f"It {was} {ago}{detail}."
    names = [*takeover.jobs]
    if takeover.others:
        names.append(counted(takeover.others, "job") + " of other tenants")
    taken = f"{_listed(names)} started on its nodes" if names else "no job started on its nodes"
    change = "gained" if takeover.gain > 0 else "lost"
    gain = f"the cluster {change} {abs(takeover.gain):.2g} GPUs at full speed"
    if abs(takeover.gain) < _NOTHING:
        gain = "the cluster as a whole became neither faster nor slower"
    return f"A decision stopped it {ago}: {taken}, and {gain}."


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _holders(answer: Explanation) -> list[str]:
    if not answer.holders:
        return []
    shown = answer.holders[:_MOST_HOLDERS]
    text = ["Who holds GPUs that it could use:"]
    for holder in shown:
        text += _wrapped(_holder(holder, answer.time_s), "  - ", "    ")
    rest = len(answer.holders) - len(shown)
    return [*text, *([f"  - and {counted(rest, 'more job')}"] if rest else ())]


def _holder(holder: Holder, now_s: float) -> str:
    gpus = ", ".join(f"{count} {type_}" for type_, count in holder.gpus.items())
    if holder.job is None:
        return f"{counted(holder.jobs, 'job')} of other tenants: {gpus}"
    times = list[str]()
    if holder.end_s is not None:
        times.append(f"ends {_in(holder.end_s, now_s)} at its present speed")
    if holder.keeps_until_s is not None:
        times.append(f"keeps them for {format_duration(holder.keeps_until_s - now_s)} at least")
    return "; ".join([f"{holder.job} ({holder.tenant}): {gpus}", *times])


def _stay(stay: Stay, now_s: float) -> list[str]:
    nodes = ", ".join(node if count == 1 else f"{node} x{count}" for node, count in stay.nodes.items())
    text = f"It is on {nodes}."
    if stay.keeps_until_s is not None:
        text += f" It keeps these GPUs for {format_duration(stay.keeps_until_s - now_s)} at least."
    if stay.end_s is not None:
        text += f" At its present speed it ends {_in(stay.end_s, now_s)}."
    rows = ["Its speed by type, relative to the fastest:"]
    for row in stay.speeds:
        rows += _wrapped(f"{row.type}: {row.relative:.2f}, {row.free} free; {row.note}", "  - ", "    ")
    return [*_wrapped(text), "", *rows]


def _help(answer: Explanation) -> list[str]:
    if answer.phase not in ("waiting", "held"):
        return []
    text = list[str]()
    if answer.expected_s is not None:
        text += _wrapped(f"If nothing changes it starts {_about(answer.expected_s, answer.time_s)}.")
    if answer.remedies:
        text.append("What would help (each was simulated):")
        for remedy in answer.remedies:
            text += _wrapped(_remedy(remedy), "  - ", "    ")
    if answer.unchecked is not None:
        text += _wrapped(f"Not checked: {answer.unchecked}.")
    elif not answer.remedies:
        text.append("Nothing that was tried would make it start earlier.")
    return text


def _about(time_s: float, now_s: float) -> str:
    return f"in about {format_duration(time_s - now_s)}" if time_s > now_s else "at once"


def _remedy(remedy: Remedy) -> str:
    asks = " (an operator can do this)" if remedy.by is By.OPERATOR else ""
    command = f" [{remedy.command}]" if remedy.command else ""
    return f"{remedy.sentence}{asks}{command}"
