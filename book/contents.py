"""The order of the book: its parts and their pages. A page of docs/ that is missing here fails a test."""

from __future__ import annotations

START = "README.md"  # of the repository; the first page of the book
PARTS: dict[str, tuple[str, ...]] = {
    "Begin": ("docs/start.md", "docs/concepts.md", "docs/policies.md", "docs/choosing.md"),
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
GENERATED = "docs/commands.md"  # written while the book is built, from the commands themselves
