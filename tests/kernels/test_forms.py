"""Every form of a copy moves the same bytes, layer by layer; and something is always there to move them."""

import logging
import os
import subprocess
import sys

import pytest
import torch

from stagehold.kernels import forms
from stagehold.kernels.forms import LONG, PACKED, form_for, triton_form

CPU = torch.device("cpu")
SLOTS, PAGES = [10, 0, 3, 4, 7], [2, 8, 0, 1, 5]
SHAPES = [(1, 1), (4, 40), (3, 7), (5, 333)]


@pytest.mark.parametrize("form", [LONG, PACKED], ids=lambda form: form.name)
@pytest.mark.parametrize(("parts", "size"), SHAPES)
def test_a_gather_moves_every_byte_to_its_place(tensors, form, parts, size):
    """And leaves all other pages alone."""
    t = tensors(parts, size)
    expected = t.gathered(SLOTS, PAGES)
    form.gather(t.pool, SLOTS, t.pages, PAGES)
    assert torch.equal(expected, t.pages)


@pytest.mark.parametrize("form", [LONG, PACKED], ids=lambda form: form.name)
@pytest.mark.parametrize(("parts", "size"), SHAPES)
def test_a_scatter_goes_layer_by_layer(tensors, form, parts, size):
    """After each step the layers so far are there, and nothing of the next."""
    t = tensors(parts, size)
    layers = [range(parts)[first : first + 2] for first in range(0, parts, 2)]
    steps = [t.scattered(SLOTS, PAGES, range(layer.stop)) for layer in layers]
    for expected, _ in zip(steps, form.scatter(t.pool, SLOTS, t.pages, PAGES, layers), strict=True):
        assert torch.equal(expected, t.pool)


@pytest.mark.parametrize("held", [1, 2, 3])
def test_a_packed_copy_takes_a_bounded_buffer(tensors, monkeypatch, held):
    """Pages go through it some at a time, and after each step the layers so far are there all the same."""
    monkeypatch.setattr(forms, "BUFFER_BYTES", held * 4 * 40 + 1)
    taken, empty = [], torch.empty
    monkeypatch.setattr(torch, "empty", lambda shape, **more: taken.append(shape[0]) or empty(shape, **more))
    t = tensors(4, 40)
    layers = [range(2), range(2, 4)]
    steps = [t.scattered(SLOTS, PAGES, range(layer.stop)) for layer in layers]
    for expected, _ in zip(steps, PACKED.scatter(t.pool, SLOTS, t.pages, PAGES, layers), strict=True):
        done = range(2) if expected is steps[0] else range(4)
        assert torch.equal(expected[done], t.pool[done])
    assert (held, 5) == (max(taken), sum(taken))
    expected = t.gathered(SLOTS, PAGES)
    PACKED.gather(t.pool, SLOTS, t.pages, PAGES)
    assert torch.equal(expected, t.pages)


def test_the_form_follows_the_length_of_a_part(forgotten, monkeypatch):
    """Long parts need no kernel; short ones have it where it works and the host memory is pinned."""
    kernel = forms.Form("triton", PACKED.gather, PACKED.scatter)
    monkeypatch.setattr(forms, "triton_form", {CPU: kernel}.get)
    long, short = (torch.zeros((1, 1, size), dtype=torch.uint8) for size in (256 << 10, 32 << 10))
    assert form_for(long, pinned=True) is LONG
    assert form_for(short, pinned=True) is kernel
    assert form_for(short, pinned=False) is PACKED


def said(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_without_triton_pages_are_packed_and_it_is_said_once(forgotten, monkeypatch, caplog):
    """However often it is asked for."""
    monkeypatch.setitem(sys.modules, "triton", None)
    pool = torch.zeros((2, 3, 8), dtype=torch.uint8)
    assert [PACKED, PACKED] == [form_for(pool, pinned=True), form_for(pool, pinned=True)]
    (line,) = said(caplog)
    assert line.startswith("copies on cpu run without triton: it is not installed: ModuleNotFoundError: ")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("raise OSError('libcuda.so.1: wrong version')", "OSError: libcuda.so.1: wrong version"),
        ("import triton.native_part", "ModuleNotFoundError: No module named 'triton.native_part'"),
        ("", "ModuleNotFoundError: No module named 'triton.language'"),
    ],
)
def test_a_triton_that_cannot_be_imported_is_done_without(  # noqa: PLR0917
    forgotten, monkeypatch, caplog, tmp_path, text, error
):
    """Whatever its import raises, and where it is half there."""
    for name in [name for name in sys.modules if name.split(".")[0] == "triton"]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert triton_form(CPU) is None
    assert triton_form(CPU) is None
    assert [f"copies on cpu run without triton: its import failed: {error}"] == said(caplog)
    sys.modules.pop("triton", None)


def test_a_triton_without_a_device_is_done_without(forgotten, caplog):
    """Compiled Triton has nothing to run on here: its first use fails, and that is all."""
    assert form_for(torch.zeros((2, 3, 8), dtype=torch.uint8), pinned=True) is PACKED
    (line,) = said(caplog)
    assert line.startswith("copies on cpu run without triton: its first use failed: ")


def test_a_kernel_that_moves_other_bytes_is_done_without(interpreted, monkeypatch, caplog):
    """A build that does not match may run and be wrong."""
    monkeypatch.setattr(interpreted, "gather", lambda pool, slots, pages, indices: None)
    assert triton_form(CPU) is None
    expected = "its first use failed: RuntimeError: pages came back with other bytes"
    assert [f"copies on cpu run without triton: {expected}"] == said(caplog)


@pytest.mark.parametrize("text", ["raise OSError('wrong version')", None])
def test_the_wing_is_imported_whatever_triton_is(tmp_path, text):
    """In a process of its own, all of its modules but the kernel's, and a copy on the CPU."""
    if text is not None:
        (tmp_path / "triton").mkdir()
        (tmp_path / "triton" / "__init__.py").write_text(text)
    code = (
        "import sys\n" + ("" if text else "sys.modules['triton'] = None\n") + "import stagehold.kernels\n"
        "from stagehold.kernels import checksum, copies, device, forms, lanes, runs, transfers\n"
        "pools = copies.DeviceBytes(2, 8, 3), copies.StagingBytes(2, 8, 3)\n"
        "copies.check_round_trip(*pools)\n"
        "assert device.usable_device() in ('cpu', 'cuda')\n"
    )
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": ""},
    )
    assert (0, "") == (done.returncode, done.stderr)
