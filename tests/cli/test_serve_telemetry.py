"""Options of `fairlead serve` about notices and log lines: what they start, and what is refused."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from pathlib import Path

import pytest
from in_process import Fairlead

from daemons import serving_at_home
from notices_receiver import receiving
from waiting import wait_for

SECRET = "a secret of thirty-two characters"


@pytest.fixture
def fairlead(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fairlead:
    return Fairlead(monkeypatch, capsys)


def secret_file(folder: Path) -> Path:
    path = folder / "secret"
    path.write_text(SECRET)
    path.chmod(0o600)
    return path


def test_notices_reach_a_webhook_and_a_command_and_the_log_is_json(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    environment = {**os.environ, "HOME": str(tmp_path), "FAIRLEAD_CREDENTIALS": ""}
    with receiving() as receiver:
        words = (
            "--engine",
            "pretend",
            "--cluster",
            "v100:2",
            "--log-format",
            "json",
            "--event-command",
            f"tee {heard}",
        )
        hook = ("--webhook", receiver.url, "--webhook-secret", str(secret_file(tmp_path)))
        with serving_at_home(tmp_path, environment, *words, *hook) as client:
            id_ = client.post("/jobs", {"name": "train", "run": "sleep 3600"})["id"]
            wait_for(lambda: ("job_started", id_) in receiver.events(), "the webhook to hear of the start")
            wait_for(lambda: heard.exists() and heard.read_text().endswith("\n"), "the command to hear of the start")
    signature, body = receiver.posts[0]
    stamp = signature.split(",")[0].removeprefix("t=")
    digest = hmac.new(SECRET.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    about_it = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines() if f'"{id_}"' in line]

    assert signature == f"t={stamp},v1={digest}"
    assert json.loads(heard.read_text())["event"] == "job_started"
    assert about_it


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--webhook", "http://127.0.0.1:9/"), "need each other"),
        (("--webhook-secret", "SECRET"), "need each other"),
        (("--webhook", "http://example.org/", "--webhook-secret", "SECRET"), "unencrypted"),
        (("--event-command", "no-such-program-here"), "does not begin with a program"),
        (("--log-format", "xml"), 'log format "xml" is not known'),
    ],
)
def test_options_that_cannot_work_are_refused(
    fairlead: Fairlead, tmp_path: Path, words: tuple[str, ...], complaint: str
) -> None:
    secret = str(secret_file(tmp_path))
    chosen = [secret if word == "SECRET" else word for word in words]

    code, _, err = fairlead("serve", "--cluster", "v100:2", "--state", tmp_path / "state", "--port", 0, *chosen)

    assert (code, complaint in " ".join(err.split())) == (2, True), err
    assert not (tmp_path / "state").exists()
