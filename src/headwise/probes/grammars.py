"""The small grammars of the built-in sentences, one list of templates a relation.

In: nothing. Out: templates, to be read aloud. This module refuses to know how they are filled.

A word in capitals is a slot of the vocabulary, or an opening; `A` becomes "a" or "an". `:d` marks
the dependent, `:h` its head. The templates of a relation put different distances between the two,
in both orders where English has both, with other words of the same kind around, so that no fixed
offset finds many of them; and an opening of any length comes first, so that no fixed place does.

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
        "SAID the PERSON:d ACTED:h the COLOR THING near the PLACE .",
        "SAID when the PERSON arrived , the QUALITY PERSON:d RESTED:h .",
        "SAID the PERSON:d ADV ACTED:h the THING of the PERSON .",
        "SAID the PERSON:d almost never ACTED:h the COLOR THING .",
        "SAID the PERSON:d NEAR the PLACE RESTED:h SOFTLY .",
        "SAID the PERSON:d who MET the PERSON RESTED:h SOFTLY .",
        "SAID NEAR the PLACE STOOD:h the PERSON:d with the THING .",
        "SAID NEAR the AGE PLACE STOOD:h the QUALITY PERSON:d .",
        "SAID NEAR the PLACE STOOD:h THE QUALITY KIND PERSON:d .",
    ),
    "verb-object": (
        "SAID the PERSON ACTED:h THINGS:d at the PLACE .",
        "SAID the PERSON ACTED:h the THING:d NEAR the PLACE .",
        "SAID the PERSON ADV ACTED:h the COLOR THING:d of the PERSON .",
        "SAID the PERSON NEAR the PLACE ACTED:h the SIZE AGE THING:d .",
        "ASK which THING:d will NAME ACT:h at the PLACE ?",
        "ASK which COLOR THING:d did the PERSON ACT:h ?",
        "ASK which THING:d did the QUALITY PERSON ACT:h NEAR the PLACE ?",
    ),
    "determiner-noun": (
        "SAID the PERSON ACTED DET:d THING:h NEAR the PLACE .",
        "SAID DET:d PERSON:h from the WORK ACTED the COLOR THING .",
        "SAID the PERSON ACTED DET:d AGE THING:h NEAR the PLACE .",
        "SAID DET:d KIND PERSON:h RESTED NEAR the PLACE .",
        "SAID the PERSON ACTED DET:d SIZE COLOR THING:h at the PLACE .",
        "SAID THE:d VERY QUALITY PERSON:h RESTED NEAR the PLACE .",
        "SAID the PERSON ACTED THE:d SIZE AGE COLOR THING:h .",
        "SAID THE:d VERY QUALITY KIND PERSON:h MET the PERSON .",
    ),
    "adjective-noun": (
        "SAID the PERSON ACTED the COND:d THING:h NEAR the PLACE .",
        "SAID the QUALITY:d PERSON:h from the WORK ACTED the THING .",
        "SAID the PERSON ACTED the SIZE:d COLOR THING:h of the PERSON .",
        "SAID the QUALITY:d KIND PERSON:h RESTED NEAR the PLACE .",
        "SAID the PERSON ACTED the SIZE:d AGE COLOR THING:h .",
        "SAID the PERSON ACTED THE FINE:d and RARE THING:h .",
        "SAID A PERSON:h QUALITY:d enough to ACT the THING was hard to find .",
        "SAID the THING:h , COND:d but not AGE , lay NEAR the PLACE .",
        "SAID the PERSON:h , VERY QUALITY:d , RESTED NEAR the PLACE .",
    ),
    "verb-modifier": (
        "SAID the PERSON ADV:d ACTED:h the THING of the PERSON .",
        "SAID the PERSON NEAR the PLACE RESTED:h SOFTLY:d .",
        "SAID the PERSON from the WORK MET:h NAME SOFTLY:d .",
        "SAID the PERSON ACTED:h the THING ADV:d .",
        "SAID the PERSON ACTED:h the COLOR THING ADV:d .",
        "SAID the PERSON SOFTLY:d and SOFTLY ACTED:h the THING .",
        "BUT ADV:d , the PERSON ACTED:h the COLOR THING .",
        "BUT ADV:d , the QUALITY PERSON ACTED:h the THING .",
    ),
    "preposition-object": (
        "SAID the PERSON from the WORK MOVED TOWARD:h CITY:d .",
        "SAID the PERSON waited NEAR:h the PLACE:d with NAME .",
        "SAID the PERSON from the WORK ACTED the THING NEAR:h the AGE PLACE:d .",
        "SAID the PERSON with the THING MOVED TOWARD:h the SIZE AGE PLACE:d .",
        "ASK which HOME:d is NAME from:h ?",
        "ASK which PLACE:d did NAME MOVE TOWARD:h with the PERSON ?",
        "ASK which AGE PLACE:d did the PERSON MOVE TOWARD:h ?",
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
    "the THING:h belonged to NAME:c until NAME:c sold it:d .",
    "NAME:c put the THING:h NEAR NAME:c because it:d was FAULT .",
    "NAME:c asked NAME:c about the THING:h because it:d was FAULT .",
    "because it:d was FAULT , the THING:h worried NAME:c and NAME:c .",
    "because it:d was FAULT , NAME:c gave the THING:h to NAME:c .",
    "although it:d was FAULT , NAME:c and NAME:c ACTED the THING:h .",
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
