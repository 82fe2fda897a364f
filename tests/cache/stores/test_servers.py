"""Stores over real servers: they conform, and a server that dies or stands still costs misses, not
correctness.
"""

import gc
import time
from pathlib import Path

import pytest

from stagehold.cache.stores.open import StoreUrlError, open_store
from stagehold.cache.stores.protocol import Verdict
from stagehold.testing.conformance import check_store

SIZE = 1 << 20
OF_A_CAPACITY = ["capacity limits", "a greedy tenant evicts only its own pages"]


def names(count):
    return [b"served-%025d" % index for index in range(count)]


def views(count, fill=0):
    return [memoryview(bytearray(bytes([fill + index if fill else 0]) * SIZE)) for index in range(count)]


def finish(store, ticket, patience=30.0):
    """Poll until `ticket` is done; return its progress and the seconds that took."""
    started = time.monotonic()
    while time.monotonic() < started + patience:
        store.wait(1.0)
        for report in store.poll(0):
            if report.ticket == ticket and report.done:
                return report, time.monotonic() - started
    pytest.fail(f"ticket {ticket} did not end in {patience} s")


@pytest.fixture
def filled(valkey_server):
    """A Valkey with 16 pages of 1 MiB; yields (store, server)."""
    store = open_store(f"{valkey_server.url}?deadline=2&workers=1", SIZE)
    store.put(1, names(16), views(16, 1), 0)
    assert finish(store, 1)[0].good == 16
    yield store, valkey_server
    store.close()


def test_valkey_conforms(valkey_server):
    """All checks but those about a capacity, which is the server's."""
    result = check_store(valkey_server.url).as_dict()
    assert result["failed"] == {}
    assert list(result["skipped"]) == OF_A_CAPACITY


def test_a_valkey_cluster_conforms(valkey_cluster):
    """The same checks through the cluster's client."""
    result = check_store(f"{valkey_cluster.url}?cluster=yes").as_dict()
    assert result["failed"] == {}
    assert list(result["skipped"]) == OF_A_CAPACITY


def test_a_cluster_gives_its_connections_back(valkey_cluster):
    """Those to its nodes too, once the store is closed."""
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    store = open_store(f"{valkey_cluster.url}?cluster=yes", SIZE)
    store.put(1, names(4), views(4), 0)
    assert finish(store, 1)[0].good == 4
    assert len(list(Path("/proc/self/fd").iterdir())) > before
    store.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_cluster_that_is_down_at_the_start_does_not_prevent_it(valkey_client):
    """Its client connects at once, so it is made at the first call, and that fails like any other."""
    store = open_store("valkey://127.0.0.1:9/0?deadline=2&cluster=yes", SIZE)
    store.exists(1, names(2), 0)
    assert finish(store, 1)[0].verdicts == (Verdict.FAILED,) * 2
    store.close()


def test_pages_go_through_tls(tls_door, certificate):
    """With the authority given, pages come back; without it the server is not believed."""
    store = open_store(f"valkeys://127.0.0.1:{tls_door}/0?ca={certificate[0]}", SIZE)
    store.put(1, names(4), views(4, 1), 0)
    assert finish(store, 1)[0].good == 4
    out = views(4)
    store.get_into(2, names(4), out, 0)
    assert finish(store, 2)[0].good == 4
    assert out == views(4, 1)
    store.close()
    stranger = open_store(f"valkeys://127.0.0.1:{tls_door}/0", SIZE)
    stranger.exists(1, names(1), 0)
    assert finish(stranger, 1)[0].verdicts == (Verdict.FAILED,)
    assert "certificate verify failed" in stranger.errors[0]
    stranger.close()


def test_certificates_without_tls_are_refused(valkey_client):
    """A plain scheme with a certificate is a mistake that would send pages in the clear."""
    with pytest.raises(StoreUrlError, match="valkeys:// and rediss://"):
        open_store("valkey://127.0.0.1:9/0?ca=ca.pem", SIZE)


def test_s3_conforms(s3_server):
    """All checks but those about a capacity, which S3 has none of."""
    result = check_store(s3_server.url).as_dict()
    assert result["failed"] == {}
    assert list(result["skipped"]) == OF_A_CAPACITY


def test_mooncake_conforms(mooncake_server):
    """All checks but those about a capacity, which is the storage nodes'."""
    result = check_store(mooncake_server.url).as_dict()
    assert result["failed"] == {}
    assert list(result["skipped"]) == OF_A_CAPACITY


def test_s3_that_stands_still_costs_the_deadline(s3_server):
    """Stopped in the middle of reads: those end in time, and after the server goes on every byte is right."""
    url = s3_server.url
    patient = open_store(url, SIZE)  # a first write makes the server prepare its volumes, which takes seconds
    patient.put(1, names(4), views(4, 1), 0)
    assert finish(patient, 1)[0].good == 4
    patient.close()
    store = open_store(f"{url}&deadline=2&workers=1", SIZE)
    s3_server.stop()
    try:
        store.get_into(2, names(4), views(4), 0)
        report, seconds = finish(store, 2)
    finally:
        s3_server.go_on()
    assert (report.good, report.verdicts[0]) == (0, Verdict.FAILED)
    assert seconds < 3.0
    out = views(4)
    store.get_into(3, names(4), out, 0)
    assert finish(store, 3)[0].good == 4
    assert out == views(4, 1)
    store.close()


def test_mooncake_without_its_master_is_a_failed_read(mooncake_server):
    """Killed: lookups and reads end with a fault verdict, and the store still closes."""
    store = open_store(f"{mooncake_server.url}?workers=1", SIZE)
    store.put(1, names(4), views(4, 1), 0)
    assert finish(store, 1)[0].good == 4
    mooncake_server.process.kill()
    mooncake_server.process.wait()
    store.exists(2, names(4), 0)
    assert finish(store, 2)[0].verdicts[0] is Verdict.FAILED
    store.get_into(3, names(4), views(4), 0)
    assert finish(store, 3)[0].good == 0
    store.close()


def test_a_killed_server_is_a_failed_read(filled):
    """The operation ends with a fault verdict well before the deadline, and nothing is claimed."""
    store, server = filled
    server.kill()
    store.get_into(2, names(16), views(16), 0)
    report, seconds = finish(store, 2)
    assert report.good == 0
    assert report.verdicts[0] is Verdict.FAILED
    assert seconds < 2.5


def test_a_server_that_stands_still_costs_the_deadline(filled):
    """Stopped in the middle of reads: those end in time, and after the server goes on every byte is right."""
    store, server = filled
    server.stop()
    store.get_into(2, names(16), views(16), 0)
    report, seconds = finish(store, 2)
    assert (report.good, report.verdicts[0]) == (0, Verdict.FAILED)
    assert seconds < 3.0
    server.go_on()
    for ticket, order in ((3, 1), (4, -1)):
        out = views(16)
        store.get_into(ticket, names(16)[::order], out, 0)
        assert finish(store, ticket)[0].good == 16
        assert out == views(16, 1)[::order]


def test_a_server_that_is_down_at_the_start_does_not_prevent_it(valkey_client):
    """Opening succeeds, lookups fail quickly, closing is clean."""
    store = open_store("valkey://127.0.0.1:9/0?deadline=2", SIZE)
    store.exists(1, names(2), 0)
    report, seconds = finish(store, 1)
    assert report.verdicts == (Verdict.FAILED,) * 2
    assert seconds < 2.5
    assert "Connection" in store.errors[0]
    store.close()


def test_a_full_server_refuses_or_evicts_and_never_lies(filled):
    """Far more pages than fit: what is still there is right, the rest are misses."""
    store, _ = filled
    keys = [b"flood-%026d" % index for index in range(96)]
    for start in range(0, 96, 16):
        store.put(10 + start, keys[start : start + 16], views(16, 1), 0)
        assert finish(store, 10 + start)[0].good == 16
    hits = 0
    for index, key in enumerate(keys):
        out = views(1)
        store.get_into(200 + index, [key], out, 0)
        report, _ = finish(store, 200 + index)
        assert report.verdicts[0] in (Verdict.HIT, Verdict.MISS)
        if report.good:
            hits += 1
            assert out[0] == views(16, 1)[index % 16]
    assert 0 < hits < 96
