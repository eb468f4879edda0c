"""Check deliveries from the consumers' own records."""

from demo.delivery_records import ACCEPTED, DeliveryRecord, check_records, read_records


def delivery(task_id=1, consumer="a", token=1, taken_ns=0, settled_ns=10, answer=ACCEPTED):
    return DeliveryRecord(
        consumer=consumer,
        task_id=task_id,
        token=token,
        path="os.py",
        taken_ns=taken_ns,
        settled_ns=settled_ns,
        answer=answer,
        sha256="",
        lines=1,
    )


def test_every_task_processed_once_is_clean():
    judged = check_records([1, 2], [delivery(1), delivery(2, token=2)])
    assert judged.processed == 2
    assert judged.is_clean


def test_a_task_without_an_accepted_acknowledgement_is_lost():
    judged = check_records([1, 2], [delivery(1), delivery(2, answer="LEASE_STALE")])
    assert judged.lost == [2]
    assert judged.refused == 1
    assert not judged.is_clean


def test_deliveries_that_overlap_held_the_task_twice():
    first = delivery(consumer="a", token=1, taken_ns=0, settled_ns=10, answer="LEASE_STALE")
    second = delivery(consumer="b", token=2, taken_ns=9, settled_ns=20)
    assert check_records([1], [first, second]).held_twice == [1]
    assert check_records([1], [second, first]).held_twice == [1]


def test_a_task_delivered_again_after_the_first_lease_ended_is_clean():
    first = delivery(consumer="a", token=1, taken_ns=0, settled_ns=10, answer="LEASE_STALE")
    second = delivery(consumer="b", token=2, taken_ns=10, settled_ns=20)
    judged = check_records([1], [first, second])
    assert judged.is_clean
    assert judged.processed == 1


def test_a_later_delivery_needs_a_larger_token():
    first = delivery(token=5, taken_ns=0, settled_ns=10, answer="LEASE_STALE")
    second = delivery(token=5, taken_ns=11, settled_ns=20)
    assert check_records([1], [first, second]).tokens_out_of_order == [1]


def test_a_second_accepted_acknowledgement_is_reported():
    first = delivery(token=1, taken_ns=0, settled_ns=10)
    second = delivery(token=2, taken_ns=11, settled_ns=20)
    judged = check_records([1], [first, second])
    assert judged.acknowledged_twice == [1]
    assert judged.processed == 0


def test_records_survive_their_file(tmp_path):
    record = delivery(task_id=7, token=9)
    (tmp_path / "a.jsonl").write_text(record.to_json())
    assert list(read_records([tmp_path / "a.jsonl"])) == [record]
