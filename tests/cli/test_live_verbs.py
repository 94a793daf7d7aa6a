"""The live commands without a service: their messages and exit codes."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fairlead.model.errors import InputError
from fairlead.model.quota_text import parse_quota
from fairlead.service.client import Client, save_credentials

NOWHERE = "http://127.0.0.1:9"  # nothing listens on the discard port


def fairlead(*words: str, home: Path, text: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    command = [sys.executable, "-m", "fairlead.cli.main", *words]
    env = {**kept, "HOME": str(home), "FAIRLEAD_URL": NOWHERE, **environment}
    return subprocess.run(command, input=text, capture_output=True, text=True, env=env, check=False)


@pytest.mark.parametrize(
    "words", [["queue"], ["status", "j1"], ["cancel", "j1"], ["logs", "j1"], ["nodes"], ["share"], ["top", "--once"]]
)
def test_an_unreachable_service_gives_code_6_and_advice(words: list[str], tmp_path: Path) -> None:
    done = fairlead(*words, home=tmp_path)

    assert done.returncode == 6
    assert "is `fairlead serve` running there?" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_submit_whose_answer_is_lost_names_the_key_that_it_was_sent_with(tmp_path: Path) -> None:
    """The service may have accepted the job; with the same key it does not create a second one."""
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            connection, _ = server.accept()
            received.append(connection.recv(65536))
            connection.close()

        service = threading.Thread(target=hang_up)
        service.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        done = fairlead("submit", "-", home=tmp_path, text="name: a\nrun: x\n", FAIRLEAD_URL=url)
        service.join()

    sent = re.search(rb"Idempotency-Key: (\w+)", received[0])
    assert sent is not None
    assert done.returncode == 6
    assert f"add --key {sent[1].decode()}" in done.stderr


def test_a_job_file_with_a_mistake_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: a\nrun: x\nsteps: many\n")

    done = fairlead("submit", str(tmp_path / "job.yaml"), home=tmp_path)

    assert done.returncode == 2
    assert "job.yaml line 3: steps" in done.stderr


def test_a_saved_token_is_readable_by_its_user_only(tmp_path: Path) -> None:
    done = fairlead("token", "use", "--url", "http://127.0.0.1:1234", home=tmp_path, text="secret\n")

    kept = tmp_path / ".config" / "fairlead" / "credentials.json"
    assert done.returncode == 0
    assert "secret" not in done.stdout
    assert json.loads(kept.read_text())["token"] == "secret"
    assert kept.stat().st_mode & 0o777 == 0o600


def test_the_saved_token_goes_to_no_other_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_CREDENTIALS", str(tmp_path / "credentials.json"))
    for name in ("FAIRLEAD_URL", "FAIRLEAD_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    save_credentials("http://127.0.0.1:1234", "secret")

    assert Client.from_environment() == Client("http://127.0.0.1:1234", "secret")
    monkeypatch.setenv("FAIRLEAD_URL", "http://127.0.0.1:1234/")
    assert Client.from_environment().token == "secret"
    monkeypatch.setenv("FAIRLEAD_URL", "http://elsewhere.example:1234")
    assert Client.from_environment().token is None
    monkeypatch.setenv("FAIRLEAD_TOKEN", "other")
    assert Client.from_environment().token == "other"


def test_setting_neither_weight_nor_quota_is_refused(tmp_path: Path) -> None:
    done = fairlead("tenants", "set", "vision", home=tmp_path)

    assert done.returncode == 2
    assert "give --weight, --quota or a limit such as --max-queued" in done.stderr


def test_the_doctor_reports_an_absent_service_and_succeeds(tmp_path: Path) -> None:
    done = fairlead("doctor", "-o", "json", home=tmp_path)

    findings = {finding["check"]: finding for finding in json.loads(done.stdout)}
    assert done.returncode == 0
    assert findings["solver"]["ok"] is True
    assert findings["service"]["ok"] is None
    assert "fairlead serve" in findings["service"]["remedy"]


def test_a_quota_has_a_short_form() -> None:
    assert parse_quota("v100", "8+4-2") == {"type": "v100", "nominal": 8, "borrowing_limit": 4, "lending_limit": 2}
    assert parse_quota("v100", "8") == {"type": "v100", "nominal": 8}
    with pytest.raises(InputError, match="is not OWN"):
        parse_quota("v100", "8*2")


@pytest.mark.parametrize(
    ("pace", "complaint"),
    [
        ("v100-7=0.5", 'node "v100-7" is not in the cluster'),
        ("v100-1=2", "wanted a number above 0 and up to 1"),
        ("v100-1=slow", "wanted a number above 0 and up to 1"),
    ],
)
def test_a_pace_that_makes_no_sense_is_refused(pace: str, complaint: str, tmp_path: Path) -> None:
    done = fairlead("serve", "--cluster", "v100:2x1", "--node-pace", pace, home=tmp_path)

    assert done.returncode == 2
    assert complaint in done.stderr
