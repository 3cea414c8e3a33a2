"""pandas, imported where it is first used: that takes half a second, which many commands and all hosts can spare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
else:

    class _Pandas:
        """Stands for the module. (One of importlib's LazyLoader would stand in `sys.modules`, where torch looks at the
        attributes of every module and so imports it.)"""

        def __getattr__(self, name: str) -> Any:
            import pandas

            return getattr(pandas, name)

    pd = _Pandas()

__all__ = ["pd"]
