"""The pool's memory: one file for each component, mapped by the scheduler's side and by the worker's.

The scheduler's side makes it and takes the name away once the worker has it, so that nothing is left where the two
end, however they end.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from stagehold.adapters.vllm.options import ConnectorRefused
from stagehold.adapters.vllm.orders import Pool


def mapped(pool: Pool) -> torch.Tensor:
    """The memory as uint8 [1, pages, page_bytes], shared with whoever maps the same name."""
    size = pool.pages * pool.page_bytes
    return torch.from_file(pool.path, shared=True, size=size, dtype=torch.uint8).view(1, pool.pages, pool.page_bytes)


def make(folder: str, engine_id: str, sizes: dict[str, tuple[int, int]]) -> tuple[Pool, ...]:
    """A file for each component, of (pages, bytes of a page). Raises ConnectorRefused where there is no room."""
    need = sum(pages * page_bytes for pages, page_bytes in sizes.values())
    try:
        found = os.statvfs(folder)
    except OSError as error:
        raise ConnectorRefused(f"pool_folder={folder}: {error.strerror}; name a folder in memory") from error
    free = found.f_bavail * found.f_frsize
    if need > free:
        raise ConnectorRefused(
            f"the pool needs {need} bytes in {folder}, where {free} are free; set pool_pages or pool_folder"
        )
    return tuple(_made(Path(folder), engine_id, name, *size) for name, size in sizes.items())


def _made(folder: Path, engine_id: str, name: str, pages: int, page_bytes: int) -> Pool:
    path = folder / f"stagehold-{engine_id}-{os.getpid()}-{name}"
    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    try:
        os.ftruncate(file, pages * page_bytes)
    finally:
        os.close(file)
    return Pool(name, str(path), pages, page_bytes)


def move_to(tensor: Any, pool: Pool) -> None:
    """Let an engine's pool tensor lie in the shared memory from now on; its shape stays."""
    shared = mapped(pool)
    assert tensor.shape == shared.shape, f"{pool.component}: expected {tuple(tensor.shape)}, got {tuple(shared.shape)}"
    tensor.set_(shared.untyped_storage(), 0, shared.shape, shared.stride())


def forget_names(pools: tuple[Pool, ...]) -> None:
    """Both sides have mapped them: the memory now ends with the last of the two."""
    for pool in pools:
        Path(pool.path).unlink(missing_ok=True)
