"""The client of the API. Standard library only, so that commands start quickly."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from fairlead.model.errors import FairleadError, ImpossibleError, InputError, NotFoundError

if TYPE_CHECKING:
    import http.client

URL, TOKEN, CREDENTIALS = "FAIRLEAD_URL", "FAIRLEAD_TOKEN", "FAIRLEAD_CREDENTIALS"
DEFAULT_URL = "http://127.0.0.1:7411"
_LIMITS = ("queue_full", "too_many_submits", "checkpoints_full")  # of a tenant, whatever the status is
TIMEOUT_S = 120.0  # ends a hang; a busy service may need a minute, and the user can always interrupt


class NotAllowedError(FairleadError):
    exit_code = 4


class UnreachableError(FairleadError):
    exit_code = 6


class RefusedError(FairleadError):
    """The service refused a valid request: a job that has ended cannot be held, too many requests, ..."""


def credentials_path() -> Path:
    named = os.environ.get(CREDENTIALS)
    return Path(named) if named else Path.home() / ".config" / "fairlead" / "credentials.json"


def save_credentials(url: str, token: str) -> Path:
    """Save the token for later commands of this user, readable by no other user; return the path."""
    path = credentials_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_suffix(".tmp")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump({"fairlead": "credentials/1", "url": url, "token": token}, file)
    os.replace(draft, path)
    return path


@dataclass(frozen=True)
class Client:
    url: str
    token: str | None

    @classmethod
    def from_environment(cls) -> Client:
        """The client of FAIRLEAD_URL and FAIRLEAD_TOKEN, or else of the credentials that were saved for this user.

        The saved token is sent only to the service for which it was saved.
        """
        saved = cls.saved_in(credentials_path())
        url = os.environ.get(URL) or saved.url
        return cls(url, os.environ.get(TOKEN) or (saved.token if _same_url(url, saved.url) else None))

    @classmethod
    def saved_in(cls, path: Path) -> Client:
        """The client of a credentials file; without the file, the default URL and no token."""
        if not path.is_file():
            return cls(DEFAULT_URL, None)
        try:
            saved = json.loads(path.read_text(encoding="utf-8"))
            return cls(saved.get("url") or DEFAULT_URL, saved.get("token"))
        except (ValueError, OSError, AttributeError) as error:
            raise InputError(f"is not readable ({error}); remove it", path=str(path)) from None

    def get(self, path: str, **query: Any) -> Any:
        return self._json("GET", path, None, query)

    def post(self, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        return self._json("POST", path, body, {}, headers)

    def put(self, path: str, body: Any) -> Any:
        return self._json("PUT", path, body, {})

    def delete(self, path: str) -> Any:
        return self._json("DELETE", path, None, {})

    def lines(self, path: str, **query: Any) -> Iterator[str]:
        """The lines of a streamed answer, until the service ends it."""
        import http.client  # here, because every command imports this module and few use the network

        connection = self._connect(timeout_s=None)
        try:
            response = self._send(connection, "GET", path, None, query)
            while line := response.readline():
                yield line.decode("utf-8", errors="replace")
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        finally:
            connection.close()

    def _json(
        self, method: str, path: str, body: Any, query: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> Any:
        import http.client

        connection = self._connect(TIMEOUT_S)
        try:
            text = self._send(connection, method, path, body, query, headers).read()
            return json.loads(text) if text else None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._unreachable(error) from None
        finally:
            connection.close()

    def _connect(self, timeout_s: float | None) -> http.client.HTTPConnection:
        import http.client

        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f'{URL} is "{self.url}"; wanted, for example, {DEFAULT_URL}')
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        return kind(parts.hostname, parts.port, timeout=timeout_s)

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: Any,
        query: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
    ) -> http.client.HTTPResponse:
        parameters = {key: value for key, value in query.items() if value is not None}
        target = f"/v1{path}" + (f"?{urlencode(parameters, doseq=True)}" if parameters else "")
        all_headers = {"Accept": "application/json", **(headers or {})}
        if self.token:
            all_headers["Authorization"] = f"Bearer {self.token}"
        data = None
        if body is not None:
            data, all_headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        connection.request(method, target, data, all_headers)
        response = connection.getresponse()
        if response.status >= 400:
            raise self._error(response)
        return response

    def _error(self, response: http.client.HTTPResponse) -> FairleadError:
        text = response.read().decode("utf-8", errors="replace")
        try:
            error = json.loads(text)["error"]
            code, message, remedy = error["code"], error["message"], error.get("remedy")
        except (ValueError, KeyError, TypeError):
            code, message, remedy = "", f"the service answered {response.status}", None
        message = f"{message}; {remedy}" if remedy else message
        if response.status == 401 and not self.token:
            message += f" (no token: set {TOKEN}, or use the account that started the service)"
        kinds: dict[int, type[FairleadError]] = {
            401: NotAllowedError,
            403: NotAllowedError,
            404: NotFoundError,
            410: NotFoundError,
        }
        if code == "can_never_run":
            return ImpossibleError(message)
        if code in _LIMITS:
            return NotAllowedError(message)
        if response.status in (400, 413, 422):
            return InputError(message)
        return kinds.get(response.status, RefusedError)(message)

    def _unreachable(self, error: Exception) -> UnreachableError:
        reason = "it did not answer in time" if isinstance(error, socket.timeout) else str(error)
        return UnreachableError(
            f"cannot reach the service at {self.url}: {reason}; is `fairlead serve` running there? "
            f"(set {URL} for another address)"
        )


def _same_url(one: str, other: str) -> bool:
    return one.rstrip("/") == other.rstrip("/")


def in_path(word: str) -> str:
    """The word, quoted as one part of a path."""
    return quote(word, safe="")
