"""A double of what SGLang hands to a storage backend: its configuration, host pools, and pool transfers.

Made from what is known of their interface; `real/` holds the same backend against the released classes.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch

PAGE = 4


def config(store, **changes):
    """A `HiCacheStorageConfig` of one rank, with the extra config of this backend."""
    extra = {"store": store, "interface_v1": 1, **changes.pop("extra", {})}
    return SimpleNamespace(
        **{
            **dict.fromkeys(("tp_rank", "pp_rank", "attn_cp_rank", "dcp_rank"), 0),
            **dict.fromkeys(("tp_size", "pp_size", "attn_cp_size", "dcp_size"), 1),
            "is_mla_model": False,
            "model_name": "model",
            "should_split_heads": False,
            "tp_lcm_size": None,
            "extra_config": extra,
            **changes,
        }
    )


class Pool:
    """Keys and values of pages that lie one after another, keys and values apart: two stretches a page."""

    def __init__(self, pages=32, *, dtype=torch.bfloat16, layout="page_first", width=64, page_size=PAGE):
        self.dtype, self.layout, self.page_size = dtype, layout, page_size
        self.layer_num, self.head_num, self.head_dim = 2, 1, width
        self.kv_buffer = torch.zeros((2, pages * page_size, width), dtype=dtype)

    def get_page_buffer_meta(self, indices):
        """Addresses and sizes of the stretches of each page."""
        if self.layout != "page_first":
            raise ValueError(f"Unsupported layout: {self.layout}")
        row = self.kv_buffer.shape[2] * self.kv_buffer.element_size()
        found = []
        for slot in indices.tolist()[:: self.page_size]:
            found += [self.kv_buffer[side].data_ptr() + slot * row for side in range(2)]
        return found, [row * self.page_size] * len(found)

    def get_data_page(self, index, flat=True):
        """A page; flat, as one row."""
        page = self.kv_buffer[:, index : index + self.page_size]
        return page.flatten() if flat else page

    def get_dummy_flat_data_page(self):
        """Room for one."""
        return torch.zeros(2 * self.page_size * self.kv_buffer.shape[2], dtype=self.dtype)

    def set_from_flat_data_page(self, index, page):
        """Put one in its place."""
        self.kv_buffer[:, index : index + self.page_size] = page.reshape(2, self.page_size, -1)

    def fill(self, seed):
        """Noise, other for every seed."""
        generator = torch.Generator().manual_seed(seed)
        self.kv_buffer.copy_(torch.randn(self.kv_buffer.shape, generator=generator).to(self.dtype))


def slots(*pages, page_size=PAGE):
    """Token slots of pages of a pool."""
    return torch.cat([torch.arange(page * page_size, (page + 1) * page_size) for page in pages])


def transfer(name, keys=None, indices=None, policy="all_pages"):
    """A `PoolTransfer`."""
    return SimpleNamespace(name=name, keys=keys, host_indices=indices, hit_policy=SimpleNamespace(value=policy))


def keys_of(count, chain="a"):
    """Page keys as SGLang has them: hex digests."""
    return [f"{chain}{index:063x}" for index in range(count)]
