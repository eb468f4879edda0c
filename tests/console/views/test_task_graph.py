"""The drawn graph of tasks: layers, folding, edges."""

from hypothesis import given
from hypothesis import strategies as st

from taskraft_console.views.task_graph import FOLD_MIN, GraphTask, draw_graph


def task(task_id, *before, kind="step", state="HELD"):
    return GraphTask("t", task_id, kind, state, tuple(("t", each) for each in before))


def places(drawing):
    return {each.task_id: (node.x, node.y) for node in drawing.nodes for each in node.tasks}


def test_a_task_is_right_of_all_tasks_that_it_waits_for():
    drawing = draw_graph([task(4, 1, 3), task(3, 2), task(2, 1), task(1, state="TAKEN")])
    at = places(drawing)
    assert at[1][0] < at[2][0] < at[3][0] < at[4][0]
    assert len(drawing.edges) == 4


def test_equal_tasks_are_one_node_from_a_minimum_on():
    alone = draw_graph([task(each) for each in range(FOLD_MIN - 1)])
    assert len(alone.nodes) == FOLD_MIN - 1
    folded = draw_graph([task(each) for each in range(FOLD_MIN)])
    assert [len(node.tasks) for node in folded.nodes] == [FOLD_MIN]
    mixed = [task(each, state="READY" if each else "BURIED") for each in range(FOLD_MIN + 1)]
    assert sorted(len(node.tasks) for node in draw_graph(mixed).nodes) == [1, FOLD_MIN]


def test_a_dependency_on_an_unknown_task_has_no_edge():
    drawing = draw_graph([task(2, 1)])
    assert (len(drawing.nodes), drawing.edges) == (1, ())
    assert draw_graph([]).nodes == ()


@given(st.lists(st.sets(st.integers(0, 30)), max_size=30), st.integers(0, 2))
def test_every_task_is_drawn_once_and_edges_go_to_the_right(befores, kinds):
    tasks = [
        task(place, *(each for each in before if each < place), kind=f"k{place % (kinds + 1)}")
        for place, before in enumerate(befores)
    ]
    drawing = draw_graph(tasks)
    drawn = [each.task_id for node in drawing.nodes for each in node.tasks]
    assert sorted(drawn) == list(range(len(tasks)))
    spots = [(node.x, node.y) for node in drawing.nodes]
    assert len(set(spots)) == len(spots)
    at = places(drawing)
    for each in tasks:
        for _, before in each.waits_for:
            assert at[before][0] < at[each.task_id][0]
