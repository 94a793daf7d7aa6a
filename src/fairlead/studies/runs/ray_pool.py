"""The same tasks on a Ray cluster. Our package is sent with them, so that every machine runs this version of it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import fairlead
from fairlead.model.errors import FairleadError, InputError
from fairlead.studies.runs.process_pool import Outcome, R, T, attempt, reason_of

MOST_WAITING = 4  # tasks handed to Ray per free CPU: enough to keep it busy, few enough to be interrupted


def run_on_ray(run: Callable[[T], R], tasks: Iterable[T], address: str | None = None) -> Iterator[Outcome[T, R]]:
    """Outcomes as they become available. The default is the cluster of RAY_ADDRESS, or a new one on this machine."""
    ray = _import_ray()
    mine = not ray.is_initialized()
    if mine:
        try:
            ray.init(
                address=address, runtime_env={"py_modules": [fairlead]}, log_to_driver=False, logging_level="error"
            )
        except ConnectionError as error:
            raise FairleadError(f"no Ray cluster answers at {address or 'RAY_ADDRESS'}: {error}") from None
    remote = ray.remote(num_cpus=1, max_retries=2)(attempt)
    most = MOST_WAITING * max(int(ray.cluster_resources().get("CPU", 1)), 1)
    todo, running = iter(tasks), {}
    try:
        while True:
            for task in todo:
                running[remote.remote(run, task)] = task
                if len(running) >= most:
                    break
            if not running:
                return
            for done in ray.wait(list(running), num_returns=1)[0]:
                yield _outcome(ray, running.pop(done), done)
    finally:
        if mine:
            ray.shutdown()


def check_ray() -> None:
    """Raise an error if Ray is not installed, before anything is computed."""
    _import_ray()


def _outcome(ray: Any, task: T, done: Any) -> Outcome[T, Any]:
    try:
        result, reason = ray.get(done)
    except Exception as error:  # a worker that died, an object that was lost
        return Outcome(task, None, reason_of(error))
    return Outcome(task, result, reason)


def _import_ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise InputError(
            "--executor ray needs Ray, which is not installed; pip install 'fairlead[ray]', or leave the option out"
        ) from None
