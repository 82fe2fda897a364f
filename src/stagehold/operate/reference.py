"""The page that lists every option, made from the models that refuse unknown ones, so that the two cannot differ.

Owns the page's wording around the tables. What an option means stands at its field; what a limit is for stands in
the docstring below it, which is read from the source.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from stagehold import EngineConfig, Limits
from stagehold.machines.matrix import table
from stagehold.operate.given import DELIMITER, PREFIX
from stagehold.operate.partners import ALWAYS, PARTNERS
from stagehold.operate.settings import ComponentSettings, Settings
from stagehold.operate.staging import RATIOS

HEAD = """# Configuration

<!-- Generated from the models by `stagehold config reference`; a test compares it. -->

An engine is told its options in Python (`EngineConfig`), or by a TOML file, environment variables and arguments:

```sh
stagehold config show --config stagehold.toml --set limits.fetch_limit=256
stagehold config check --config stagehold.toml
```

`show` prints every option with where it was set, and the limits that follow, each with its arithmetic; `check` prints
how many are set, or a line for each thing that is wrong. Neither opens the store: `stagehold doctor` does. In Python,
`stagehold.operate.settings.load(file).open()` is an engine with its store.

An argument comes before the environment, the environment before the file, the file before the default. An environment
variable is `{prefix}` and its name in capitals, with `{delimiter}` for a dot: `{prefix}LIMITS{delimiter}TRIES`.
An empty one counts as unset, `{prefix}LIMITS` and `{prefix}COMPONENTS` are JSON, and `{prefix}TOKEN` is no option
but [the live view](live.md)'s. In the file, limits stand in a table `[limits]` and
components in tables `[[components]]`:

```toml
device_pages = 512
largest_request_tokens = 8192
host_memory_mode = "buffer_only"
staging_ratio = 1.2
store = "file:///var/cache/kv?capacity=10GiB"

[limits]
fetch_limit = 256
```

An unknown name is refused, wherever it stands, with the nearest one that is known. `staging_pages`, `staging_ratio` and
`staging_bytes` size the same buffer: at most one of them is set, and without any the ratio is {cache} in cache mode and
{buffer_only} in buffer_only. A component without `staging_pages` gets its share by the same ratio."""


def page() -> str:
    """The whole of docs/configuration.md."""
    heads = ("option", "default", "allowed", "what it is, or why it is that much")
    ratios = {mode.value: ratio for mode, ratio in RATIOS.items()}
    parts = [
        HEAD.format(prefix=PREFIX, delimiter=DELIMITER, **ratios),
        "## Options",
        table(heads, list(_rows(Settings, leave=("limits", "components")))),
        "## `[limits]`",
        "Ticks unless the name says otherwise. A tick is one pass of the scheduler.",
        table(heads, list(_rows(Limits))),
        "## `[[components]]`",
        "One table for each kind of KV beside full attention. A name appears in object names and books.",
        table(heads, list(_rows(ComponentSettings))),
        "## Options that need another one",
        "An option that was set and would do nothing is refused.",
        table(("set", "needs"), list(_partners())),
    ]
    return "\n\n".join(parts) + "\n"


def _rows(model: type[BaseModel], leave: Iterable[str] = ()) -> Iterator[tuple[str, str, str, str]]:
    told = {**_docstrings(EngineConfig), **_docstrings(Limits)}
    for name, field in model.model_fields.items():
        if name not in leave:
            text = field.description or told.get(name) or ""
            yield f"`{name}`", _default(field.default), _allowed(field), text


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The string below each field in the source."""
    body = ast.parse(inspect.getsource(model)).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            found[field.target.id] = " ".join(str(ast.literal_eval(below.value)).split())
    return found


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "must be set"
    if value is None or value == ():
        return "none"
    return f"`{value.value if isinstance(value, Enum) else value}`"


def _allowed(field: Any) -> str:
    """Its kind and bounds, or its members."""
    kinds = [kind for kind in _members(field.annotation) if kind is not NoneType]
    kind = kinds[0]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(f"`{member.value}`" for member in kind)
    word = {int: "whole number", float: "number", str: "text", bool: "true or false"}.get(kind, str(kind))
    bounds = [
        f"{sign} {getattr(one, name):g}" for one in field.metadata for cls, name, sign in BOUNDS if isinstance(one, cls)
    ]
    return " ".join([word, *bounds])


BOUNDS = ((Ge, "ge", "≥"), (Gt, "gt", ">"), (Le, "le", "≤"), (Lt, "lt", "<"))


def _members(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _partners() -> Iterator[tuple[str, str]]:
    for one in (*ALWAYS, *PARTNERS):
        yield ", ".join(f"`{name}`" for name in one.options), one.needs
