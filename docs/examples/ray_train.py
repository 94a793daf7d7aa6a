"""Ray Train inside a job of Fairlead: `setsid --wait python ray_train.py --epochs 20`.

The job starts a Ray of its own on the GPUs of its lease. Ray Train runs the training function in threads of its workers,
where no signal handler can be set: `lease.should_stop` finds the stop file instead. `setsid` keeps the signal away from
this program and from Ray's own processes, which would end at once.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import ray
import ray.train
import torch
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from fairlead import lease


def train(config: dict[str, Any]) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    first = 0
    saved = ray.train.get_checkpoint()
    if saved is not None:
        with saved.as_directory() as folder:
            state = torch.load(Path(folder) / "state.pt")
        model.load_state_dict(state["model"])
        first = state["epoch"]
    print("from epoch", first, flush=True)
    for epoch in range(first, config["epochs"]):
        for _ in range(100):
            x = torch.randn(64, 4)
            loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        stops = lease.should_stop()
        with tempfile.TemporaryDirectory() as folder:
            torch.save({"model": model.state_dict(), "epoch": epoch + 1}, Path(folder) / "state.pt")
            ray.train.report({"epoch": epoch + 1, "loss": loss.item()}, checkpoint=Checkpoint.from_directory(folder))
        if stops:
            return


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    epochs = parser.parse_args().epochs
    gpus = int(os.environ.get("FAIRLEAD_GPUS", "0"))
    ray.init(address="local", num_gpus=gpus, include_dashboard=False)
    trainer = TorchTrainer(
        train,
        train_loop_config={"epochs": epochs},
        scaling_config=ScalingConfig(num_workers=max(gpus, 1), use_gpu=torch.cuda.is_available()),
        # The storage is the same in every lease, so that a run continues where the last one stopped.
        run_config=RunConfig(name=os.environ.get("FAIRLEAD_JOB", "alone"), storage_path=os.path.abspath("ray-train")),
    )
    result = trainer.fit()
    done = result.metrics["epoch"] if result.metrics else epochs
    lease.report(done)
    if done < epochs:
        lease.stop()


if __name__ == "__main__":
    main()
