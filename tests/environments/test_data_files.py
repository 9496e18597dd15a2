"""Every data file of the built-in environments fits its shape, belongs to the task types, and is part of the package."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest
from pydantic import ValidationError

from quintain.environments import registry
from quintain.environments.conversation import advisory, discussion, engineering
from quintain.environments.conversation import support_desk as desk
from quintain.environments.conversation.message_parsing import word_lists
from quintain.environments.conversation.user import user_phrases
from quintain.environments.data_files import read_data
from quintain.environments.families import SPLITS
from quintain.environments.inventory import tasks as inventory
from quintain.environments.inventory import world as inventory_world
from quintain.environments.math import problems as math
from quintain.environments.sandbox.functions import ARGUMENTS, domains, templates

NOUNS = desk.desk_texts().businesses


def test_each_task_type_has_its_texts() -> None:
    assert tuple(advisory.fields()) == advisory.FAMILY.types
    assert tuple(discussion.topics()) == discussion.FAMILY.types
    assert tuple(engineering.vocabulary().orders) == engineering.FAMILY.types
    assert tuple(desk.desk_texts().policies) == desk.FAMILY.types
    assert tuple(inventory_world.vocabulary().prompts) == inventory.TYPES
    assert tuple(math.stories().stories) == math.FAMILY.types
    assert {template.arguments for template in templates()} == set(ARGUMENTS)


@pytest.mark.parametrize("split", SPLITS)
def test_each_split_has_its_own_words(split: str) -> None:
    assert user_phrases(split).lost
    assert len(desk.desk_texts().people[split].first_names) == 8
    assert domains(split)
    assert all(field.names[split] for field in advisory.fields().values())
    assert all(topic.names[split] and topic.sources[split] for topic in discussion.topics().values())
    assert all(business.items[split] and business.values[split] for business in NOUNS.values())
    assert word_lists().ending.search("goodbye")


def test_each_built_in_environment_has_a_sentence() -> None:
    built_in = {name for name in registry.environment_ids() if name.startswith("quintain/")}
    assert set(read_data("data/descriptions.yaml", dict[str, str])) == built_in
    assert all(registry.describe(name).endswith(".") for name in built_in)


def test_a_file_of_another_shape_is_refused() -> None:
    with pytest.raises(ValidationError):
        read_data("math/data/stories.yaml", dict[str, int])


def test_the_data_files_lie_in_the_package() -> None:
    """hatchling packages `src/quintain` wholly, so a file below the package is a file of the wheel."""
    root = Path(str(files("quintain.environments")))
    assert {path.parent.parent.name for path in root.glob("*/data/*.yaml")} >= {
        "conversation",
        "inventory",
        "math",
        "sandbox",
    }
