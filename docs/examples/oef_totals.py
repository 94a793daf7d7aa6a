"""OEF's static totals (docs/reproduction.md): throughput of five ways to divide 24 GPUs, relative to equal shares."""

import sys

import matplotlib
import numpy as np

import fairlead
from fairlead.studies.papers.oef.experiment import LAMBDA

matplotlib.use("Agg")
from matplotlib import pyplot

mixes, target = int(sys.argv[1]), sys.argv[2]
rules = ["equal-share", "gandiva-fair", "gavel", "oef-noncoop", "oef-coop"]
totals = {rule: [] for rule in rules}
random = np.random.default_rng(0)
for _ in range(mixes):
    chosen = random.choice(list(LAMBDA.values()), int(random.integers(4, 21)))
    tenants = [
        {"name": f"tenant-{k}", "speedups": {"3070": 1, "3080": a, "3090": b}} for k, (a, b) in enumerate(chosen)
    ]
    instance = {"gpus": {"3070": 8, "3080": 8, "3090": 8}, "tenants": tenants}
    for rule in rules:
        totals[rule].append(fairlead.allocate(instance, rule)["total"])
gains = [np.divide(totals[rule], totals["equal-share"]) for rule in rules]
pyplot.boxplot(gains, tick_labels=rules)
pyplot.ylabel("throughput / equal shares")
pyplot.savefig(target)
print({rule: round(float(gain.mean()), 3) for rule, gain in zip(rules, gains, strict=True)})
