"""The two receivers of notices: a webhook, and a command of the operator."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import ipaddress
import json
import os
import shlex
import shutil
import signal
import ssl
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from fairlead import __version__
from fairlead.model.errors import InputError
from fairlead.service.telemetry.notices import KIND, Channel, DeliveryError, Notice

WEBHOOK, COMMAND = "webhook", "command"
SIGNATURE = "Fairlead-Signature"
ANSWER_S = 10.0  # for each step of a request
COMMAND_S = 30.0  # then a command is killed
LEAST_SECRET_BYTES = 16


def signature(secret: bytes, time_s: int, body: bytes) -> str:
    """The header by which a receiver recognises the service: HMAC-SHA256 of the time, a dot and the body."""
    digest = hmac.new(secret, f"{time_s}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={time_s},v1={digest}"


def read_secret(path: Path) -> bytes:
    """The secret in the file, without white space around it."""
    try:
        if path.stat().st_mode & 0o077:
            raise InputError(f"--webhook-secret {path} can be read by others; make it private with chmod 600")
        secret = path.read_bytes().strip()
    except OSError as error:
        raise InputError(f"--webhook-secret {path} cannot be read ({error.strerror})") from None
    if len(secret) < LEAST_SECRET_BYTES:
        raise InputError(
            f"--webhook-secret {path} has {len(secret)} bytes; wanted at least {LEAST_SECRET_BYTES}, such as the "
            "output of: openssl rand -hex 32"
        )
    return secret


def webhook(url: str, secret: bytes, clock: Callable[[], float] = time.time, answer_s: float = ANSWER_S) -> Channel:
    """Post batches of notices to this address. Redirects and proxies of the environment are not followed."""
    no_address = InputError(f'--webhook "{url}" is no address; wanted one such as https://example.org/fairlead')
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")
    except ValueError:  # also of a host that no name server can know
        raise no_address from None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if parts.scheme not in ("http", "https") or not host or parts.fragment or not path.isascii():
        raise no_address
    if parts.username is not None:
        raise InputError("--webhook has a password in it, which others can read; the signature shows who sends")
    if parts.scheme == "http" and not _is_loopback(host):
        raise InputError("--webhook: names of jobs would be sent unencrypted; use https, or an address of this machine")

    def deliver(notices: Sequence[Notice]) -> None:
        body = json.dumps({"fairlead": KIND, "notices": [notice.to_json() for notice in notices]}).encode()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"fairlead/{__version__}",
            SIGNATURE: signature(secret, int(clock()), body),
        }
        connection = (
            http.client.HTTPSConnection(host, port, timeout=answer_s, context=ssl.create_default_context())
            if parts.scheme == "https"
            else http.client.HTTPConnection(host, port, timeout=answer_s)
        )
        try:
            connection.request("POST", path, body, headers)
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            raise DeliveryError(f"the receiver cannot be reached ({type(error).__name__})") from None
        finally:
            connection.close()
        if not 200 <= status < 300:
            raise DeliveryError(f"the receiver answered with status {status}")

    return Channel(WEBHOOK, deliver)


def command(line: str, limit_s: float = COMMAND_S) -> Channel:
    """Run this command once for each notice, without a shell, with the notice as JSON on standard input."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise InputError(f"--event-command: {error}") from None
    if not words or shutil.which(words[0]) is None:
        raise InputError(f'--event-command "{line}" does not begin with a program that can be run')

    def deliver(notices: Sequence[Notice]) -> None:
        for notice in notices:
            _run(words, notice, limit_s)

    return Channel(COMMAND, deliver, batch=1, retries=False)


def _run(words: list[str], notice: Notice, limit_s: float) -> None:
    kept = {name: value for name, value in os.environ.items() if name != "FAIRLEAD_TOKEN"}
    about = {"FAIRLEAD_EVENT": notice.event, "FAIRLEAD_JOB": notice.job, "FAIRLEAD_TENANT": notice.tenant}
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**kept, **about},
            start_new_session=True,
        )
    except OSError as error:
        raise DeliveryError(f"the command cannot be run ({error.strerror})") from None
    try:
        process.communicate(json.dumps(notice.to_json()).encode() + b"\n", timeout=limit_s)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise DeliveryError(f"the command took more than {limit_s:g} s and was killed") from None
    if process.returncode:
        raise DeliveryError(f"the command ended with code {process.returncode}")


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
