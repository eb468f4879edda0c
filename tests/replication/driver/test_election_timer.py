"""Ticks do not count towards the election timeout while the member's own vote is being stored."""

from taskraft_replication.driver.election_timer import PAUSE_TICKS_MAX, ElectionTimer


def counted(storing: str) -> str:
    """Return which ticks count; "s": the vote is being stored, ".": the vote is durable."""
    timer = ElectionTimer()
    return "".join("x" if timer.counts(is_vote_durable=each == ".") else "-" for each in storing)


def test_all_ticks_count_while_nothing_is_stored():
    assert counted("....") == "xxxx"


def test_after_the_write_as_many_ticks_as_it_took_do_not_count():
    assert counted("..sss.......") == "xx------xxxx"


def test_a_second_write_restarts_the_pause():
    assert counted("sss.ss.....") == "--------xxx"


def test_the_pause_after_a_long_write_is_bounded():
    pause = "-" * PAUSE_TICKS_MAX
    assert counted("s" * 500 + "." * PAUSE_TICKS_MAX + "..") == "-" * 500 + pause + "xx"
