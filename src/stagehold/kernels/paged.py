"""The Triton kernel that moves scattered pages between a layer-first pool and page-first staging.

Imported by `forms` alone, and only for a CUDA device: Triton is large, and need not be there. With TRITON_INTERPRET=1
set before the import it runs on CPU tensors, slowly, which is how it is tested.
"""
# ruff: noqa: ANN001 - the compiler reads the annotations of a kernel, and knows none of its arguments' types

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from stagehold.kernels.forms import on_device

BLOCK_WORDS = 1024
PROGRAMS = 16
"""Programs that share a launch. 16 blocks of 8 KiB in flight cover the latency of a host link (50 GB/s x 1.5 us is
75 KB), and all other multiprocessors are left to the forward pass. An estimate, not yet measured on a device."""


class End(NamedTuple):
    """One end of a copy: word w of part p of page q lies at `base` + q x `page_step` + p x `part_step` + w.

    `pages` are the pages to be copied, int64 on the device.
    """

    base: torch.Tensor
    pages: torch.Tensor
    page_step: int
    part_step: int


class Share(NamedTuple):
    """What of the pages is to be copied: how many of them, and which of their parts."""

    n_pages: int
    first_part: int
    n_parts: int


@triton.jit  # type: ignore[untyped-decorator]
def move(source, target, share, words, BLOCK: tl.constexpr) -> None:  # type: ignore[no-untyped-def]  # noqa: N803
    """Copy a `Share` of the pages of one `End` to those of the other; parts are `words` long, and cut in blocks."""
    blocks = (words + BLOCK - 1) // BLOCK
    for job in tl.range(tl.program_id(0), share.n_pages * share.n_parts * blocks, tl.num_programs(0)):
        at = job % blocks * BLOCK + tl.arange(0, BLOCK)
        part = (share.first_part + job // blocks % share.n_parts).to(tl.int64)
        item = job // blocks // share.n_parts
        read = source.base + tl.load(source.pages + item) * source.page_step + part * source.part_step
        write = target.base + tl.load(target.pages + item) * target.page_step + part * target.part_step
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
    words, n_pages = source.shape[2], len(source_pages)
    blocks = n_pages * len(parts) * -(-words // BLOCK_WORDS)
    # A launch goes to the current device, wherever the pool lies.
    with torch.cuda.device_of(source_pages):  # type: ignore[no-untyped-call]
        move[(min(PROGRAMS, blocks),)](
            End(source, source_pages, *source.stride()[:2]),
            End(target, target_pages, *target.stride()[:2]),
            Share(n_pages, parts.start, len(parts)),
            words,
            BLOCK=BLOCK_WORDS,
        )
