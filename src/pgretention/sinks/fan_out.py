"""One observer out of many sinks, none of which can stop a deletion or silence another."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pgretention.report import CatchingUp, Fact, RunFinished, RunScheduled, RunsMissed
from pgretention.sinks import logs
from pgretention.sinks.log_names import ERROR

Sink = Callable[[Fact], None]


def fan_out(sinks: Iterable[Sink]) -> Sink:
    """A sink that hands every fact to each of `sinks` in turn and never raises (design section 3).

    A sink that raises is logged once a run, by its name and the type of the error only, since the text of somebody
    else's error may quote anything. It is asked again all the same: who missed a batch must still learn how the run
    ended, so that a gauge is set and a progress bar closed.
    """
    told = tuple(sinks)
    complained: set[tuple[int, str | None]] = set()

    def observe(fact: Fact) -> None:
        job, run_id = _about(fact)
        for place, sink in enumerate(told):
            try:
                sink(fact)
            except Exception as error:  # noqa: BLE001  whatever a sink does wrong, the run goes on
                if (place, run_id) not in complained:
                    complained.add((place, run_id))
                    _complain(sink, error, job=job, run_id=run_id)
        if isinstance(fact, RunFinished):
            complained.difference_update([(place, run_id) for place in range(len(told))])

    return observe


def _about(fact: Fact) -> tuple[str, str | None]:
    """The job and, where there is one, the run."""
    match fact:
        case RunFinished(report):
            return report.job, report.run_id
        case RunScheduled() | CatchingUp() | RunsMissed():
            return fact.job, None
        case _:
            return fact.job, fact.run_id


def _complain(sink: Sink, error: Exception, *, job: str, run_id: str | None) -> None:
    name = getattr(sink, "__qualname__", type(sink).__qualname__)
    logs.say(ERROR, "sink failed", job=job, run_id=run_id, sink=name, error_type=type(error).__qualname__)
