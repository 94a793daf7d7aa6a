"""FFT's completion times on its test bed (docs/reproduction.md): the JCT of each baseline over that of FFT."""

import sys

import matplotlib
import numpy as np

import fairlead
from fairlead.studies.papers.fft.testbed import WIDTHS, paper_cluster, workload

matplotlib.use("Agg")
from matplotlib import pyplot

jobs, seeds, target = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
policies = ["fft", "gavel-sjf", "gavel", "tiresias-fft:join_by=random", "allox"]
jct_h = {policy: [] for policy in policies}
for seed in range(4000, 4000 + seeds):
    trace, speeds = workload(paper_cluster(), WIDTHS, jobs, seed)
    for policy in policies:
        run = fairlead.simulate(paper_cluster(), trace, policy, throughputs=speeds, round="5m", seed=seed)
        jct_h[policy].append(run.jobs["jct_s"].mean() / 3600)
times = {policy: np.divide(jct_h[policy], jct_h["fft"]) for policy in policies}
pyplot.bar(times.keys(), [values.mean() for values in times.values()])
pyplot.ylabel("mean JCT / that of fft")
pyplot.savefig(target)
print({policy: round(float(values.mean()), 3) for policy, values in times.items()})
