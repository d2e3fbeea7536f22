"""The small grammars of the built-in sentences, one list of templates a relation.

In: nothing. Out: templates, to be read aloud. This module refuses to know how they are filled.

A word in capitals is a slot of the vocabulary, or an opening; `A` becomes "a" or "an". `:d` marks
the dependent, `:g` its governor. The templates of a relation put different distances between the
two, in both orders where English has both, with other words of the same kind around, so that no
fixed offset finds many of them; and an opening of any length comes first, so that no fixed place
does.

In templates with candidates N1, N2, N3 (people) or C1, C2, C3 (concepts) each of them is gold in
turn, so that no place among the candidates is gold more often than another.
"""

OPENINGS: dict[str, tuple[str, ...]] = {
    "SAID": (
        "",
        "perhaps",
        "of course",
        "NAME said that",
        "NAME told me that",
        "NAME and NAME believed that",
    ),
    "ASK": ("", "so", "NAME ,", "but NAME ,", "please tell me ,", "tell me , NAME ,"),
    "BUT": ("", "but", "and then", "so", "then"),
}

SYNTAX: dict[str, tuple[str, ...]] = {
    "subject-verb": (
        "SAID the PERSON:d ACTED:g the COLOR THING near the PLACE .",
        "SAID when the PERSON arrived , the QUALITY PERSON:d RESTED:g .",
        "SAID the PERSON:d ADV ACTED:g the THING of the PERSON .",
        "SAID the PERSON:d almost never ACTED:g the COLOR THING .",
        "SAID the PERSON:d NEAR the PLACE RESTED:g SOFTLY .",
        "SAID the PERSON:d who MET the PERSON RESTED:g SOFTLY .",
        "SAID NEAR the PLACE STOOD:g the PERSON:d with the THING .",
        "SAID NEAR the AGE PLACE STOOD:g the QUALITY PERSON:d .",
        "SAID NEAR the PLACE STOOD:g THE QUALITY KIND PERSON:d .",
    ),
    "verb-object": (
        "SAID the PERSON ACTED:g THINGS:d at the PLACE .",
        "SAID the PERSON ACTED:g the THING:d NEAR the PLACE .",
        "SAID the PERSON ADV ACTED:g the COLOR THING:d of the PERSON .",
        "SAID the PERSON NEAR the PLACE ACTED:g the SIZE AGE THING:d .",
        "ASK which THING:d will NAME ACT:g at the PLACE ?",
        "ASK which COLOR THING:d did the PERSON ACT:g ?",
        "ASK which THING:d did the QUALITY PERSON ACT:g NEAR the PLACE ?",
    ),
    "determiner-noun": (
        "SAID the PERSON ACTED DET:d THING:g NEAR the PLACE .",
        "SAID DET:d PERSON:g from the WORK ACTED the COLOR THING .",
        "SAID the PERSON ACTED DET:d AGE THING:g NEAR the PLACE .",
        "SAID DET:d KIND PERSON:g RESTED NEAR the PLACE .",
        "SAID the PERSON ACTED DET:d SIZE COLOR THING:g at the PLACE .",
        "SAID THE:d VERY QUALITY PERSON:g RESTED NEAR the PLACE .",
        "SAID the PERSON ACTED THE:d SIZE AGE COLOR THING:g .",
        "SAID THE:d VERY QUALITY KIND PERSON:g MET the PERSON .",
    ),
    "adjective-noun": (
        "SAID the PERSON ACTED the COND:d THING:g NEAR the PLACE .",
        "SAID the QUALITY:d PERSON:g from the WORK ACTED the THING .",
        "SAID the PERSON ACTED the SIZE:d COLOR THING:g of the PERSON .",
        "SAID the QUALITY:d KIND PERSON:g RESTED NEAR the PLACE .",
        "SAID the PERSON ACTED the SIZE:d AGE COLOR THING:g .",
        "SAID the PERSON ACTED THE FINE:d and RARE THING:g .",
        "SAID A PERSON:g QUALITY:d enough to ACT the THING was hard to find .",
        "SAID the THING:g , COND:d but not AGE , lay NEAR the PLACE .",
        "SAID the PERSON:g , VERY QUALITY:d , RESTED NEAR the PLACE .",
    ),
    "verb-modifier": (
        "SAID the PERSON ADV:d ACTED:g the THING of the PERSON .",
        "SAID the PERSON NEAR the PLACE RESTED:g SOFTLY:d .",
        "SAID the PERSON from the WORK MET:g NAME SOFTLY:d .",
        "SAID the PERSON ACTED:g the THING ADV:d .",
        "SAID the PERSON ACTED:g the COLOR THING ADV:d .",
        "SAID the PERSON SOFTLY:d and SOFTLY ACTED:g the THING .",
        "BUT ADV:d , the PERSON ACTED:g the COLOR THING .",
        "BUT ADV:d , the QUALITY PERSON ACTED:g the THING .",
    ),
    "preposition-object": (
        "SAID the PERSON from the WORK MOVED TOWARD:g CITY:d .",
        "SAID the PERSON waited NEAR:g the PLACE:d with NAME .",
        "SAID the PERSON from the WORK ACTED the THING NEAR:g the AGE PLACE:d .",
        "SAID the PERSON with the THING MOVED TOWARD:g the SIZE AGE PLACE:d .",
        "ASK which HOME:d is NAME from:g ?",
        "ASK which PLACE:d did NAME MOVE TOWARD:g with the PERSON ?",
        "ASK which AGE PLACE:d did the PERSON MOVE TOWARD:g ?",
    ),
}

# PRON is the pronoun as a subject, OBJ as an object, WAS its "was" or "were".
PRONOUNS_OF_TWO = (
    "N1 MET N2 because PRON:d WAS STATE .",
    "N1 told N2 that PRON:d could stay at the PLACE .",
    "after N1 had met N2 at the PLACE , PRON:d went home .",
    "N1 waited for N2 NEAR the PLACE until PRON:d WAS STATE .",
    "N1 talked to N2 about the THING that PRON:d had bought .",
    "while N1 talked to N2 , the PERSON looked at OBJ:d .",
    "because PRON:d WAS STATE , N1 MET N2 .",
    "when PRON:d arrived at the PLACE , N1 MET N2 .",
    "before PRON:d left the PLACE , N1 talked to N2 .",
    "although PRON:d WAS STATE , N1 asked N2 for the THING .",
    "as PRON:d WAS STATE , N1 gave N2 the THING .",
)
PRONOUNS_OF_THREE = (
    "N1 saw N2 and N3 at the PLACE , but PRON:d WAS STATE .",
    "N1 asked N2 about N3 because PRON:d WAS STATE .",
    "N1 went to the PLACE with N2 to meet N3 , but PRON:d did not stay .",
    "N1 told N2 a story about N3 after PRON:d had left .",
    "while PRON:d WAS at the PLACE , N1 asked N2 about N3 .",
    "because PRON:d WAS STATE , N1 went to the PLACE with N2 to meet N3 .",
    "when PRON:d called , N1 told N2 a story about N3 .",
)
# A thing among people: "it" can only be the thing.
PRONOUNS_OF_THINGS = (
    "the THING:g belonged to NAME:c until NAME:c sold it:d .",
    "NAME:c put the THING:g NEAR NAME:c because it:d was FAULT .",
    "NAME:c asked NAME:c about the THING:g because it:d was FAULT .",
    "because it:d was FAULT , the THING:g worried NAME:c and NAME:c .",
    "because it:d was FAULT , NAME:c gave the THING:g to NAME:c .",
    "although it:d was FAULT , NAME:c and NAME:c ACTED the THING:g .",
)

CONCEPTS_OF_TWO = (
    "NAME drew the C1 and the C2 before NAME drew the D:d .",
    "first came the C1 , then the C2 , and finally the D:d .",
    "neither the C1 nor the C2 was as famous as the D:d .",
    "in a dream NAME saw the C1 , the C2 and the D:d .",
    "NAME drew the D:d before NAME drew the C1 and the C2 .",
    "the D:d was missing , but NAME found the C1 and the C2 .",
    "the article about the D:d also described the C1 and the C2 .",
    "NAME drew the C1 beside the D:d and the C2 in a notebook .",
)
CONCEPTS_OF_THREE = (
    "the story mentioned the C1 , the C2 , the C3 and the D:d .",
    "NAME described the C1 , the C2 and the C3 before the D:d .",
    "after the D:d NAME described the C1 , the C2 and the C3 .",
    "the D:d came first , and then came the C1 , the C2 and the C3 .",
)
