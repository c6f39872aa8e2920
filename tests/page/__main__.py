"""`python -m tests.page` takes the pictures of the docs anew, of planted workers in a real browser."""

from __future__ import annotations

from pathlib import Path

from tests.page.browser import Look, chromium, visiting
from tests.page.states import ACTIVITY, STATES, serving

FOLDER = Path(__file__).parents[2] / "docs" / "images"


def main() -> None:
    """The overview in trouble, a job with its charts, a run that is on, and a policy."""
    FOLDER.mkdir(exist_ok=True)
    with chromium() as browser:
        for name, state, path in (
            ("overview", "failing", "/"),
            ("job", "fine", f"/jobs/{ACTIVITY.name}"),
            ("run", "running", ""),
            ("policy", "refused", f"/jobs/{ACTIVITY.name}/policy"),
        ):
            planted = STATES[state]()
            running = planted.history.of(ACTIVITY.name).running
            with (
                serving(planted) as at,
                visiting(browser, Look()) as visit,
            ):
                visit.open(f"http://{at}{path or f'/runs/{running.run_id if running else None}'}")
                visit.page.screenshot(path=FOLDER / f"{name}.png", animations="disabled")


if __name__ == "__main__":
    main()
