"""What a start may say in `kv_connector_extra_config`; an unknown name or a wrong value is refused."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stagehold import PrefetchPolicy


class ConnectorRefused(ValueError):
    """This vLLM, this model or these options cannot be served; the message says which of them, and what to do."""


class Loads(StrEnum):
    """When vLLM's blocks are filled from host memory."""

    ASYNC = "async"  # between steps, while others run
    SYNC = "sync"  # before the forward pass of the step that admits the request


class Options(BaseModel):
    """Sizes are pages of vLLM's block size unless the name says otherwise."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    store: str | None = Field(default=None, description="URL of the store; without one, host memory is the only tier")
    pool_pages: int | None = Field(default=None, ge=1, description="pages in host memory; as many as vLLM has blocks")
    window_pages: int | None = Field(default=None, ge=1, description="the same of each window; half as many")
    staging_pages: int | None = Field(default=None, ge=1, description="pages on their way; a quarter of the pool")
    loads: Loads = Field(default=Loads.ASYNC, description="when blocks are filled")
    threshold_tokens: int = Field(default=256, ge=1, description="fewer missing tokens are computed, not fetched")
    prefetch_policy: PrefetchPolicy = Field(default=PrefetchPolicy.TIMEOUT, description="how long the store may delay")
    reserve_tokens: int = Field(default=256, ge=1, description="of an answer, for which room is promised beforehand")
    pause_seconds: float = Field(default=0.005, gt=0.0, le=1.0, description="longest rest of a step without tokens")
    drain_seconds: float = Field(default=30.0, ge=0.0, description="for what is still to be stored, at the end")
    pool_folder: str = Field(default="/dev/shm", description="where the pool's memory has its name")  # noqa: S108
    audit_log: str | None = Field(default=None, description="file for the audit log")


def read_options(given: Mapping[str, Any]) -> Options:
    """Raise ConnectorRefused with the name of each option that is wrong, and what was expected."""
    try:
        return Options.model_validate(dict(given))
    except ValidationError as error:
        known = ", ".join(Options.model_fields)
        raise ConnectorRefused(f"kv_connector_extra_config: {sentences(error)}. Known are {known}") from error


def sentences(error: ValidationError) -> str:
    """What is wrong, in one line: each place and what was expected there."""
    return "; ".join(": ".join([*map(str, one["loc"]), one["msg"]]) for one in error.errors())
