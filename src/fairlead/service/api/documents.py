"""The documents of the API: bodies of requests and responses. Responses are checked against their models when sent.

If the model or the store already declares a row (`PublicJob`, `NodeRow`), that row is the document.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from fairlead.model.cluster import MOST_GPUS_PER_NODE
from fairlead.model.limits import MOST, TenantLimits
from fairlead.model.public_job import PublicJob
from fairlead.service.api.scheduler_state import SchedulerState
from fairlead.service.jobfile import LONGEST_TYPE, Name, seconds
from fairlead.service.store.estimates_file import StartEstimate
from fairlead.service.store.rows import ChangeRow, NodeRow, TenantTerms
from fairlead.service.store.tokens import Role

LONGEST_LIFETIME_S = 366 * 86400.0


class _Body(BaseModel):
    """The body of a request. An unknown field is an error."""

    model_config = ConfigDict(extra="forbid")


class _Answer(BaseModel):
    """The body of a response. Its rows are checked field by field even if they are instances already."""

    model_config = ConfigDict(revalidate_instances="always")


class Health(_Answer):
    """Degraded: the scheduler is not up, or a decision or a look at Slurm is overdue.

    `decision_age_s` is null before the first decision.
    """

    status: Literal["ok", "degraded"]
    decision_age_s: float | None
    decision_overdue: bool
    policy_failed: bool  # another policy than the one that was set decides
    intake_overdue: bool  # jobs of a steered partition of Slurm could not be taken over for a minute


# ---- jobs -----------------------------------------------------------------------------------------------------------


class SubmittedJob(_Answer):
    id: str


class JobPage(BaseModel):
    """A page of jobs; `next` is the `after` of the next request, and null on the last page."""

    # Not an `_Answer`: its rows are checked when it is made, and once is enough for the most frequent response.
    jobs: list[PublicJob]
    next: int | None


class JobRequest(_Answer):
    """A request about a job, by its number; the scheduler takes requests in order."""

    id: str
    request: int


# ---- the cluster ----------------------------------------------------------------------------------------------------


class GpuCounts(_Answer):
    """GPUs of one type: all of them, those on nodes that are up, and those that jobs hold."""

    total: int = 0
    up: int = 0
    held: int = 0


class Status(_Answer):
    """A summary of the cluster: jobs by phase, GPUs by type."""

    version: str
    policy: str
    fell_back: str | None  # why another policy than the one that was set decides
    jobs: dict[str, int]
    gpus: dict[str, GpuCounts]
    nodes_down: list[str]
    scheduler: SchedulerState


class NewNode(_Body):
    """A node to add; `memory_gib` is the memory of one GPU (default: the usual one of the type)."""

    name: str = Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    gpu: str = Field(max_length=LONGEST_TYPE)
    gpus: int = Field(ge=1, le=MOST_GPUS_PER_NODE)
    memory_gib: float | None = Field(default=None, gt=0, le=1e5)


class NodeList(_Answer):
    nodes: list[NodeRow]


class TakenRequest(_Answer):
    """A request about the cluster, by its number; `taken` is true if the scheduler has taken it already."""

    request: int
    taken: bool


Limit = Annotated[int | None, Field(ge=0, le=MOST)]


class QuotaSettings(_Body):
    """A tenant's GPUs of one type: its own, how many more it may borrow, how many it lends. null means no limit."""

    type: str = Field(max_length=LONGEST_TYPE)
    nominal: int = Field(ge=0, le=10**6)
    borrowing_limit: int | None = Field(default=None, ge=0, le=10**6)
    lending_limit: int | None = Field(default=None, ge=0, le=10**6)


class TenantSettings(_Body):
    weight: float = Field(default=1.0, gt=0, le=1e9)
    quotas: list[QuotaSettings] = Field(default=[], max_length=64)


class LimitSettings(_Body):
    """Limits of a tenant, or of every tenant without its own. null means the limit of every tenant, or the built-in one."""

    max_queued: Limit = Field(default=None, description="Jobs that wait or are held.")
    max_submits: Limit = Field(default=None, description="Jobs submitted within a minute.")
    log_bytes: Limit = Field(default=None, description="Of the log of one lease.")
    checkpoint_bytes: Limit = Field(default=None, description="Of all checkpoints that the service stores for it.")


class TenantList(_Answer):
    """Tenants, and the limits that were set for every tenant without its own."""

    tenants: list[TenantTerms]
    every_tenant: TenantLimits


class PolicyChoice(_Body):
    name: str = Field(max_length=63)
    parameters: dict[str, Any] = Field(default={}, max_length=32)


class PolicyState(_Answer):
    """The current policy with all its parameters, and the names of the available policies."""

    name: str
    parameters: dict[str, Any]
    summary: str
    paper: str
    available: list[str]


class TenantShare(_Answer):
    """What a tenant holds; `entitled` is its part of every type by weight, among the tenants that have jobs now."""

    tenant: str
    weight: float
    waiting: int
    running: int
    held: dict[str, int]
    entitled: dict[str, float]
    gpu_hours: float


class PromiseAudit(_Answer):
    """A promise about shares, held against what happened: kept, broken, not promised or not measured."""

    model_config = ConfigDict(extra="allow")

    promise: str
    standing: str
    value: float | None
    bound: float | None
    tenants: list[str]
    causes: dict[str, float]


class ShareList(_Answer):
    """Shares of all tenants under the policy that decides; `promises` are its verdicts so far, null unless requested."""

    policy: str
    shares: list[TenantShare]
    promises: list[PromiseAudit] | None = None


# ---- the future -----------------------------------------------------------------------------------------------------


class EstimateList(_Answer):
    """Start estimates from the state at `time_s`; if there are none, all null except for the `reason`.

    A start is in its range with the stated chance. `until_s` is where the simulations ended.
    """

    time_s: float | None = None
    until_s: float | None = None
    policy: str | None = None
    chance: float | None = None
    estimates: list[StartEstimate] = []
    reason: str | None = None  # why there are no estimates
    held: int = 0  # of the estimates of the last week whose jobs have started (`checked`), how many held
    checked: int = 0


# ---- fairness and decisions -----------------------------------------------------------------------------------------


class TenantAudit(_Answer):
    """One tenant over the life of the service: the hours in which it wanted more GPUs, and its GPU-hours by type.

    `missing` is what it lacked of its private slice while it wanted more, by cause, in units of speed x hours. `envies`
    are the tenants that it envies most, largest envy first; null is unbounded.
    """

    model_config = ConfigDict(extra="allow")

    wanted_more_h: float
    sharing_incentive: float | None
    envy: float | None
    gpu_hours: dict[str, float]
    rates_by_source: dict[str, float]
    missing: dict[str, float]
    envies: dict[str, float | None]


class RateAudit(_Answer):
    """How the speed of a tenant's model on a GPU type is known: measured, profiled, completed or assumed."""

    model_config = ConfigDict(extra="allow")

    tenant: str
    model: str
    type: str
    source: str
    factor: float
    confidence: float


class AuditReport(_Answer):
    """Envy and sharing incentive over the life of the service; null if no tenant ever wanted more than it had."""

    model_config = ConfigDict(extra="allow")  # an audit may measure more

    policy: str
    decided_by: str | None  # another scheduler that decided instead of the policy, which promises nothing then
    promises: list[PromiseAudit]
    max_envy: float | None
    envious: list[str] | None
    min_sharing_incentive: float | None
    mean_sharing_incentive: float | None
    worst_off: str | None
    rates: list[RateAudit]
    tenants: dict[str, TenantAudit]


class DecisionRecord(_Answer):
    """A decision of the journal, with its number there."""

    model_config = ConfigDict(extra="allow")  # a journal may record more

    seq: int
    time_s: float
    cause: str
    stop: list[str]
    start: dict[str, dict[str, int]]
    holds_until_s: float | None
    solver: str


class DecisionPage(_Answer):
    """A page of decisions, newest first; the last `seq` is the `before` of the next request."""

    decisions: list[DecisionRecord]


# ---- tokens and changes ---------------------------------------------------------------------------------------------


class NewToken(_Body):
    """A token to create; `lifetime` is in seconds or a duration such as "30d"."""

    name: Name
    role: Role
    tenant: Name | None = None
    lifetime: Annotated[float, BeforeValidator(seconds), Field(gt=0, le=LONGEST_LIFETIME_S)] = 30 * 86400.0

    @model_validator(mode="after")
    def _tenant_fits(self) -> NewToken:
        if self.role is Role.MEMBER and self.tenant is None:
            raise ValueError("a member token needs a tenant")
        if self.role is Role.ADMIN and self.tenant is not None:
            raise ValueError("an admin token has no tenant, because it may do everything")
        if self.role is Role.METRICS and self.tenant is not None:
            raise ValueError("a metrics token has no tenant, because metrics are those of the whole service")
        return self


class TokenState(_Answer):
    """A token without its secret."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    name: str
    role: Role
    tenant: str | None
    created_s: float
    expires_s: float
    revoked_s: float | None


class CreatedToken(TokenState):
    """A new token with its secret, `token`, which is never returned again."""

    token: str


class TokenList(_Answer):
    tokens: list[TokenState]


class ChangePage(_Answer):
    """A page of the audit log, newest first; the last `number` is the `before` of the next request."""

    changes: list[ChangeRow]
