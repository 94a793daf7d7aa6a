"""The order of the book: its parts and their pages. A page of docs/ that is missing here fails a test."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from book.commands import command_reference
from book.policy_pages import FOLDER, policy_page
from book.policy_pictures import policy_picture
from fairlead.policies import REGISTRY

START = "README.md"  # of the repository; the first page of the book
PARTS: dict[str, tuple[str, ...]] = {
    "Begin": ("docs/start.md", "docs/concepts.md", "docs/policies.md", "docs/choosing.md", "docs/coming-from.md"),
    "Policies, one by one": tuple(f"{FOLDER}/{name}.md" for name in REGISTRY),
    "Guides": ("docs/guide-operator.md", "docs/guide-engineer.md", "docs/guide-researcher.md"),
    "Simulate and compare": (
        "docs/library.md",
        "docs/tutorial-policy.md",
        "docs/promises.md",
        "docs/questions.md",
        "docs/metrics.md",
    ),
    "Run jobs": (
        "docs/training-scripts.md",
        "docs/operations.md",
        "docs/dashboard.md",
        "docs/slurm.md",
        "docs/ray.md",
        "docs/reliability.md",
        "docs/troubleshooting.md",
    ),
    "Reference": ("docs/commands.md", "docs/formats.md", "docs/glossary.md", "docs/architecture.md"),
    "Evidence": (
        "docs/reproduction.md",
        "docs/bench.md",
        "docs/peers.md",
        "docs/policy-fairlead.md",
        "docs/performance.md",
    ),
    "Project": ("docs/decisions/README.md", "CONTRIBUTING.md", "CHANGELOG.md"),
}
# Written while the book is built: pages, and the pictures on them.
GENERATED: dict[str, Callable[[], str]] = {
    "docs/commands.md": command_reference,
    **{f"{FOLDER}/{name}.md": partial(policy_page, name) for name in REGISTRY},
    **{f"docs/images/policy-{name}.svg": partial(policy_picture, name) for name in REGISTRY},
}
