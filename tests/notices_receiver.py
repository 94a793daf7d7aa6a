"""A web server of an operator, to which a service posts notices."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Receiver:
    """A web server of the operator; answers with the first of `statuses`, and with 204 once there are none left."""

    url: str
    posts: list[tuple[str, bytes]] = field(default_factory=list)  # signature and body
    statuses: list[int] = field(default_factory=list)

    def events(self) -> list[tuple[str, str]]:
        return [(one["event"], one["job"]) for _, body in self.posts for one in json.loads(body)["notices"]]


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = receiver.statuses.pop(0) if receiver.statuses else 204
            if status < 300:
                receiver.posts.append((self.headers["Fairlead-Signature"], body))
            self.send_response(status)
            if status == 302:
                self.send_header("Location", receiver.url)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
