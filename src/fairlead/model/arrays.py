"""Names for the arrays that cross module boundaries; axis letters are in docs/glossary.md."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

NO_JOBS: IntArray = np.empty(0, dtype=np.int64)
NO_JOBS.flags.writeable = False
