"""Metrics of how agents worked together: by hand, and laws that hold for any trace."""

from __future__ import annotations

import math
from itertools import pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.organisation import LONGEST_CYCLE, Activation, Folding, course, organisation


def chain(*agents: str) -> list[Activation]:
    return [Activation(agent, (place - 1,) if place else ()) for place, agent in enumerate(agents)]


def test_a_chain_without_repeats_has_no_cycles() -> None:
    found = organisation(chain("plan", "solve", "check"))
    assert (found.steps, found.active_agents, found.branches) == (3, 3, 1)
    assert found.density == pytest.approx(2 / 6)
    assert found.edges_per_node == pytest.approx(2 / 3)
    assert sum(found.cycles.values()) == 0
    assert found.entropy == pytest.approx(math.log2(3))
    assert found.revisit_rate == 0


def test_turns_between_two_agents_are_one_cycle_and_a_multiple_density() -> None:
    found = organisation(chain("write", "check", "write", "check", "check"))
    assert found.cycles == {1: 1, 2: 1, 3: 0, 4: 0}
    assert found.density == 1.0
    assert found.density_multi == 2.0
    assert found.hub_share == pytest.approx(3 / 5)
    assert found.revisit_rate == pytest.approx(3 / 5)


def test_cycles_of_three_and_four_are_told_apart() -> None:
    assert organisation(chain("a", "b", "c", "a")).cycles == {1: 0, 2: 0, 3: 1, 4: 0}
    assert organisation(chain("d", "b", "c", "a", "d")).cycles == {1: 0, 2: 0, 3: 0, 4: 1}


def test_branches_share_their_first_steps() -> None:
    """One opening, two continuations of it, and a step that joins both."""
    steps = [Activation("plan"), Activation("search", (0,)), Activation("code", (0,))]
    assert organisation(steps).branches == 2
    joined = organisation([*steps, Activation("merge", (1, 2))])
    assert joined.branches == 1
    assert joined.density == pytest.approx(4 / 12)


def test_nothing_is_defined_without_steps_and_little_with_one() -> None:
    none, one = organisation([]), organisation(chain("a"))
    assert (none.steps, none.hub_share, none.revisit_rate, none.edges_per_node) == (0, None, None, None)
    assert (one.density, one.hub_share, one.entropy) == (None, 1.0, 0.0)


def test_an_activation_that_follows_itself_or_a_later_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"activation 0 \(a\) follows \(0,\)"):
        organisation([Activation("a", (0,))])
    with pytest.raises(ValueError, match="activation 0"):
        organisation([Activation("a", (1,)), Activation("b")])


@given(st.lists(st.sampled_from("abcde"), max_size=20))
def test_cycles_counted_as_edges_come_are_those_of_the_whole_graph(agents: list[str]) -> None:
    edges = set(pairwise(agents))
    every = {
        length: sum(
            path[0] == min(path) and all(edge in edges for edge in pairwise((*path, path[0])))
            for path in permutations("abcde", length)
        )
        for length in range(1, LONGEST_CYCLE + 1)
    }
    assert organisation(chain(*agents)).cycles == every


def test_a_long_trace_is_measured_at_each_of_its_steps() -> None:
    folding, steps = Folding(), 5000
    for place in range(steps):
        folding.add(Activation(f"agent {place * place % 37}", (place - 1,) if place else ()))
        found = folding.organisation
        assert found.steps == place + 1
    assert found == organisation(chain(*(f"agent {place * place % 37}" for place in range(steps))))


@given(st.lists(st.sampled_from("abcde"), min_size=1, max_size=30), st.permutations("abcde"))
def test_names_do_not_matter(agents: list[str], others: list[str]) -> None:
    renamed = dict(zip("abcde", others, strict=True))
    found, again = organisation(chain(*agents)), organisation(chain(*(renamed[agent] for agent in agents)))
    assert again.entropy == pytest.approx(found.entropy)
    assert (again.cycles, again.density, again.density_multi, again.hub_share, again.revisit_rate) == (
        found.cycles,
        found.density,
        found.density_multi,
        found.hub_share,
        found.revisit_rate,
    )


@given(st.lists(st.sampled_from("abcd"), min_size=2, max_size=30))
def test_shares_and_densities_stay_in_their_range(agents: list[str]) -> None:
    found = organisation(chain(*agents))
    assert 1 / found.active_agents <= (found.hub_share or 0) <= 1
    assert 0 <= found.entropy <= math.log2(found.active_agents) + 1e-9
    assert found.density is None or 0 < found.density <= 1
    assert found.branches == 1


def test_steps_after_the_last_change_are_wasted() -> None:
    assert course(["4", "5", "5", None, "5"], [None] * 5).wasted_suffix == 3
    assert course(["4", "5"], [None, None]).wasted_suffix == 0
    assert course([None, None], [None, None]).wasted_suffix == 0


def test_a_right_answer_given_up_is_abandoned() -> None:
    found = course(["4", "5"], [1.0, 0.0])
    assert (found.abandoned, found.oracle_stop_gap) == (True, 1.0)
    assert course(["4", "5"], [0.0, 1.0]).abandoned is False
    assert course(["4", "5"], [1.0, None]).abandoned is None
