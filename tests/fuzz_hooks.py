"""What made-up requests must not do: follow a stream, which never ends, or start a process for an audit."""

from __future__ import annotations

from typing import Any

import schemathesis


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    if case.query:
        case.query.pop("follow", None)
        case.query.pop("promises", None)
