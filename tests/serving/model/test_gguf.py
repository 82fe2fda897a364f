"""The reader of weights, held against the format's own package, and against files that lie."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from stagehold.serving.model.dequantise import dequantise
from stagehold.serving.model.gguf import GgufError, Kind, read_gguf

TYPES = {
    Kind.F32: gguf.GGMLQuantizationType.F32,
    Kind.Q4_1: gguf.GGMLQuantizationType.Q4_1,
    Kind.Q8_0: gguf.GGMLQuantizationType.Q8_0,
}


def written(path: Path, alignment: int = 32) -> dict[str, np.ndarray[Any, Any]]:
    """A file of the format's own writer, with one tensor of each kind; returns what was quantised."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(alignment)
    writer.add_uint32("a.count", 7)
    writer.add_float32("a.float", 0.5)
    writer.add_bool("a.flag", val=True)
    writer.add_array("a.words", ["ein", "Wört", ""])
    writer.add_array("a.marks", [1, -2, 3])
    rng = np.random.default_rng(0)
    values = {kind.name: rng.normal(size=(6, 64)).astype(np.float32) for kind in Kind}
    for kind, type_ in TYPES.items():
        raw = values[kind.name] if kind is Kind.F32 else gguf.quants.quantize(values[kind.name], type_)
        writer.add_tensor(kind.name, raw, raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


@pytest.mark.parametrize("alignment", [32, 64])
def test_it_reads_what_the_package_reads(tmp_path: Path, alignment: int) -> None:
    """Metadata, shapes, places and every dequantised bit."""
    path = tmp_path / "a.gguf"
    written(path, alignment)
    oracle = gguf.GGUFReader(path)

    file = read_gguf(path)

    assert {k: f.contents() for k, f in oracle.fields.items() if not k.startswith("GGUF.")} == file.metadata
    assert [t.name for t in oracle.tensors] == list(file.tensors)
    for theirs in oracle.tensors:
        ours = file.tensors[theirs.name]
        right = gguf.quants.dequantize(theirs.data, theirs.tensor_type)
        assert (tuple(theirs.shape[::-1].tolist()), theirs.data_offset) == (ours.shape, ours.start)
        assert np.array_equal(right.view(np.uint32), dequantise(file, ours).numpy().view(np.uint32))


def test_dequantised_values_are_near_what_was_written(tmp_path: Path) -> None:
    """The oracle and the reader are not wrong together."""
    path = tmp_path / "a.gguf"
    values = written(path)
    file = read_gguf(path)

    for name, most in (("F32", 0.0), ("Q8_0", 0.02), ("Q4_1", 0.25)):
        assert float((dequantise(file, file.tensors[name]) - torch.from_numpy(values[name])).abs().max()) <= most


def text(word: str) -> bytes:
    return struct.pack("<Q", len(word)) + word.encode()


def head(tensors: int = 0, keys: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys)


def tensor(name: str = "t", shape: tuple[int, ...] = (64,), kind: int = 0, offset: int = 0) -> bytes:
    sides = b"".join(struct.pack("<Q", side) for side in shape)
    return text(name) + struct.pack("<I", len(shape)) + sides + struct.pack("<IQ", kind, offset)


def key(name: str, form: str, kind: int, *value: Any) -> bytes:
    return text(name) + struct.pack("<I" + form, kind, *value)


BAD = {
    "no magic": (b"GGML" + head()[4:], "byte 0: expected the magic b'GGUF', found b'GGML'"),
    "another version": (head(version=1), "byte 4: expected version 2 or 3, little endian, found 1"),
    "big endian": (b"GGUF" + struct.pack(">I", 3), "little endian, found 50331648"),
    "a short head": (head()[:20], "byte 16: expected 8 bytes of the number of metadata entries, found 4"),
    "many tensors": (head(tensors=1 << 40), "expected at most 65536 tensors, found 1099511627776"),
    "many keys": (head(keys=1 << 20), "expected at most 4096 metadata entries"),
    "a long key": (head(keys=1) + struct.pack("<Q", 1 << 63), "at most 256 bytes of a string"),
    "a cut key": (head(keys=1) + text("abc")[:-1], "expected 3 bytes of a string, found 2 to the end"),
    "no UTF-8": (head(keys=1) + struct.pack("<Q", 1) + b"\xff", "expected UTF-8, found b'\\xff'"),
    "a key twice": (head(keys=2) + key("a", "B", 0, 1) * 2, "expected every key once, found 'a' again"),
    "an unknown type": (head(keys=1) + key("a", "B", 13, 1), "expected a known value type, found 13"),
    "a long array": (head(keys=1) + key("a", "IQ", 9, 0, 1 << 50), "at most 1048576 entries of an array"),
    "a cut array": (head(keys=1) + key("a", "IQ", 9, 4, 10), "expected 40 bytes of an array, found 0"),
    "arrays of arrays": (head(keys=1) + key("a", "IQ", 9, 9, 1), "found an array of arrays"),
    "an array of unknowns": (head(keys=1) + key("a", "IQ", 9, 99, 1), "expected a known value type, found 99"),
    "no dimension": (head(1) + tensor(shape=()), "expected 1 to 4 dimensions of 't', found 0"),
    "five dimensions": (head(1) + tensor(shape=(32,) * 5), "expected 1 to 4 dimensions of 't', found 5"),
    "a huge side": (head(1) + tensor(shape=(1 << 50,)), "elements along an axis of 't'"),
    "an unknown kind": (head(1) + tensor(kind=2), "expected a tensor type among F32 (0), Q4_1 (3), Q8_0 (8)"),
    "half a block": (head(1) + tensor(shape=(33,), kind=8), "rows of 't' in whole blocks of 32"),
    "nothing": (head(1) + tensor(shape=(0,)), "rows of 't' in whole blocks of 1"),
    "an end beyond the file": (head(1) + tensor() + bytes(200), "expected 256 bytes of 't' inside the file"),
    "a crooked offset": (head(1) + tensor(offset=8) + bytes(999), "at a multiple of 32"),
    "a far offset": (head(1) + tensor(offset=1 << 62) + bytes(999), "expected 256 bytes of 't' inside the file"),
    "a product that wraps": (head(1) + tensor(shape=(1 << 32, 1 << 32)) + bytes(99), "inside the file"),
    "a name twice": (head(2) + tensor() * 2 + bytes(999), "expected every tensor once, found 't' again"),
    "an overlap": (head(2) + tensor() + tensor("u", offset=128) + bytes(999), "expected 'u' behind 't'"),
    "a crooked alignment": (
        head(keys=1) + key("general.alignment", "I", 4, 48) + bytes(99),
        "expected an alignment of 8 to 65536, a power of two, found 48",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_lies_is_refused(tmp_path: Path, name: str) -> None:
    """The message names the file, the byte, what was expected and what was found."""
    raw, message = BAD[name]
    path = tmp_path / "bad.gguf"
    path.write_bytes(raw)

    with pytest.raises(GgufError) as found:
        read_gguf(path)

    assert message in str(found.value)
    assert str(found.value).startswith(f"{path}: byte ")


def test_every_cut_and_many_flips_end_in_the_one_error(tmp_path: Path) -> None:
    """A file cut anywhere in its head, or with a byte changed there, is read or refused; nothing else happens."""
    path, other = tmp_path / "a.gguf", tmp_path / "b.gguf"
    written(path)
    raw = path.read_bytes()
    start = min(t.start for t in read_gguf(path).tensors.values())
    refused = 0
    rng = np.random.default_rng(1)
    changed = [raw[:cut] for cut in range(0, start, 7)]
    for at in rng.integers(0, start, 400):
        one = bytearray(raw)
        one[at] ^= 1 << int(rng.integers(0, 8))
        changed.append(bytes(one))
    for one in changed:
        other.write_bytes(one)
        try:
            file = read_gguf(other)
            assert all(len(file.bytes_of(t)) == t.n_bytes for t in file.tensors.values())
        except GgufError:
            refused += 1

    assert refused > len(changed) // 4


def test_a_file_cut_after_its_head_was_read_is_told(tmp_path: Path) -> None:
    """Bytes are read when they are asked for, and missing ones are no zeros."""
    path = tmp_path / "a.gguf"
    written(path)
    file = read_gguf(path)
    tensor = file.tensors["F32"]
    path.write_bytes(path.read_bytes()[: tensor.start + 8])

    with pytest.raises(GgufError, match=f"byte {tensor.start}: expected {tensor.n_bytes} bytes of 'F32', found 8"):
        dequantise(file, tensor)


def test_a_metadata_value_of_another_type_is_told(tmp_path: Path) -> None:
    """What is missing and what is of the wrong type are refused alike."""
    path = tmp_path / "a.gguf"
    written(path)
    file = read_gguf(path)

    assert 7 == file.get("a.count", int)
    with pytest.raises(GgufError, match=r"expected metadata 'a.none' as str, found None"):
        file.get("a.none", str)
    with pytest.raises(GgufError, match=r"expected metadata 'a.flag' as int, found True"):
        file.get("a.flag", int)
