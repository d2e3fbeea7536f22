"""Roles: each has its own letter and colours, and states its claim and what remains unknown."""

import pytest

from headwise.roles import ROLES


def test_roles_are_in_this_order() -> None:
    assert list(ROLES) == [
        "positional", "delimiter", "sink", "syntactic", "semantic", "coreference", "induction",
        "duplicate", "broad",
    ]  # fmt: skip
    assert all(name == role.name for name, role in ROLES.items())


def test_letters_and_colours_tell_roles_apart() -> None:
    roles = ROLES.values()
    assert all(role.letter.lower() in role.name for role in roles)
    for fact in ("letter", "terminal_colour", "light", "dark"):
        assert len({getattr(role, fact) for role in roles}) == len(roles)


def test_every_meaning_but_one_names_the_unknown() -> None:
    assert all(role.meaning.endswith(".") for role in ROLES.values())
    assert [name for name, role in ROLES.items() if " Unknown: " not in role.meaning] == ["broad"]


def test_roles_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        ROLES["mine"] = ROLES["sink"]  # type: ignore[index]
