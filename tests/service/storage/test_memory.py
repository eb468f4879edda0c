"""The in-memory store: order and size."""

from hypothesis import given, settings
from hypothesis import strategies as st

from taskraft_service.queue.store.store import RangeDeletion
from taskraft_service.storage.memory import PAIR_BYTES, MemoryStore

KEYS = st.binary(min_size=1, max_size=2)
WRITES = st.lists(
    st.tuples(KEYS, st.none() | st.binary(max_size=5)) | st.builds(RangeDeletion, KEYS, KEYS),
    max_size=20,
)


@settings(max_examples=200)
@given(writes=WRITES, start=KEYS, stop=KEYS)
def test_the_store_equals_a_dictionary_in_content_and_size(writes, start, stop):
    store, plain = MemoryStore(), {}
    store.write(writes)
    for write in writes:
        if isinstance(write, RangeDeletion):
            gone = [key for key in plain if write.start <= key < write.stop]
        else:
            plain[write[0]] = write[1]
            gone = [write[0]] if write[1] is None else []
        for key in gone:
            del plain[key]
    found = [(key, value) for key, value in sorted(plain.items()) if start <= key < stop]
    assert list(store.scan(start, stop)) == found
    assert list(store.scan_back(start, stop)) == found[::-1]
    assert store.get_many([start, stop]) == [plain.get(start), plain.get(stop)]
    content = sum(len(key) + len(value) for key, value in plain.items())
    assert store.memory_bytes == content + PAIR_BYTES * len(plain)
