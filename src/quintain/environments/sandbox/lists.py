"""Functions of generated projects that order, cut and join lists, and that read and write texts."""

from __future__ import annotations

from random import Random

from quintain.environments.sandbox.domains import Domain, draw_things
from quintain.environments.sandbox.specimens import Arguments, Extension, Specimen


def _things(rng: Random, domain: Domain) -> Arguments:
    return [draw_things(rng, domain, least=1)]


def _things_and_n(rng: Random, domain: Domain) -> Arguments:
    return [draw_things(rng, domain, least=3), rng.randint(1, 3)]


def _page(rng: Random, domain: Domain) -> Arguments:
    return [draw_things(rng, domain, least=3), rng.randint(1, 3), rng.randint(1, 3)]


def _two_sorted(rng: Random, domain: Domain) -> Arguments:
    drawn = draw_things(rng, domain, least=3)
    half = rng.randint(1, len(drawn) - 1)
    return [sorted(part, key=lambda thing: int(thing[domain.count])) for part in (drawn[:half], drawn[half:])]


def _things_and_limit(rng: Random, domain: Domain) -> Arguments:
    return [draw_things(rng, domain, least=3), rng.choice((11, 16, 20, 25, 43))]


def _line(rng: Random, domain: Domain) -> Arguments:
    (thing,) = draw_things(rng, domain, 1, 1)
    parts = [thing["name"], thing[domain.label], str(thing[domain.count])]
    parts = rng.choice((parts, parts, parts, parts[:2], [*parts, "x"], [parts[0], parts[1], "many"]))
    return [rng.choice((";", "; ", " ; ")).join(parts)]


def _name_and_number(rng: Random, domain: Domain) -> Arguments:
    (thing,) = draw_things(rng, domain, 1, 1)
    return [
        rng.choice((thing["name"], f"long{thing['name']} two", thing["name"].title())),
        rng.choice((4, 17, 230, 1604)),
    ]


_NAMES_BY = Specimen(
    "lists",
    "names_by_$label",
    "grouped_by_$label",
    '''def names_by_$label($things):
    """The names of the $things of each $label, in the order of the alphabet."""
    groups = {}
    for $thing in $things:
        groups.setdefault($thing["$label"], []).append($thing["name"])
    return {key: sorted(names) for key, names in groups.items()}
''',
    (
        ("sorted(names)", "names"),
        ("sorted(names)", "sorted(names, reverse=True)"),
        (
            'groups.setdefault($thing["$label"], []).append($thing["name"])',
            'groups[$thing["$label"]] = [$thing["name"]]',
        ),
        ('.append($thing["name"])', '.insert(0, $thing["$label"])'),
    ),
    Extension(
        "most=None",
        "where it is given, no list is longer: the first names stay",
        (
            ("($things):", "($things, most=None):"),
            ("sorted(names)", "sorted(names)[:most]"),
            ("in the order of the alphabet.", "in the order of the alphabet, at most `most` of them."),
        ),
        (1, 2),
    ),
    _things,
)

_TOP = Specimen(
    "lists",
    "top_$things",
    "largest_$things",
    '''def top_$things($things, n):
    """The names of the n $things of the largest $count, largest first; equal ones in the order of the alphabet."""
    ordered = sorted($things, key=lambda $thing: (-$thing["$count"], $thing["name"]))
    return [$thing["name"] for $thing in ordered[:n]]
''',
    (
        ('(-$thing["$count"], $thing["name"])', '-$thing["$count"]'),
        ('(-$thing["$count"],', '($thing["$count"],'),
        ("ordered[:n]", "ordered[: n - 1]"),
        ("ordered[:n]", "ordered[1 : n + 1]"),
    ),
    Extension(
        "smallest=False",
        "where it is true, those of the smallest $count come first instead",
        (
            ("($things, n):", "($things, n, smallest=False):"),
            ('(-$thing["$count"],', '($thing["$count"] if smallest else -$thing["$count"],'),
            ("largest first;", "largest first (smallest first with `smallest`);"),
        ),
        (True,),
    ),
    _things_and_n,
)

_PAGE = Specimen(
    "lists",
    "page_of_$things",
    "sheet_of_$things",
    '''def page_of_$things($things, number, size):
    """The names on page `number`, the first of which is 1, with `size` names on each; none after the last page."""
    start = (number - 1) * size
    return [$thing["name"] for $thing in $things[start : start + size]]
''',
    (
        ("(number - 1) * size", "number * size"),
        ("(number - 1) * size", "(number - 1)"),
        ("start + size]", "size]"),
        ("start + size]", "start + size + 1]"),
    ),
    Extension(
        "backwards=False",
        "where it is true, the pages count from the end of the list, the last name first",
        (
            ("number, size):", "number, size, backwards=False):"),
            ("    start = ", "    listed = $things[::-1] if backwards else $things\n    start = "),
            ("in $things[start", "in listed[start"),
            ("none after the last page.", "none after the last page. `backwards` begins at the end."),
        ),
        (True,),
    ),
    _page,
)

_MERGE = Specimen(
    "lists",
    "merge_$things",
    "join_$things",
    '''def merge_$things(left, right):
    """The names of two lists that are sorted by $count as one sorted list; of equal ones the left comes first."""
    merged = []
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i]["$count"] <= right[j]["$count"]:
            merged.append(left[i]["name"])
            i += 1
        else:
            merged.append(right[j]["name"])
            j += 1
    merged += [$thing["name"] for $thing in left[i:]]
    merged += [$thing["name"] for $thing in right[j:]]
    return merged
''',
    (
        ('left[i]["$count"] <= right', 'left[i]["$count"] < right'),
        ('left[i]["$count"] <= right', 'left[i]["$count"] >= right'),
        ("in right[j:]]", "in right[j + 1 :]]"),
        ("in left[i:]]", "in left[i + 1 :]]"),
    ),
    Extension(
        "most=None",
        "where it is given, only so many names come back, from the beginning",
        (
            ("(left, right):", "(left, right, most=None):"),
            ("return merged", "return merged[:most]"),
            ("the left comes first.", "the left comes first. At most `most` names."),
        ),
        (1, 2, 3),
    ),
    _two_sorted,
)

_LOADS = Specimen(
    "lists",
    "loads_of_$things",
    "batches_of_$things",
    '''def loads_of_$things($things, limit):
    """The names in loads, in order: a load ends before its $count would pass the limit, but holds at least one."""
    loads = []
    load = []
    held = 0
    for $thing in $things:
        if load and held + $thing["$count"] > limit:
            loads.append(load)
            load, held = [], 0
        load.append($thing["name"])
        held += $thing["$count"]
    if load:
        loads.append(load)
    return loads
''',
    (
        ("> limit:", ">= limit:"),
        ("load, held = [], 0", "load = []"),
        ('held += $thing["$count"]', 'held = $thing["$count"]'),
        ('held + $thing["$count"] > limit', "held > limit"),
    ),
    Extension(
        "most=None",
        "where it is given, no load holds more names",
        (
            ("($things, limit):", "($things, limit, most=None):"),
            (
                'if load and held + $thing["$count"] > limit:',
                'if load and (held + $thing["$count"] > limit or len(load) == most):',
            ),
            ("but holds at least one.", "but holds at least one, and at most `most`."),
        ),
        (1, 2),
    ),
    _things_and_limit,
)

_RUNS = Specimen(
    "lists",
    "${label}_runs",
    "${label}_streaks",
    '''def ${label}_runs($things):
    """Neighbours of one $label together: the $label and how many, in order."""
    runs = []
    for $thing in $things:
        if runs and runs[-1][0] == $thing["$label"]:
            runs[-1][1] += 1
        else:
            runs.append([$thing["$label"], 1])
    return runs
''',
    (
        ("runs[-1][0] ==", "runs[0][0] =="),
        ("runs[-1][1] += 1", "runs[-1][1] = 1"),
        ('$thing["$label"], 1]', '$thing["$label"], 0]'),
        ("runs[-1][1] += 1", "runs[0][1] += 1"),
    ),
    Extension(
        "shortest=1",
        "shorter ones are left out at the end",
        (
            ("($things):", "($things, shortest=1):"),
            ("return runs", "return [run for run in runs if run[1] >= shortest]"),
            ("how many, in order.", "how many, in order; those below `shortest` are left out."),
        ),
        (2,),
    ),
    _things,
)

_PARSE = Specimen(
    "texts",
    "parse_$thing",
    "read_$thing",
    '''def parse_$thing(line):
    """A $thing of a line such as "red star; A; 12": its name, $label and $count, without spaces around them.

    Raises ValueError where there are not three parts, or the last is no whole number.
    """
    parts = [part.strip() for part in line.split(";")]
    if len(parts) != 3:
        raise ValueError(f"three parts are needed: {line!r}")
    name, $label, $count = parts
    return {"name": name, "$label": $label, "$count": int($count)}
''',
    (
        ("part.strip() for", "part for"),
        ("raise ValueError(", "raise KeyError("),
        ("int($count)", "$count"),
        ('"name": name, "$label": $label', '"name": $label, "$label": name'),
    ),
    Extension(
        'separator=";"',
        "what stands between the parts",
        (
            ("(line):", '(line, separator=";"):'),
            ('line.split(";")', "line.split(separator)"),
            ("without spaces around them.", "without spaces around them; `separator` stands between the parts."),
        ),
        (" ;", "; "),
    ),
    _line,
)

_TABLE = Specimen(
    "texts",
    "${things}_table",
    "lines_of_$things",
    '''def ${things}_table($things):
    """A line for each of the $things: the name filled up to the longest, two spaces, the $count to the right."""
    wide = max((len($thing["name"]) for $thing in $things), default=0)
    far = max((len(str($thing["$count"])) for $thing in $things), default=0)
    return [$thing["name"].ljust(wide) + "  " + str($thing["$count"]).rjust(far) for $thing in $things]
''',
    (
        (".rjust(far)", ".ljust(far)"),
        (".ljust(wide)", ".rjust(wide)"),
        ('wide = max((len($thing["name"])', 'wide = min((len($thing["name"])'),
        ('+ "  " +', '+ " " +'),
    ),
    Extension(
        'mark=""',
        "a text that stands before each line",
        (
            ("($things):", '($things, mark=""):'),
            ('return [$thing["name"]', 'return [mark + $thing["name"]'),
            ("the $count to the right.", "the $count to the right; `mark` stands before it."),
        ),
        ("- ", "* ", "> "),
    ),
    _things,
)

_CODE = Specimen(
    "texts",
    "${thing}_code",
    "short_name_of_$thing",
    '''def ${thing}_code(name, number):
    """A code such as "RED-007": the first word in capitals, at most six letters of it, and the number with at least three digits."""
    word = name.split()[0].upper()[:6]
    return f"{word}-{number:03d}"
''',
    (
        (".split()[0]", ".split()[-1]"),
        (":03d", ":02d"),
        ("[:6]", "[:3]"),
        (".upper()", ".title()"),
    ),
    Extension(
        'joint="-"',
        "what stands between word and number",
        (
            ("(name, number):", '(name, number, joint="-"):'),
            ("{word}-{number", "{word}{joint}{number"),
            ("at least three digits.", "at least three digits; `joint` stands between them."),
        ),
        ("/", "_", ""),
    ),
    _name_and_number,
)

LISTS = (_NAMES_BY, _TOP, _PAGE, _MERGE, _LOADS, _RUNS, _PARSE, _TABLE, _CODE)
