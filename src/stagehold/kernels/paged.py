"""The Triton kernel that moves scattered pages between a layer-first pool and page-first staging.

Imported by `forms` alone, and only for a CUDA device: Triton is large, and need not be there. With TRITON_INTERPRET=1
set before the import it runs on CPU tensors, slowly, which is how it is tested.
"""
# ruff: noqa: ANN001 - the compiler reads the annotations of a kernel, and knows none of its arguments' types

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import triton
import triton.language as tl

from stagehold.kernels.forms import on_device

BLOCK_WORDS = 1024
PROGRAMS = 16
"""Programs that share a launch. 16 blocks of 8 KiB in flight cover the latency of a host link (50 GB/s x 1.5 us is
75 KB), and all other multiprocessors are left to the forward pass. An estimate, not yet measured on a device."""


@triton.jit  # type: ignore[untyped-decorator]
def move(  # type: ignore[no-untyped-def]  # noqa: PLR0917
    source,
    target,
    source_pages,
    target_pages,
    n_pages,
    first_part,
    n_parts,
    words,
    source_page,
    source_part,
    target_page,
    target_part,
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    """Copy parts [first_part, first_part + n_parts) of page source_pages[i] to page target_pages[i], for all i.

    `words` are the words of one part; word w of part p of page q lies at q x (source|target)_page +
    p x (source|target)_part + w. Page indices are int64. Programs take blocks of words in turn.
    """
    blocks = (words + BLOCK - 1) // BLOCK
    for job in tl.range(tl.program_id(0), n_pages * n_parts * blocks, tl.num_programs(0)):
        at = job % blocks * BLOCK + tl.arange(0, BLOCK)
        part = (first_part + job // blocks % n_parts).to(tl.int64)
        item = job // blocks // n_parts
        read = source + tl.load(source_pages + item) * source_page + part * source_part
        write = target + tl.load(target_pages + item) * target_page + part * target_part
        tl.store(write + at, tl.load(read + at, mask=at < words), mask=at < words)


def gather(pool: torch.Tensor, slots: Sequence[int], pages: torch.Tensor, indices: Sequence[int]) -> None:
    """See `forms.Form.gather`; the kernel writes to the pinned memory of `pages` itself."""
    _launch(pool.transpose(0, 1), on_device(slots, pool), pages, on_device(indices, pool), range(pool.shape[0]))


def scatter(
    pool: torch.Tensor, slots: Sequence[int], pages: torch.Tensor, indices: Sequence[int], layers: Sequence[range]
) -> Iterator[None]:
    """See `forms.Form.scatter`; one launch for each layer reads the pinned memory of `pages` itself."""
    source, target = on_device(indices, pool), on_device(slots, pool)
    for layer in layers:
        _launch(pages, source, pool.transpose(0, 1), target, layer)
        yield


def _launch(
    source: torch.Tensor, source_pages: torch.Tensor, target: torch.Tensor, target_pages: torch.Tensor, parts: range
) -> None:
    """Both tensors are uint8 [pages, parts, bytes] with bytes side by side."""
    word = next(dtype for dtype in (torch.int64, torch.int32, torch.uint8) if source.shape[2] % dtype.itemsize == 0)
    source, target = source.view(word), target.view(word)
    words = source.shape[2]
    move[(min(PROGRAMS, len(source_pages) * len(parts) * -(-words // BLOCK_WORDS)),)](
        source,
        target,
        source_pages,
        target_pages,
        len(source_pages),
        parts.start,
        len(parts),
        words,
        *source.stride()[:2],
        *target.stride()[:2],
        BLOCK=BLOCK_WORDS,
    )
