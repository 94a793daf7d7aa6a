"""The markup of GPUs side by side on the cluster page. Not in its template, which takes five times as long for thousands."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup, escape

from fairlead.model.words import counted
from fairlead.service.web.cells import CellKind, CellRun
from fairlead.service.web.colours import OTHERS

_KINDS = {CellKind.FREE: "free", CellKind.OTHERS: "in use by others", CellKind.DOWN: "not available"}


def cell(run: CellRun, colour: Mapping[str, str], dense: bool) -> Markup:
    """A link to the job that holds the GPUs, if the reader may see it; `dense` leaves no room for its id."""
    boxes, gpus, job = f'<span class="boxes">{"<i></i>" * run.gpus}</span>', counted(run.gpus, "GPU"), run.job
    if job is None:
        return Markup(  # all of it is ours
            f'<span class="run {run.kind.value}" role="img" aria-label="{gpus} {_KINDS[run.kind]}">{boxes}</span>'
        )
    id_, name, tenant, phase = escape(job.id), escape(job.name), escape(job.tenant), escape(job.phase)
    shown = "" if dense else f'<span class="id">{id_}</span>'
    return Markup(  # every value was escaped
        f'<a class="run {colour.get(job.tenant, OTHERS)}" href="/jobs/{id_}" data-job="{id_}" '
        f'title="{id_} {name} of {tenant}, {phase}" aria-label="job {id_} of {tenant}: {gpus}">{boxes}{shown}</a>'
    )
