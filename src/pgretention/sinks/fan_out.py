"""One observer out of many sinks, none of which can stop a deletion or silence another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from pgretention.report import Fact, RunFinished
from pgretention.sinks import logs

Sink = Callable[[Fact], None]


def fan_out(sinks: Iterable[Sink]) -> Sink:
    """A sink that hands every fact to each of `sinks` in turn and never raises (design section 3).

    A sink that raises is logged once a run, by its name and the type of the error only, since the text of somebody
    else's error may quote anything. It is asked again all the same: who missed a batch must still learn how the run
    ended, so that a gauge is set and a progress bar closed.
    """
    told = tuple(sinks)
    complained: set[tuple[int, str]] = set()

    def observe(fact: Fact) -> None:
        run = fact.report if isinstance(fact, RunFinished) else fact
        for place, sink in enumerate(told):
            try:
                sink(fact)
            except Exception as error:  # noqa: BLE001  whatever a sink does wrong, the run goes on
                if (place, run.run_id) not in complained:
                    complained.add((place, run.run_id))
                    _complain(sink, error, job=run.job, run_id=run.run_id)
        if isinstance(fact, RunFinished):
            complained.difference_update([(place, run.run_id) for place in range(len(told))])

    return observe


def _complain(sink: Sink, error: Exception, *, job: str, run_id: str) -> None:
    name = getattr(sink, "__qualname__", type(sink).__qualname__)
    with suppress(Exception):  # the log itself may be what is broken
        logs.logger().error("sink failed", job=job, run_id=run_id, sink=name, error_type=type(error).__qualname__)
