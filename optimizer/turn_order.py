"""Which turns of a trace followed which: by their times, or by what links between them say. Both are linear in what
they find."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def in_order_of_time(starts: Sequence[int], ends: Sequence[int]) -> list[list[int]]:
    """Of each turn, by its start, the turns that it followed: those that had ended when it began, with none between
    that began after they ended and itself had ended. A turn that ends at the moment at which another begins is before
    it."""
    found: list[list[int]] = []
    running: list[tuple[int, int]] = []
    ended: list[int] = []
    newest = -1  # of the ended ones that which began last
    for place, start in enumerate(starts):
        while running and running[0][0] <= start:
            ended.append(heapq.heappop(running)[1])
            newest = max(newest, ended[-1])
        if newest >= 0:
            ended = [one for one in ended if one == newest or ends[one] > starts[newest]]
        found.append(sorted(ended))
        heapq.heappush(running, (ends[place], place))
    return found


def in_order_of_links(keys: Sequence[int], pairs: Sequence[tuple[int, int]]) -> tuple[list[int], list[list[int]]]:
    """The order of turns in which each stands after those that it followed, else as given; and the places of those.

    keys: of the turns. pairs: a turn's key and the key of one that it followed; one that would close a circle is
    dropped.
    """
    at = {key: place for place, key in enumerate(keys)}
    before: dict[int, list[int]] = {}
    for turn, earlier in pairs:
        if turn in at and earlier in at:
            before.setdefault(at[turn], []).append(at[earlier])
    place_of: dict[int, int] = {}
    sequence: list[int] = []
    followed: list[list[int]] = []
    for turn in range(len(keys)):
        path, waiting = {turn}, [turn]
        while waiting:
            at_hand = waiting[-1]
            missing = [one for one in before.get(at_hand, ()) if one not in place_of and one not in path]
            if missing and at_hand not in place_of:
                waiting.append(missing[0])
                path.add(missing[0])
                continue
            waiting.pop()
            path.discard(at_hand)
            if at_hand not in place_of:
                place_of[at_hand] = len(sequence)
                sequence.append(at_hand)
                followed.append(sorted(place_of[one] for one in before.get(at_hand, ()) if one in place_of))
    return sequence, [[one for one in earlier if one < place] for place, earlier in enumerate(followed)]
