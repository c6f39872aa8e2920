"""What every command takes, as click declares it; `--help` needs this, so it imports nothing that is slow to load."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from pgretention import FILE_VARIABLE


@dataclass(frozen=True, slots=True)
class Options:
    """What every command takes, before or after its name."""

    config: Path | None = None
    overrides: tuple[str, ...] = ()
    log_format: str | None = None
    log_level: str | None = None

    def over(self, outer: Options) -> Options:
        """These options, and where they say nothing those given before the command's name."""
        return Options(
            config=self.config or outer.config,
            overrides=(*outer.overrides, *self.overrides),
            log_format=self.log_format or outer.log_format,
            log_level=self.log_level or outer.log_level,
        )


def common_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that all share; it is handed them as one `Options` in the context's `obj`."""

    @click.option(
        "--config",
        type=click.Path(path_type=Path),
        help=f"Settings file: TOML, YAML or JSON. Else {FILE_VARIABLE} names it.",
    )
    @click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A setting that overrides all others.")
    @click.option("--log-format", type=click.Choice(["console", "json"]), help="Form of the log lines on stderr.")
    @click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Least level logged.")
    @click.pass_context
    def with_options(
        context: click.Context,
        /,
        *,
        config: Path | None,
        overrides: tuple[str, ...],
        log_format: str | None,
        log_level: str | None,
        **rest: Any,
    ) -> Any:
        context.obj = Options(config, overrides, log_format, log_level).over(context.obj or Options())
        return context.invoke(command, **rest)

    return functools.update_wrapper(with_options, command)
