"""The Triton kernel: right in the interpreter, and accepted by the compiler for the devices it is meant for."""

import re

import pytest
import torch

from stagehold.kernels.forms import PACKED, triton_form

CPU = torch.device("cpu")
SLOTS, PAGES = [10, 0, 3, 4, 7], [2, 8, 0, 1, 5]
SHAPES = [(1, 1), (4, 40), (3, 7), (2, 9000)]


@pytest.mark.parametrize(("parts", "size"), SHAPES)
def test_a_gather_moves_every_byte_to_its_place(interpreted, tensors, parts, size):
    """Parts of one block and of several, of whole words and of odd bytes."""
    t = tensors(parts, size)
    expected = t.gathered(SLOTS, PAGES)
    interpreted.gather(t.pool, SLOTS, t.pages, PAGES)
    assert torch.equal(expected, t.pages)


@pytest.mark.parametrize(("parts", "size"), SHAPES)
def test_a_scatter_goes_layer_by_layer(interpreted, tensors, parts, size):
    """After each launch the layers so far are there, and nothing of the next."""
    t = tensors(parts, size)
    layers = [range(parts)[first : first + 2] for first in range(0, parts, 2)]
    steps = [t.scattered(SLOTS, PAGES, range(layer.stop)) for layer in layers]
    for expected, _ in zip(steps, interpreted.scatter(t.pool, SLOTS, t.pages, PAGES, layers), strict=True):
        assert torch.equal(expected, t.pool)


def test_more_blocks_than_programs_are_all_moved(interpreted, tensors, monkeypatch):
    """Programs take the blocks in turn."""
    monkeypatch.setattr(interpreted, "PROGRAMS", 3)
    t = tensors(4, 40)
    expected = t.gathered(SLOTS, PAGES)
    interpreted.gather(t.pool, SLOTS, t.pages, PAGES)
    assert torch.equal(expected, t.pages)


def test_a_kernel_that_works_is_used(interpreted, caplog):
    """Proved on a few pages, and nothing is said."""
    form = triton_form(CPU)
    assert form is not None
    assert (interpreted.gather, interpreted.scatter) == (form.gather, form.scatter)
    assert form is not PACKED
    assert [] == caplog.records


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
def test_the_compiler_takes_the_kernel(forgotten, monkeypatch, tmp_path, capability):
    """No device is needed to compile. Whole words of aligned parts are moved 16 bytes at a time."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from stagehold.kernels.paged import BLOCK_WORDS, End, Share, move

    end = End("*i64", "*i64", "i64", "i64")
    signature = {"source": end, "target": end, "share": Share("i32", "i32", "i32"), "words": "i32"}
    even = [(at, End._fields.index(name)) for at in (0, 1) for name in ("base", "page_step", "part_step")]
    source = ASTSource(
        fn=move,
        signature=signature | {"BLOCK": "constexpr"},
        constexprs={"BLOCK": BLOCK_WORDS},
        attrs={place: [["tt.divisibility", 16]] for place in (*even, (3,))},
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32))
    assert {"st.global.v2.b64"} == set(re.findall(r"st\.global\S*", compiled.asm["ptx"]))
    assert compiled.asm["cubin"]
