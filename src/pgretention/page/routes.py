"""The addresses of the page and of its JSON, each behind the gate (docs/reference/http.md)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from pgretention import __version__
from pgretention.job import Job
from pgretention.page import cards, charts, runbooks, tree
from pgretention.page.guard import HEADERS, Gate
from pgretention.page.situation import Watched
from pgretention.page.verdict import Tone
from pgretention.page.words import ago, clock_time, count, roughly
from pgretention.sinks.history import DETAILED, RUNS, JobHistory
from pgretention.sinks.records import RunRecord
from pgretention.sinks.summary import remedy

Endpoint = Callable[[Request], Response]

_STATIC: Final = {
    "favicon.svg": "image/svg+xml",
    "page.css": "text/css",
    "page.js": "text/javascript",
    "uplot.css": "text/css",
    "uplot.js": "text/javascript",
}
_NOT_HERE: Final = "This worker does not run the job, and so does not look at its database."
_CODE: Final = re.compile("`([^`]+)`")
_QUEUE: Final = 30
"""Requests for a page that wait at a time."""

_LISTED: Final = 100
"""Runs that the page of a job lists; its charts have all."""

_LIVE, _IDLE, _CALM = 2, 5, 15
"""Seconds after which a page looks again: while a run is on, else, and where it is long and changes once a night."""


def routes(watched: Watched, gate: Gate) -> list[Route]:
    """The page, its JSON and whatever else they need; what is not there is answered here too."""
    page = _Page(watched)
    answers: dict[str, Endpoint] = {
        "/": page.overview,
        "/jobs/{job}": page.job,
        "/jobs/{job}/policy": page.policy,
        "/runs/{run}": page.run,
        "/runbooks": page.runbooks,
        "/runbooks/{runbook}": page.runbook,
        "/api/jobs": page.api_jobs,
        "/api/jobs/{job}": page.api_job,
        "/api/jobs/{job}/policy": page.api_policy,
        "/api/jobs/{job}/runs": page.api_runs,
        "/api/runs/{run}": page.api_run,
        "/static/{name}": page.static,
        "/favicon.ico": page.favicon,
        "/{anything:path}": page.missing,
    }
    studio = _Studio()
    return [Route(path, studio.drawing(_behind(gate, page, endpoint))) for path, endpoint in answers.items()]


class _Studio:
    """Draws one page after the other, beside the server's thread, for a few people at a time.

    Whoever comes while as many wait is sent away at once, and whoever has left is not drawn for: however many look, the
    server has room for probes.
    """

    def __init__(self) -> None:
        self._artist = ThreadPoolExecutor(max_workers=1, thread_name_prefix="page")
        self._free = asyncio.Lock()
        self._waiting = 0

    def drawing(self, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        """The endpoint as the server calls it."""

        async def answer(request: Request) -> Response:
            if self._waiting >= _QUEUE:
                return PlainTextResponse("Too many look at once; try again in a moment.\n", 503, HEADERS)
            self._waiting += 1
            try:
                async with self._free:
                    if await request.is_disconnected():
                        return Response(status_code=204)
                    return await asyncio.get_running_loop().run_in_executor(self._artist, endpoint, request)
            finally:
                self._waiting -= 1

        return answer


def _behind(gate: Gate, page: _Page, endpoint: Endpoint) -> Endpoint:
    def answer(request: Request) -> Response:
        response = gate.turned_away(request.headers)
        if response is None:
            try:
                response = endpoint(request)
            except _Missing as missing:
                response = page.not_found(request, str(missing))
        response.headers.update(HEADERS)
        return response

    return answer


class _Missing(Exception):
    """What was asked for is not there, and why."""


class _Page:
    """Answers requests out of what is known at that moment."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._jobs = {job.name: job for job in watched.jobs}
        self._pasts: dict[str, tuple[tuple[RunRecord, ...], str]] = {}
        self._templates = Environment(
            loader=PackageLoader("pgretention.page"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters["coded"] = _coded
        names: dict[str, Any] = {
            "jobs": list(self._jobs),
            "version": __version__,
            "machine": watched.machine,
            "at": clock_time,
            "ago": ago,
            "count": count,
            "number": _number,
            "backlog_words": cards.backlog_words,
            "outcome_tone": cards.outcome_tone,
            "outcome_words": cards.outcome_words,
            "roughly_seconds": lambda seconds: roughly(timedelta(seconds=seconds)),
            "runbook_title": _title,
        }
        self._templates.globals.update(names)

    def overview(self, _: Request) -> Response:
        """A card for each job."""
        shown = [cards.card(self._watched.situation(job)) for job in self._watched.jobs]
        live = any(card.running for card in shown)
        return self._html("overview.html", "/", _LIVE if live else _IDLE, cards=shown, headline=_headline(shown))

    def job(self, request: Request) -> Response:
        """Charts and runs of a job."""
        job = self._job(request)
        situation = self._watched.situation(job)
        return self._html(
            "job.html",
            f"/jobs/{job.name}",
            _IDLE if situation.history.running else _CALM,
            card=cards.card(situation),
            past=self._past(job, situation.history.runs),
            schedule=job.schedule.words(),
        )

    def _past(self, job: Job, runs: tuple[RunRecord, ...]) -> str:
        """Charts and list of the runs of a job, drawn once for as long as no other one has ended: it takes a while."""
        drawn_of, drawn = self._pasts.get(job.name, ((), ""))
        if drawn_of is not runs or not drawn:
            template = self._templates.get_template("past.html")
            listed = runs[: -_LISTED - 1 : -1]
            drawn = template.render(charts=charts.of_job(job, runs), runs=listed, remembered=_remembered(len(runs)))
            self._pasts[job.name] = runs, drawn
        return drawn

    def policy(self, request: Request) -> Response:
        """What a job deletes: tables, foreign keys, findings and statements."""
        job = self._job(request)
        survey = self._watched.survey(job.name)
        here = job.name in self._watched.here
        picture = None if survey is None else tree.tree(job.policy, survey.references)
        return self._html(
            "policy.html",
            f"/jobs/{job.name}/policy",
            None if survey or not here else _IDLE,
            name=job.name,
            deletes=cards.in_words(job.policy),
            limits=f"{count(job.limits.batch_size, 'row')} with what belongs to them in a transaction",
            survey=survey,
            database=self._watched.databases[job.name],
            unseen=self._watched.unseen(job.name) if here else _NOT_HERE,
            tree=picture,
            picture=_picture_in_words(job),
            box_width=tree.WIDTH,
            box_height=tree.HEIGHT,
        )

    def run(self, request: Request) -> Response:
        """One run."""
        record = self._record(request)
        job = self._jobs[record.job]
        return self._html(
            "run.html",
            f"/runs/{record.run_id}",
            None if record.outcome else _LIVE,
            run=record,
            ending=cards.ending(record, job),
            keys=cards.keys_words(record.error) if record.error else "",
            remedy=remedy(record.error.kind) if record.error else "",
            deleted={str(table): record.deleted.get(str(table), 0) for table in job.policy.tables},
            charts=charts.of_run(job, record),
            **_progress(job, record),
            facts=tuple(cards.facts_of_run(record, job, self._watched.clock.now())),
        )

    def runbook(self, request: Request) -> Response:
        """One runbook."""
        found = runbooks.runbook(request.path_params["runbook"])
        if found is None:
            raise _Missing("No runbook is called that.")
        return self._html("runbook.html", request.url.path, None, runbook=found)

    def runbooks(self, _: Request) -> Response:
        """The list of them."""
        return self._html("runbooks.html", "/runbooks", None, names=runbooks.names())

    def api_jobs(self, _: Request) -> Response:
        """Every card as JSON."""
        jobs = [cards.as_json(self._watched.situation(job)) for job in self._watched.jobs]
        return JSONResponse({"machine": self._watched.machine, "jobs": jobs})

    def api_job(self, request: Request) -> Response:
        """One card as JSON."""
        return JSONResponse(cards.as_json(self._watched.situation(self._job(request))))

    def api_runs(self, request: Request) -> Response:
        """The runs of a job as JSON, the latest first, without their batches."""
        return JSONResponse({"runs": [cards.in_short(run) for run in reversed(self._history(request).runs)]})

    def api_run(self, request: Request) -> Response:
        """One run as JSON, with its batches."""
        return JSONResponse(self._record(request).as_json())

    def api_policy(self, request: Request) -> Response:
        """What a job deletes, as JSON."""
        return JSONResponse(self._policy_as_json(self._job(request)))

    def static(self, request: Request) -> Response:
        """What the pages are made with."""
        name = request.path_params["name"]
        if name not in _STATIC:
            raise _Missing("There is no such file.")
        return Response((files("pgretention.page") / "static" / name).read_bytes(), media_type=_STATIC[name])

    def favicon(self, _: Request) -> Response:
        """For whoever asks for it by its old name."""
        content = (files("pgretention.page") / "static" / "favicon.svg").read_bytes()
        return Response(content, media_type=_STATIC["favicon.svg"])

    def missing(self, _: Request) -> Response:
        """Whatever else was asked for."""
        raise _Missing("There is nothing at this address.")

    def not_found(self, request: Request, why: str) -> Response:
        """A 404 of the kind that was asked for."""
        if request.url.path.startswith("/api"):
            return JSONResponse({"error": why}, 404)
        answer = self._html("missing.html", "", None, why=why)
        answer.status_code = 404
        return answer

    def _job(self, request: Request) -> Job:
        try:
            return self._jobs[request.path_params["job"]]
        except KeyError:
            raise _Missing(f"This worker has {' and '.join(self._jobs)}, and no job of that name.") from None

    def _history(self, request: Request) -> JobHistory:
        return self._watched.history.of(self._job(request).name)

    def _record(self, request: Request) -> RunRecord:
        record = self._watched.history.run(request.path_params["run"])
        if record is None:
            raise _Missing("No run of that id is remembered: it is too long ago, or another worker's.")
        return record

    def _policy_as_json(self, job: Job) -> dict[str, Any]:
        survey = self._watched.survey(job.name)
        return {
            "job": job.name,
            "tables": [str(table) for table in job.policy.tables],
            "looked_at": None if survey is None else survey.at.isoformat(),
            "not_looked_at_because": self._watched.unseen(job.name),
            "foreign_keys": [
                {
                    "name": key.name,
                    "table": str(key.table),
                    "columns": list(key.columns),
                    "references": str(key.references),
                    "on_delete": key.on_delete,
                    "rows": key.rows,
                    "indexed": key.indexed,
                }
                for key in (survey.references if survey else ())
            ],
            "statements": dict(survey.statements) if survey else {},
            "findings": [finding.as_json() for finding in (survey.findings if survey else ())],
        }

    def _html(self, template: str, here: str, refresh: int | None, **context: Any) -> Response:
        shown = self._templates.get_template(template)
        return HTMLResponse(shown.render(here=here, refresh=refresh, now=self._watched.clock.now(), **context))


def _headline(shown: list[cards.Card]) -> str:
    """The state of it all in a sentence."""
    trouble = [card.name for card in shown if card.verdict.needs_somebody]
    if trouble:
        return f"{' and '.join(trouble)} need{'s' if len(trouble) == 1 else ''} somebody"
    running = [card.name for card in shown if card.running]
    if running:
        return f"{' and '.join(running)} running"
    return "All is well" if all(card.verdict.tone is Tone.GOOD for card in shown) else "Nothing needs anybody"


def _remembered(runs: int) -> str:
    """How many runs are listed, and how much is known of them."""
    if runs > _LISTED:
        kept = f"{RUNS:,} at most are remembered, the latest {DETAILED} batch by batch"
        return f"The latest {_LISTED} of {count(runs, 'run')}; {kept}."
    if runs > DETAILED:
        return f"{count(runs, 'run')}, the latest {DETAILED} of which are remembered batch by batch."
    return f"{count(runs, 'run')}, remembered batch by batch."


def _progress(job: Job, record: RunRecord) -> dict[str, Any]:
    """How far a run is by the backlog it began with: a share of it where that is known, and words."""
    before, root = record.backlog_before, str(job.policy.root)
    gone = record.deleted.get(root, 0)
    words = f"{count(gone, 'row')} of {root} gone, of {cards.backlog_words(before)}"
    share = min(1.0, gone / before.rows) if before is not None and before.rows else None
    return {"share": share, "progress": words}


def _picture_in_words(job: Job) -> str:
    order = ", then ".join(str(table) for table in job.policy.tables)
    return f"Deleted in this order: {order}. The table below has each foreign key in words."


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "not known"
    return f"{value:,.3f} s" if unit == "seconds" else f"{value:,.0f}"


def _coded(text: str) -> Markup:
    """A text with what stands between backticks set as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704  it is escaped


def _title(name: str) -> str:
    found = runbooks.runbook(name)
    return name if found is None else found.title
