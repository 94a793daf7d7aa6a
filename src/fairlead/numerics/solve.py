"""Linear and mixed-integer programs solved by HiGHS: one thread, no output, and the outcome as a value.

    min  cost . x    s.t.  row_low <= A x <= row_high,   low <= x <= high,   x_c whole where whole[c]

A is column-wise: column c has entries value[start[c]:start[c+1]] in rows index[start[c]:start[c+1]].
`solve` solves one program; a `Model` stays open, so that a change and a warm re-solve cost microseconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.errors import BrokenInvariantError
from fairlead.numerics.solve_clock import current_clock

TOLERANCE = 1e-7  # HiGHS's default: by how much a bound, a row or a reduced cost may be violated
BASIC = 1  # HiGHS's code for a basic variable
OPTIMAL_FACE = 1e-11  # a reduced cost or a dual below this is noise
EDGE_WEIGHTS_CHOSEN, EDGE_WEIGHTS_DEVEX = -1, 1  # HiGHS's codes
SIMPLEX_DUAL, SIMPLEX_PRIMAL = 1, 4
# With fewer non-zeros, presolve costs more than it saves (max-min over 27 groups x 3 types, 189 non-zeros: 0.52 ms with
# presolve, 0.45 ms without).
PRESOLVE_FROM = 20_000


@dataclass(frozen=True, slots=True, eq=False)
class LinearProgram:
    cost: FloatArray  # c
    low: FloatArray  # c
    high: FloatArray  # c
    row_low: FloatArray  # r
    row_high: FloatArray  # r
    start: IntArray  # c + 1
    index: IntArray  # entries
    value: FloatArray  # entries
    whole: BoolArray | None = None  # c  None: all columns are continuous


@dataclass(frozen=True, slots=True)
class Limit:
    """When a solve gives up. Simulations count work and never read the clock; `seconds` is for live use, where a
    `SolveClock` limits all solves of a decision together.

    `iterations` limits the simplex iterations of continuous programs, `nodes` limits mixed-integer programs.
    """

    iterations: int | None = None
    nodes: int | None = None
    seconds: float | None = None


NO_LIMIT = Limit()
_NO_DUALS: FloatArray = np.empty(0)


@dataclass(frozen=True, slots=True)
class Basis:
    """The basis in which a simplex solve ended, one byte per column and per row; pass it in for a warm start."""

    columns: bytes
    rows: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Optimal:
    x: FloatArray  # c
    objective: float
    row_dual: FloatArray  # r  growth of the minimum per unit of the row's binding bound; NaN for whole-number programs
    reduced_cost: FloatArray  # c  the same for the column's binding bound
    basis: Basis | None  # None unless it was asked for: an open model keeps its own
    iterations: int


@dataclass(frozen=True, slots=True, eq=False)
class TimeLimit:
    """The limit was reached first. `x` is the best feasible point, if there is one; the minimum is at least `bound`."""

    x: FloatArray | None
    objective: float
    bound: float


@dataclass(frozen=True, slots=True)
class Infeasible:
    pass


@dataclass(frozen=True, slots=True)
class SolverFailed:
    reason: str


Outcome = Optimal | TimeLimit | Infeasible | SolverFailed


def solve(
    program: LinearProgram,
    limit: Limit = NO_LIMIT,
    basis: Basis | None = None,
    *,
    gap: float = 1e-6,
    tolerance: float = TOLERANCE,
    keep_basis: bool = False,
) -> Outcome:
    """Solve a program once.

    `basis` warm-starts a continuous program, and `keep_basis` returns the one in which it ended, which takes as long as
    a small solve; `gap` is the relative gap that a mixed-integer program may leave.
    """
    if not len(program.cost):
        return _without_columns(program)
    presolve = basis is None and len(program.value) >= PRESOLVE_FROM
    model = Model(program, basis, gap=gap, tolerance=tolerance, presolve=presolve)
    outcome = model.solve(limit)
    if keep_basis and isinstance(outcome, Optimal) and program.whole is None:
        return replace(outcome, basis=model.basis())
    return outcome


def columns_from_entries(
    row: IntArray, column: IntArray, value: FloatArray, columns: int
) -> tuple[IntArray, IntArray, FloatArray]:
    """(start, index, value) of the column-wise form, from a list of entries in any order."""
    order = np.argsort(column, kind="stable")
    start = np.zeros(columns + 1, dtype=np.int64)
    np.cumsum(np.bincount(column, minlength=columns), out=start[1:])
    return start, row[order], value[order]


class Model:
    """A program kept open inside HiGHS. After a change, `solve` starts from the basis in which it last ended."""

    def __init__(
        self,
        program: LinearProgram,
        basis: Basis | None = None,
        *,
        gap: float = 1e-6,
        tolerance: float = TOLERANCE,
        presolve: bool = False,
        duals: bool = True,
    ) -> None:
        """`duals=False` skips copying the duals and reduced costs, which are then empty."""
        import highspy  # takes 0.1 s: paid by the first solve, not by every start of the program

        self._highspy: Any = highspy
        self._highs: Any = self._highspy.Highs()
        # Looked up once, because runs make thousands of solves that take microseconds.
        self._error, self._is_optimal = highspy.HighsStatus.kError, highspy.HighsModelStatus.kOptimal
        self._low = np.array(program.low, dtype=np.float64)
        self._high = np.array(program.high, dtype=np.float64)
        self._row_low = np.array(program.row_low, dtype=np.float64)
        self._row_high = np.array(program.row_high, dtype=np.float64)
        self._whole = program.whole
        self._duals = duals
        self._limits: tuple[bool, Limit] | None = None  # as set in HiGHS
        for name, option in (
            ("output_flag", False),
            ("threads", 1),
            ("parallel", "off"),
            ("presolve", "on" if presolve or program.whole is not None else "off"),
            # From a given basis few steps remain, so exact steepest-edge weights would cost more than they save.
            ("simplex_dual_edge_weight_strategy", EDGE_WEIGHTS_CHOSEN if basis is None else EDGE_WEIGHTS_DEVEX),
            ("primal_feasibility_tolerance", tolerance),
            ("dual_feasibility_tolerance", tolerance),
            ("mip_rel_gap", gap),
        ):
            self._call("setOptionValue", name, option)
        self._pass(program)
        if basis is not None:
            self.set_basis(basis)

    def solve(self, limit: Limit = NO_LIMIT, *, primal: bool = False) -> Outcome:
        """Solve, starting from the last basis.

        `primal` is faster after a change of costs alone; changes of rows and bounds leave the last basis dual feasible.
        """
        clock = current_clock()
        if clock is not None:
            limit = replace(limit, seconds=clock.seconds(limit.seconds))
        if self._limits != (primal, limit) or limit.seconds is not None:
            self._set_limits(limit, primal)
        if self._highs.run() == self._error:
            return SolverFailed(f"HiGHS stopped with an error ({self._status()})")
        return self._outcome()

    def _set_limits(self, limit: Limit, primal: bool) -> None:
        self._limits = (primal, limit)
        self._call("setOptionValue", "simplex_strategy", SIMPLEX_PRIMAL if primal else SIMPLEX_DUAL)
        infinite = self._highspy.kHighsIInf
        self._call("setOptionValue", "simplex_iteration_limit", _or(limit.iterations, infinite))
        self._call("setOptionValue", "mip_max_nodes", _or(limit.nodes, infinite))
        # HiGHS compares the limit with the total time of all solves of this model so far.
        until_s = math.inf if limit.seconds is None else self._highs.getRunTime() + limit.seconds
        self._call("setOptionValue", "time_limit", until_s)

    def set_costs(self, columns: IntArray, cost: FloatArray) -> None:
        _check_finite("cost", cost)
        self._call("changeColsCost", len(columns), _int32(columns), cost)

    def set_bounds(self, columns: IntArray, low: FloatArray, high: FloatArray) -> None:
        _check_bounds(low, high)
        self._low[columns], self._high[columns] = low, high
        self._call("changeColsBounds", len(columns), _int32(columns), low, high)

    def set_row_bounds(self, rows: IntArray, low: FloatArray, high: FloatArray) -> None:
        _check_bounds(low, high)
        self._row_low[rows], self._row_high[rows] = low, high
        self._call("changeRowsBounds", len(rows), _int32(rows), low, high)

    def set_row_bound(self, row: int, low: float, high: float) -> None:
        if not low <= high:  # also catches NaN
            raise BrokenInvariantError(f"bounds {low}..{high} of row {row} are not in order")
        self._row_low[row], self._row_high[row] = low, high
        self._call("changeRowBounds", row, low, high)

    def set_coefficient(self, row: int, column: int, value: float) -> None:
        if not math.isfinite(value):
            raise BrokenInvariantError(f"coefficient ({row}, {column}) is {value}")
        self._call("changeCoeff", row, column, value)

    def add_rows(self, low: FloatArray, high: FloatArray, start: IntArray, index: IntArray, value: FloatArray) -> None:
        """Add rows from row-wise entries: row r has value[start[r]:start[r+1]] in columns index[start[r]:start[r+1]]."""
        _check_bounds(low, high)
        _check_finite("coefficients", value)
        self._row_low, self._row_high = np.concatenate([self._row_low, low]), np.concatenate([self._row_high, high])
        self._call("addRows", len(low), low, high, len(value), _int32(start), _int32(index), value)

    def add_columns(
        self,
        cost: FloatArray,
        low: FloatArray,
        high: FloatArray,
        start: IntArray,
        index: IntArray,
        value: FloatArray,
    ) -> None:
        """Add continuous columns, with column-wise entries as in `LinearProgram`."""
        _check_bounds(low, high)
        _check_finite("cost", cost)
        _check_finite("coefficients", value)
        self._low, self._high = np.concatenate([self._low, low]), np.concatenate([self._high, high])
        if self._whole is not None:
            self._whole = np.concatenate([self._whole, np.zeros(len(cost), dtype=np.bool_)])
        self._call("addCols", len(cost), cost, low, high, len(value), _int32(start), _int32(index), value)

    def delete_rows(self, rows: IntArray) -> None:
        """Delete rows; the rows behind them move up."""
        self._row_low, self._row_high = np.delete(self._row_low, rows), np.delete(self._row_high, rows)
        self._call("deleteRows", len(rows), _int32(rows))

    def keep_optima(self, optimum: Optimal) -> bool:
        """Exclude every point that is worse than `optimum`, this model's optimum. False if no other point is as good.

        By complementary slackness, the optima are the feasible points that keep to the binding bound wherever `optimum`
        has a reduced cost or a dual. A second objective may then choose among them.
        """
        fixed = np.flatnonzero(np.abs(optimum.reduced_cost) > OPTIMAL_FACE)
        tight = np.flatnonzero(np.abs(optimum.row_dual) > OPTIMAL_FACE)
        if len(fixed) + len(tight) == len(optimum.x):  # every non-basic variable has a cost: a single vertex is optimal
            return False
        bound = _binding(optimum.reduced_cost, self._low, self._high)[fixed]
        self.set_bounds(fixed, bound, bound)
        bound = _binding(optimum.row_dual, self._row_low, self._row_high)[tight]
        self.set_row_bounds(tight, bound, bound)
        return True

    def basis(self) -> Basis:
        basis = self._highs.getBasis()
        return Basis(bytes([s.value for s in basis.col_status]), bytes([s.value for s in basis.row_status]))

    def set_basis(self, basis: Basis) -> None:
        """Start the next solve from this basis. A basis of another size crashes; a singular one is repaired."""
        status = [self._highspy.HighsBasisStatus(code) for code in range(5)]
        start = self._highspy.HighsBasis()
        start.col_status = [status[code] for code in basis.columns]
        start.row_status = [status[code] for code in basis.rows]
        start.valid = True
        # With too many or too few basic variables, HiGHS must repair the basis first.
        start.alien = (basis.columns + basis.rows).count(BASIC) != len(basis.rows)
        self._call("setBasis", start)

    def _pass(self, program: LinearProgram) -> None:
        columns, rows = len(program.cost), len(program.row_low)
        # HiGHS never returns from a NaN cost, so everything is checked before it is passed in.
        _check_finite("cost", program.cost)
        _check_finite("coefficients", program.value)
        _check_bounds(program.low, program.high)
        _check_bounds(program.row_low, program.row_high)
        whole = np.zeros(columns, dtype=np.int32) if program.whole is None else program.whole.astype(np.int32)
        self._call(
            "passModel",
            columns,
            rows,
            len(program.value),
            int(self._highspy.MatrixFormat.kColwise),
            int(self._highspy.ObjSense.kMinimize),
            0.0,
            program.cost,
            self._low,
            self._high,
            program.row_low,
            program.row_high,
            _int32(program.start),
            _int32(program.index),
            program.value,
            whole,
        )

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._highs, name)(*arguments)
        # A warning reports tiny coefficients (below 1e-9) that HiGHS treats as zero, which is right.
        if status == self._error:
            raise BrokenInvariantError(f"HiGHS refused {name}{arguments[:2]}")

    def _status(self) -> str:
        return str(self._highs.modelStatusToString(self._highs.getModelStatus()))

    def _outcome(self) -> Outcome:
        status = self._highs.getModelStatus()
        if status == self._is_optimal:
            return self._optimal()
        kind = self._highspy.HighsModelStatus
        if status in (kind.kTimeLimit, kind.kIterationLimit, kind.kSolutionLimit):
            clock = current_clock()
            if clock is not None and status == kind.kTimeLimit:
                clock.cut_short = True
            return self._stopped()
        if status == kind.kInfeasible:
            return Infeasible()
        return SolverFailed(f"HiGHS ended with: {self._status()}")

    def _optimal(self) -> Optimal:
        solution = self._highs.getSolution()
        return Optimal(
            x=self._accept(solution),
            objective=self._highs.getObjectiveValue(),
            row_dual=self._dual(solution, "row_dual", len(self._row_low)),
            reduced_cost=self._dual(solution, "col_dual", len(self._low)),
            basis=None,
            iterations=self._highs.getInfoValue("simplex_iteration_count")[1],
        )

    def _dual(self, solution: Any, name: str, size: int) -> FloatArray:
        if not self._duals:
            return _NO_DUALS
        return np.array(getattr(solution, name)) if self._whole is None else np.full(size, np.nan)

    @property
    def spent_s(self) -> float:
        """Seconds inside the solver since the model was opened."""
        return float(self._highs.getRunTime())

    def _stopped(self) -> TimeLimit:
        info = self._highs.getInfo()
        bound = -math.inf if self._whole is None else info.mip_dual_bound
        if info.primal_solution_status != int(self._highspy.SolutionStatus.kSolutionStatusFeasible):
            return TimeLimit(None, math.inf, bound)
        return TimeLimit(self._accept(self._highs.getSolution()), info.objective_function_value, bound)

    def _accept(self, solution: Any) -> FloatArray:
        """x inside its bounds, and whole where it must be: the one place where the solver's tolerances are removed."""
        x: FloatArray = np.minimum(np.maximum(np.array(solution.col_value), self._low), self._high)
        return x if self._whole is None else np.where(self._whole, np.rint(x), x)


def _without_columns(program: LinearProgram) -> Outcome:
    """The outcome of a program without columns, which HiGHS calls empty; its rows read row_low <= 0 <= row_high."""
    if np.any(program.row_low > 0) or np.any(program.row_high < 0):
        return Infeasible()
    return Optimal(np.empty(0), 0.0, np.zeros(len(program.row_low)), np.empty(0), None, 0)


def _binding(dual: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """The bound that is active at a minimum; within the tolerance a dual may have the wrong sign for the only bound."""
    at_low = ((dual > 0) & np.isfinite(low)) | ~np.isfinite(high)
    return np.where(at_low, low, high)


def _int32(array: IntArray) -> Any:
    return np.ascontiguousarray(array, dtype=np.int32)


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _check_finite(name: str, array: FloatArray) -> None:
    if not np.isfinite(array).all():
        raise BrokenInvariantError(
            f"{name} of a program must be finite; entry {int(np.argmin(np.isfinite(array)))} is not"
        )


def _check_bounds(low: FloatArray, high: FloatArray) -> None:
    if not (low <= high).all():  # also catches NaN
        raise BrokenInvariantError(f"bounds of a program must be in order; entry {int(np.argmin(low <= high))} is not")
