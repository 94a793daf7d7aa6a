"""The documents of the API: what it takes and what it returns. Every response is checked against its model before it is sent.

Where the model or the store declares a row already (`PublicJob`, `NodeRow`), that is the document.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from fairlead.model.cluster import MOST_GPUS_PER_NODE
from fairlead.model.public_job import PublicJob
from fairlead.service.api.scheduler_state import SchedulerState
from fairlead.service.jobfile import Name, seconds
from fairlead.service.store.rows import ChangeRow, NodeRow, TenantTerms
from fairlead.service.store.tokens import Role

LONGEST_LIFETIME_S = 366 * 86400.0


class _Body(BaseModel):
    """What a client sends. A field that we do not know is a mistake."""

    model_config = ConfigDict(extra="forbid")


class _Answer(BaseModel):
    """What we send. Rows inside are checked field by field, although they are instances already."""

    model_config = ConfigDict(revalidate_instances="always")


class Health(_Answer):
    status: Literal["ok", "degraded"]


# ---- jobs -----------------------------------------------------------------------------------------------------------


class SubmittedJob(_Answer):
    id: str


class JobPage(BaseModel):
    """`next` goes into `after` of the next request; null: that was all."""

    # A page is no `_Answer`: its rows are checked when it is made, and once is enough for the most frequent answer.
    jobs: list[PublicJob]
    next: int | None


class JobRequest(_Answer):
    """A request about a job, by its number; the scheduler takes it in its turn."""

    id: str
    request: int


# ---- the cluster ----------------------------------------------------------------------------------------------------


class GpuCounts(_Answer):
    """GPUs of one type: all, those on nodes that are up, those that jobs hold."""

    total: int = 0
    up: int = 0
    held: int = 0


class Status(_Answer):
    """The cluster at a glance: jobs by phase, GPUs by type."""

    version: str
    policy: str
    jobs: dict[str, int]
    gpus: dict[str, GpuCounts]
    nodes_down: list[str]
    scheduler: SchedulerState


class NewNode(_Body):
    """`memory_gib` is that of one GPU; without it, the usual one of the type."""

    name: str = Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    gpu: str = Field(max_length=63)
    gpus: int = Field(ge=1, le=MOST_GPUS_PER_NODE)
    memory_gib: float | None = Field(default=None, gt=0, le=1e5)


class NodeList(_Answer):
    nodes: list[NodeRow]


class TakenRequest(_Answer):
    """A request about the cluster, by its number; `taken`: the scheduler knows of it already."""

    request: int
    taken: bool


class QuotaSettings(_Body):
    """GPUs of one type: its own, how many more it may borrow, how many of its own others may use. null = no limit."""

    type: str
    nominal: int = Field(ge=0, le=10**6)
    borrowing_limit: int | None = Field(default=None, ge=0, le=10**6)
    lending_limit: int | None = Field(default=None, ge=0, le=10**6)


class TenantSettings(_Body):
    weight: float = Field(default=1.0, gt=0, le=1e9)
    quotas: list[QuotaSettings] = Field(default=[], max_length=64)


class TenantList(_Answer):
    tenants: list[TenantTerms]


class PolicyChoice(_Body):
    name: str = Field(max_length=63)
    parameters: dict[str, Any] = Field(default={}, max_length=32)


class PolicyState(_Answer):
    """The policy that decides, with all its parameters, and the names of those that could."""

    name: str
    parameters: dict[str, Any]
    summary: str
    paper: str
    available: list[str]


class TenantShare(_Answer):
    """`entitled` is the tenant's part of every type by its weight among those who have jobs now."""

    tenant: str
    weight: float
    waiting: int
    running: int
    held: dict[str, int]
    entitled: dict[str, float]
    gpu_hours: float


class ShareList(_Answer):
    shares: list[TenantShare]


# ---- fairness and decisions -----------------------------------------------------------------------------------------


class TenantAudit(_Answer):
    """One tenant over the life of the service: hours in which it wanted more, and GPU-hours by type."""

    model_config = ConfigDict(extra="allow")

    wanted_more_h: float
    sharing_incentive: float | None
    gpu_hours: dict[str, float]


class AuditReport(_Answer):
    """Envy and sharing incentive over the life of the service; null where no tenant ever wanted more than it had."""

    model_config = ConfigDict(extra="allow")  # an audit may measure more

    max_envy: float | None
    envious: list[str] | None
    min_sharing_incentive: float | None
    mean_sharing_incentive: float | None
    worst_off: str | None
    tenants: dict[str, TenantAudit]


class DecisionRecord(_Answer):
    """A decision as the journal has it, with its number there."""

    model_config = ConfigDict(extra="allow")  # a journal may record more

    seq: int
    time_s: float
    cause: str
    stop: list[str]
    start: dict[str, dict[str, int]]
    holds_until_s: float | None
    solver: str


class DecisionPage(_Answer):
    """Newest first; `seq` of the last one goes into `before` of the next request."""

    decisions: list[DecisionRecord]


# ---- tokens and changes ---------------------------------------------------------------------------------------------


class NewToken(_Body):
    """`lifetime` in seconds, or such as "30d"."""

    name: Name
    role: Role
    tenant: Name | None = None
    lifetime: Annotated[float, BeforeValidator(seconds), Field(gt=0, le=LONGEST_LIFETIME_S)] = 30 * 86400.0

    @model_validator(mode="after")
    def _tenant_fits(self) -> NewToken:
        if self.role is Role.MEMBER and self.tenant is None:
            raise ValueError("a member token needs a tenant")
        if self.role is Role.ADMIN and self.tenant is not None:
            raise ValueError("an admin token has no tenant: it may do everything")
        return self


class TokenState(_Answer):
    """What is known of a token; its secret is not."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    name: str
    role: Role
    tenant: str | None
    created_s: float
    expires_s: float
    revoked_s: float | None


class CreatedToken(TokenState):
    """`token` is shown here and never again."""

    token: str


class TokenList(_Answer):
    tokens: list[TokenState]


class ChangePage(_Answer):
    """Newest first; `number` of the last one goes into `before` of the next request."""

    changes: list[ChangeRow]
