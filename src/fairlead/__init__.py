"""Fairlead schedules deep-learning training on mixed GPU clusters: fast, and provably fair.

The names below are the library (docs/library.md). They are imported when they are first used, so that `import fairlead`
costs nothing and `fairlead.lease` needs only the standard library.
"""

TYPE_CHECKING = False  # as type checkers read it; the module `typing` would be most of the cost of this import

if TYPE_CHECKING:
    from fairlead.library.advising import Advice, advise
    from fairlead.library.benching import bench
    from fairlead.library.comparing import compare
    from fairlead.library.comparison import PolicyComparison as Comparison
    from fairlead.library.fairness import allocate, audit
    from fairlead.library.futures import what_if
    from fairlead.library.live import JobClient as Client
    from fairlead.library.live import connect
    from fairlead.library.live_async import AsyncJobClient as AsyncClient
    from fairlead.library.live_async import connect_async
    from fairlead.library.own_policies import policy
    from fairlead.library.reading import generate, read_cluster, read_trace
    from fairlead.library.simulating import SimulatedRun as Run
    from fairlead.library.simulating import simulate
    from fairlead.library.studying import study
    from fairlead.library.table import ResultTable as Table
    from fairlead.library.viewing import view
    from fairlead.model.cluster import Cluster
    from fairlead.model.errors import FairleadError
    from fairlead.traces.formats import Trace

__version__ = "0.1.0"

_WHERE = {  # name -> module, and its name there if that is another
    "Advice": "library.advising",
    "AsyncClient": "library.live_async:AsyncJobClient",
    "Client": "library.live:JobClient",
    "Cluster": "model.cluster",
    "Comparison": "library.comparison:PolicyComparison",
    "FairleadError": "model.errors",
    "Run": "library.simulating:SimulatedRun",
    "Table": "library.table:ResultTable",
    "Trace": "traces.formats",
    "advise": "library.advising",
    "allocate": "library.fairness",
    "audit": "library.fairness",
    "bench": "library.benching",
    "compare": "library.comparing",
    "connect": "library.live",
    "connect_async": "library.live_async",
    "generate": "library.reading",
    "policy": "library.own_policies",
    "read_cluster": "library.reading",
    "read_trace": "library.reading",
    "simulate": "library.simulating",
    "study": "library.studying",
    "view": "library.viewing",
    "what_if": "library.futures",
}

_ALONE = {"AsyncClient", "Client", "FairleadError", "connect", "connect_async"}  # these need only the standard library

__all__ = [
    "Advice",
    "AsyncClient",
    "Client",
    "Cluster",
    "Comparison",
    "FairleadError",
    "Run",
    "Table",
    "Trace",
    "advise",
    "allocate",
    "audit",
    "bench",
    "compare",
    "connect",
    "connect_async",
    "generate",
    "policy",
    "read_cluster",
    "read_trace",
    "simulate",
    "study",
    "view",
    "what_if",
]


if not TYPE_CHECKING:  # a type checker sees the imports above, and an unknown name is an error

    def __getattr__(name):
        if name not in _WHERE:
            raise AttributeError(f"module 'fairlead' has no attribute '{name}'")
        from importlib import import_module

        module, _, other = _WHERE[name].partition(":")
        try:
            if name not in _ALONE:
                import_module("numpy")
            value = globals()[name] = getattr(import_module(f"fairlead.{module}"), other or name)
        except ModuleNotFoundError as missing:
            from fairlead.model.extras import how_to_install

            raise ModuleNotFoundError(how_to_install(missing) or missing.msg, name=missing.name) from missing
        return value

    def __dir__():
        return sorted({*globals(), *_WHERE})
