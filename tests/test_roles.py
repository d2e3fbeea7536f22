"""Roles: each has its own letter and colours, and states its claim and what remains unknown."""

import pytest

from headwise.roles import ROLES


def test_roles_are_in_this_order() -> None:
    assert list(ROLES) == [
        "induction", "duplicate", "coreference", "positional", "syntactic", "semantic", "sink",
        "delimiter", "broad",
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


def test_phrases_and_tendencies_continue_a_sentence() -> None:
    for role in ROLES.values():
        verb = "spread" if role.name == "broad" else "look"
        assert role.phrase.startswith(f"{verb}s ") and not role.phrase.endswith(".")
        assert role.tendency == f"tends to {verb}{role.phrase[len(verb) + 1 :]}"


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize(("theme", "ground"), [("light", "#ffffff"), ("dark", "#12151b")])
def test_colours_can_be_read_as_text_on_their_ground(theme: str, ground: str) -> None:
    for role in ROLES.values():
        both = sorted((luminance(getattr(role, theme)), luminance(ground)))
        assert (both[1] + 0.05) / (both[0] + 0.05) >= 4.45, role.name  # 4.5, rounded


def test_roles_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        ROLES["mine"] = ROLES["sink"]  # type: ignore[index]
