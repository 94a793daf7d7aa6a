"""The settings of Hops' paper."""

from __future__ import annotations

import numpy as np

from fairlead.studies.papers.hops import experiment as study
from fairlead.studies.papers.hops.experiment import VARIANTS, run_one, small_cluster, workload


def test_the_clusters_are_those_of_the_paper() -> None:
    small, large = small_cluster(), study.large_cluster()

    assert (small.total_gpus, len(small.nodes)) == (64, 10)
    assert (large.total_gpus, len(large.nodes)) == (512, 64)


def test_the_classes_have_the_paper_s_proportions() -> None:
    jobs = workload(0, 25, 10.0).jobs
    hours = np.array(
        [spec.gpus * (spec.steps or 0) / 3600 / np.mean((1.0, 1.12, study.MODELS[spec.model][0])) for spec in jobs]
    )

    assert np.histogram(hours, (0, 1, 10, 50, 150))[0].tolist() == [7, 9, 7, 2]
    assert all(spec.gpus == spec.widths[(len(spec.widths) - 1) // 2] for spec in jobs)
    assert all(spec.widths[0] >= 1 and spec.widths[-1] <= 16 for spec in jobs)


def test_every_variant_runs_on_the_same_world() -> None:
    trace = workload(1, 6, 30.0)

    found = {name: run_one(small_cluster(), trace, variant, 1) for name, variant in VARIANTS.items()}

    assert all(set(numbers) == set(study.NUMBERS) for numbers in found.values())
    assert all(numbers["makespan_h"] > 0 for numbers in found.values())
