"""What operators do: dig, kill, switch, snatch, restart, truncate, and looking without touching."""

from __future__ import annotations

import xq

# features of the user's own

RETRY = xq.Feature("retry", transitions=(xq.Transition("T", "retry", "R", fenced=True),))
