"""Functions of generated projects that count and add."""

from __future__ import annotations

from random import Random

from quintain.environments.sandbox.domains import LABELS, Domain, draw_things
from quintain.environments.sandbox.specimens import Arguments, Extension, Specimen


def _things(rng: Random, domain: Domain) -> Arguments:
    return [draw_things(rng, domain, least=0)]


def _things_and_label(rng: Random, domain: Domain) -> Arguments:
    return [draw_things(rng, domain), rng.choice(LABELS)]


def _before_and_after(rng: Random, domain: Domain) -> Arguments:
    before = draw_things(rng, domain)
    after = [dict(thing) for thing in before if rng.random() < 0.7] + draw_things(rng, domain, 0, 2)
    for thing in after:
        thing[domain.count] += rng.choice((0, 0, 2, -2, 7))
    return [before, list({thing["name"]: thing for thing in after}.values())]


def _things_and_size(rng: Random, domain: Domain) -> Arguments:
    return [draw_things(rng, domain), rng.randint(1, 4)]


_TOTAL = Specimen(
    "sums",
    "total_$count",
    "sum_of_$count",
    '''def total_$count($things, $label):
    """The sum of the $count of all $things of one $label; 0 where there are none."""
    total = 0
    for $thing in $things:
        if $thing["$label"] == $label:
            total += $thing["$count"]
    return total
''',
    (
        ('total += $thing["$count"]', 'total = $thing["$count"]'),
        ("== $label:", "!= $label:"),
        ("total = 0", "total = 1"),
        ('total += $thing["$count"]', "total += 1"),
    ),
    Extension(
        "at_least=0",
        "$things whose $count is less are left out",
        (
            ("($things, $label):", "($things, $label, at_least=0):"),
            ("== $label:", '== $label and $thing["$count"] >= at_least:'),
            ("where there are none.", "where there are none. Those whose $count is below `at_least` are left out."),
        ),
        (5, 8, 12),
    ),
    _things_and_label,
)

_RUNNING = Specimen(
    "sums",
    "running_$count",
    "cumulative_$count",
    '''def running_$count($things):
    """The sums of the $count of the first, the first two, and so on of the $things."""
    sums = []
    total = 0
    for $thing in $things:
        total += $thing["$count"]
        sums.append(total)
    return sums
''',
    (
        ("total = 0", "total = 1"),
        ('total += $thing["$count"]', 'total = $thing["$count"]'),
        ("return sums", "return sums[1:]"),
        ("sums.append(total)", "sums.insert(0, total)"),
    ),
    Extension(
        "start=0",
        "the sum that stands before the first",
        (
            ("($things):", "($things, start=0):"),
            ("total = 0", "total = start"),
            ("and so on of the $things.", "and so on of the $things, each with `start` added."),
        ),
        (4, 10, -3),
    ),
    _things,
)

_MEDIAN = Specimen(
    "sums",
    "median_$count",
    "middle_$count",
    '''def median_$count($things):
    """The median of the $count: the middle one, or the mean of the two in the middle; None where there are no $things."""
    values = sorted($thing["$count"] for $thing in $things)
    if not values:
        return None
    middle = len(values) // 2
    if len(values) % 2:
        return values[middle]
    return (values[middle - 1] + values[middle]) / 2
''',
    (
        ("sorted(", "list("),
        ("len(values) % 2:", "len(values) % 2 == 0:"),
        ("(values[middle - 1] + values[middle]) / 2", "values[middle]"),
        ("(values[middle - 1] + values[middle]) / 2", "values[middle - 1]"),
    ),
    Extension(
        "only=None",
        "where it is given, $things of another $label do not count",
        (
            ("($things):", "($things, only=None):"),
            ("for $thing in $things)", 'for $thing in $things if only is None or $thing["$label"] == only)'),
            (
                "where there are no $things.",
                "where there are no $things. With `only`, those of that $label alone count.",
            ),
        ),
        LABELS,
    ),
    _things,
)

_CHANGES = Specimen(
    "sums",
    "${count}_changes",
    "differences_in_$count",
    '''def ${count}_changes(before, after):
    """How much the $count of each name has grown, where it changed; what is not in a list counts as 0 there."""
    old = {$thing["name"]: $thing["$count"] for $thing in before}
    new = {$thing["name"]: $thing["$count"] for $thing in after}
    changes = {}
    for name in sorted(old.keys() | new.keys()):
        difference = new.get(name, 0) - old.get(name, 0)
        if difference != 0:
            changes[name] = difference
    return changes
''',
    (
        ("difference != 0", "difference > 0"),
        ("old.keys() | new.keys()", "old.keys() & new.keys()"),
        ("new.get(name, 0) - old.get(name, 0)", "old.get(name, 0) - new.get(name, 0)"),
        ("old.keys() | new.keys()", "old.keys()"),
    ),
    Extension(
        "least=1",
        "changes that are smaller, up or down, are left out",
        (
            ("(before, after):", "(before, after, least=1):"),
            ("if difference != 0:", "if abs(difference) >= least:"),
            ("counts as 0 there.", "counts as 0 there. Changes below `least` are left out."),
        ),
        (3, 6),
    ),
    _before_and_after,
)

_BUSIEST = Specimen(
    "sums",
    "busiest_$things",
    "fullest_$things",
    '''def busiest_$things($things, size):
    """Where the `size` neighbours with the largest sum of $count begin; the first of equal ones; None where there are fewer."""
    best, place = None, None
    for start in range(len($things) - size + 1):
        held = sum($thing["$count"] for $thing in $things[start : start + size])
        if best is None or held > best:
            best, place = held, start
    return place
''',
    (
        ("held > best", "held >= best"),
        ("held > best", "held < best"),
        ("- size + 1)", "- size)"),
        ("start + size]", "start + size + 1]"),
    ),
    Extension(
        "after=0",
        "only neighbours that begin there or later are looked at",
        (
            ("($things, size):", "($things, size, after=0):"),
            ("range(len", "range(after, len"),
            (
                "None where there are fewer.",
                "None where there are fewer. Only those from the place `after` on are looked at.",
            ),
        ),
        (1, 2),
    ),
    _things_and_size,
)

SUMS = (_TOTAL, _RUNNING, _MEDIAN, _CHANGES, _BUSIEST)
