"""Types that the modules of the inbox share."""

from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

# Runs one SQL statement with its parameters on a connection of the calling thread.
Execute = Callable[[str, list[Any] | None], duckdb.DuckDBPyConnection]

Numbers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
