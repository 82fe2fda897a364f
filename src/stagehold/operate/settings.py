"""What an engine is started with, from a file, the environment and arguments: one model, made from `EngineConfig`.

Arguments come before the environment, that before the file, and that before the defaults. Owns where a value may come
from and what is refused before the engine's own rules are asked: unknown names, wrong types, options without their
partner. The fields are those of `EngineConfig`, and three that stand for others: `store`, `staging_ratio` and
`staging_bytes`.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, Field, ValidationError, create_model
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from stagehold import ComponentConfig, Engine, EngineConfig
from stagehold.operate.given import (
    DELIMITER,
    ENVIRONMENT,
    PREFIX,
    TABLES,
    ConfigurationError,
    dotted,
    of_environment,
    of_file,
)
from stagehold.operate.partners import refuse_alone
from stagehold.operate.staging import Staging, sized

ARGUMENTS, DEFAULT = "arguments", "default"
MOST = (1 << 63) - 1
NAME_SHOWN = 80


class _Base(BaseSettings):
    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix=PREFIX, env_nested_delimiter=DELIMITER, env_ignore_empty=True
    )
    store: str | None = Field(default=None, min_length=1, description="URL of the store; none: no store is used")
    staging_ratio: float | None = Field(
        default=None,
        gt=0,
        description="host buffer by the size of the device pool; 2.0, in buffer_only 1.2",
    )
    staging_bytes: int | None = Field(
        default=None, ge=1, description="host buffer of one rank in bytes, over all components; needs attached tensors"
    )


def _model(name: str, base: type[BaseModel] | None, source: type[BaseModel], **other: Any) -> type[BaseModel]:
    """The fields of `source`, as they are, but for the `other` ones."""
    fields = {key: (found.annotation, found) for key, found in source.model_fields.items()} | other
    config = None if base is not None else source.model_config
    return cast("type[BaseModel]", create_model(name, __base__=base, __config__=config, **fields))


def _pages(description: str) -> Any:
    return (int | None, Field(default=None, ge=0, description=description))


ComponentSettings = _model(
    "ComponentSettings", None, ComponentConfig, staging_pages=_pages("its part of the host buffer; unset: by the ratio")
)
Settings = _model(
    "Settings",
    _Base,
    EngineConfig,
    staging_pages=_pages("pages of the host buffer; 0: no tier, and no store"),
    components=(tuple[ComponentSettings, ...], Field(default=(), description="kinds of KV beside full attention")),  # type: ignore[valid-type]
)
"""Every option that may be set, before anything is derived."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """What an engine starts with: its configuration, the store's URL, and how the host buffer was sized.

    `origins` says of each option that was set, by its dotted name, where: arguments, environment, or the file.
    """

    engine: EngineConfig
    store: str | None
    staging: Staging
    origins: Mapping[str, str] = field(default_factory=dict)

    def open(self, **options: Any) -> Engine:
        """An engine with its store, if it has one; `options` are those of `Engine`. Closing it closes the store."""
        from stagehold.cache.stores.open import open_store

        if self.store is None:
            return Engine(self.engine, **options)
        store = open_store(self.store, self.engine.largest_page_bytes)
        try:
            return Engine(self.engine, store=store, **options)
        except BaseException:
            store.close()
            raise


def load(file: Path | None = None, arguments: Mapping[str, Any] | None = None) -> Configuration:
    """Read all three sources. ConfigurationError, with a line for each thing that is wrong."""
    given = dict(arguments or {})
    read = {} if file is None else of_file(file)
    places = {ARGUMENTS: given, ENVIRONMENT: of_environment(), **({} if file is None else {str(file): read})}
    _refuse_unknown(places)
    origins = _origins(places)
    try:
        settings = _settings(given, read)
        staging = sized(settings)
        engine = EngineConfig(**_engine_values(settings, staging))
    except ValidationError as error:
        raise ConfigurationError("\n".join(_told(problem, origins) for problem in error.errors())) from error
    except OverflowError as error:
        raise ConfigurationError(f"the host buffer is too large to compute: {error}; pages are not bytes") from error
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    wrong = [*_huge(engine, origins)] or refuse_alone(engine, settings.store, frozenset(origins))
    if wrong:
        raise ConfigurationError("\n".join(wrong))
    return Configuration(engine, settings.store, staging, origins)


def _settings(given: dict[str, Any], read: dict[str, Any]) -> Any:
    class Here(Settings):  # type: ignore[misc,valid-type]
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            **_: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, _FileSource(settings_cls, read)

    return Here(**given)


class _FileSource(PydanticBaseSettingsSource):
    """What was read from the file."""

    def __init__(self, settings_cls: type[BaseSettings], read: dict[str, Any]) -> None:
        super().__init__(settings_cls)
        self._read = read

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002
        """One value as it stands in the file."""
        return self._read.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        """All of it."""
        return self._read


def _engine_values(settings: Any, staging: Staging) -> dict[str, Any]:
    """The fields of `EngineConfig`; what was derived in its place."""
    values = {name: getattr(settings, name) for name in EngineConfig.model_fields}
    parts = [one.model_dump() | {"staging_pages": staging.parts[one.name]} for one in settings.components]
    return values | {"staging_pages": staging.pages, "components": tuple(ComponentConfig(**one) for one in parts)}


def shown(url: str | None) -> str | None:
    """A store's URL as it may be printed: without the password that it may hold, however that is written."""
    scheme, there, rest = (url or "").partition("://")
    user, at, address = rest.rpartition("@")
    name, colon, _ = user.partition(":")
    return f"{scheme}://{name}:***@{address}" if there and at and colon else url


# Where it comes from


def _origins(places: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Where each option that is set takes its value from."""
    found: dict[str, str] = {}
    for place, tree in places.items():
        for name in dotted(tree):
            found.setdefault(name, place)
    return found


# What is refused


def names() -> list[str]:
    """Every option, by its dotted name; those of a component as `components.NAME`."""
    own = [name for name in Settings.model_fields if name not in TABLES]
    limits = [f"limits.{name}" for name in EngineConfig.model_fields["limits"].annotation.model_fields]  # type: ignore[union-attr]
    return [*own, *limits, *(f"components.{name}" for name in ComponentSettings.model_fields)]


def _refuse_unknown(places: Mapping[str, Mapping[str, Any]]) -> None:
    known = set(names())
    wrong = [
        f"{place}: unknown option {_shown(name, place)}{_nearest(name, place, known)}"
        for place, tree in places.items()
        for name in _names_in(tree)
        if name not in known
    ]
    if wrong:
        raise ConfigurationError("\n".join(wrong))


def _huge(engine: EngineConfig, origins: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each whole number that no counter could hold."""
    tables = {"": engine, "limits.": engine.limits}
    tables |= {f"components.{place}.": one for place, one in enumerate(engine.components)}
    for before, table in tables.items():
        for name, value in table:
            if isinstance(value, int) and value > MOST:
                where = _origin(f"{before}{name}", origins)
                yield f"{where}: {before}{name} = {reprlib.repr(value)}: expected at most {MOST:,}"


def _names_in(tree: Mapping[str, Any]) -> Iterator[str]:
    """Dotted names; `limits` and `components` as a whole are looked into where they can be."""
    for name in dotted({key: value for key, value in tree.items() if key != "components"}):
        if name != "limits":
            yield name
    listed = tree.get("components")
    for one in listed if isinstance(listed, list | tuple) else ():
        if isinstance(one, Mapping):
            yield from (f"components.{name}" for name in one)


def _shown(name: str, place: str) -> str:
    name = name if len(name) <= NAME_SHOWN else f"{name[:NAME_SHOWN]}..."
    return PREFIX + name.upper().replace(".", DELIMITER) if place == ENVIRONMENT else repr(name)


def _nearest(name: str, place: str, known: set[str]) -> str:
    name = name[-NAME_SHOWN:]
    last = {one.rpartition(".")[2]: one for one in sorted(known, reverse=True)}
    close = get_close_matches(name, known, 1, 0.6) or [
        last[one] for one in get_close_matches(name.rpartition(".")[2], last, 1, 0.6)
    ]
    hint = f"; did you mean {_shown(close[0], place)}?" if close else ""
    return hint or "; `stagehold config reference` lists all options"


def _told(problem: Any, origins: Mapping[str, str]) -> str:
    """One line: where, which option, what is wrong with it. What a store was set to may hold a password."""
    says = problem["msg"].removeprefix("Value error, ")
    name = ".".join(str(part) for part in problem["loc"])
    if not name:
        return str(says)
    place = _origin(name, origins)
    if name == "components":
        says = "expected a list of tables, each headed [[components]] in a file"
    if problem["type"] == "missing" and len(problem["loc"]) > 1:
        return f"{place}: {name} is not set, and has no default"
    if problem["type"] == "missing":
        return f"{name} is not set, and has no default: set it in the file, as {_shown(name, ENVIRONMENT)}, or by --set"
    found = "" if problem["loc"][0] == "store" else f" = {reprlib.repr(problem['input'])}"
    return f"{place}: {name}{found}: {says}"


def _origin(name: str, origins: Mapping[str, str]) -> str:
    """Where an option was set, or what stands in it, or what it stands in."""
    for other, place in origins.items():
        if other == name or other.startswith(f"{name}.") or name.startswith(f"{other}."):
            return place
    return DEFAULT
