#!/usr/bin/env python3
"""Simulated: what blocks of tiny units would cost where a cache makes room for what it needs sooner.

    python bench/blocks.py [--units 8000] [--epochs 8] [--cache 0.3]

Unequal units of about 1 KiB in a cache for a part of them: one by one, where 6.5 % of the memory go
to the index and to pages that are larger than their units, against blocks of 2, 4 and 8 neighbours, where 5, 4 and 3 % do. A block is admitted whole
and goes whole, when the soonest of its units is needed latest. The victim is the worst of 64, as in the cache.
Printed: which part of the uses hit, and how many units are read from the source for one use.
"""
import argparse
import random

WASTE = {1: 1.065, 2: 1.05, 4: 1.04, 8: 1.03}


def weighted(units, epochs, draw):
    weights = [draw.lognormvariate(0, 1.5) for _ in range(units)]
    return draw.choices(range(units), weights, k=units * epochs)


def parts(units, epochs, draw):
    """Each epoch a quarter of them, none twice; four times as many epochs."""
    return [unit for _ in range(4 * epochs) for unit in draw.sample(range(units), units // 4)]


def permutations(units, epochs, draw):
    return [unit for _ in range(epochs) for unit in draw.sample(range(units), units)]


def next_uses(uses):
    """For each use the time of the next one of the same."""
    later, found = {}, [0] * len(uses)
    for time in range(len(uses) - 1, -1, -1):
        found[time] = later.get(uses[time], len(uses) * 2)
        later[uses[time]] = time
    return found


def simulate(uses, sizes, limit, policy, draw):
    """Hits and admissions among the last two thirds of the uses; -> also how many uses those are."""
    nexts, worth, place, kept = next_uses(uses), {}, {}, []
    used = hits = admitted = 0
    for time, one in enumerate(uses):
        counts = time >= len(uses) // 3
        value = time if policy == "lru" else -nexts[time]  # the least goes first
        if one in worth:
            worth[one], hits = value, hits + counts
            continue
        while used + sizes[one] > limit and kept:
            worst = min((kept[draw.randrange(len(kept))] for _ in range(64)), key=worth.get)
            if worth[worst] >= value:
                break
            used -= sizes[worst]
            place[kept[-1]] = place[worst]
            kept[place.pop(worst)] = kept[-1]
            kept.pop()
            del worth[worst]
        if used + sizes[one] <= limit:
            worth[one], place[one], used = value, len(kept), used + sizes[one]
            kept.append(one)
            admitted += counts
    return hits, admitted, len(uses) - len(uses) // 3


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--units", type=int, default=8000)
    arguments.add_argument("--epochs", type=int, default=8)
    arguments.add_argument("--cache", type=float, default=0.3, help="its part of the data")
    options = arguments.parse_args()
    draw = random.Random(0)
    bytes_of = [draw.randint(100, 1948) for _ in range(options.units)]
    print(f"{'order':14}{'policy':10}" + "".join(f"{f'{n} together':>18}" for n in WASTE))
    for order in (weighted, parts, permutations):
        uses = order(options.units, options.epochs, draw)
        for policy in ("next-use", "lru"):
            cells = []
            for together, waste in WASTE.items():
                sizes = [sum(bytes_of[first:first + together])
                         for first in range(0, options.units, together)]
                hits, admitted, count = simulate([unit // together for unit in uses], sizes,
                                                 options.cache * sum(bytes_of) / waste, policy, draw)
                reads = (count - hits - admitted + admitted * together) / count
                cells.append(f"{hits / count:.2f}, reads {reads:4.2f}")
            print(f"{order.__name__:14}{policy:10}" + "".join(f"{cell:>18}" for cell in cells))


if __name__ == "__main__":
    main()
