"""Ticks do not count towards the election timeout while the own vote is being stored."""

from taskraft_replication.driver.election_timer import ElectionTimer


def counted(storing: str) -> str:
    """Return which ticks count; "s": the vote is being stored, ".": it is durable."""
    timer = ElectionTimer()
    return "".join("x" if timer.counts(is_vote_durable=each == ".") else "-" for each in storing)


def test_all_ticks_count_while_nothing_is_stored():
    assert counted("....") == "xxxx"


def test_as_many_ticks_as_the_write_took_are_left_out_after_it():
    assert counted("..sss.......") == "xx------xxxx"


def test_a_second_write_begins_the_pause_anew():
    assert counted("sss.ss.....") == "--------xxx"
