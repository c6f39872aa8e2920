"""What a command that did not end well tells the shell (design section 5)."""

from __future__ import annotations

FAILED, WRONG_USE, REFUSED = 1, 2, 3
