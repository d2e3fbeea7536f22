"""Words and templates for the built-in sentences; builtin.py fills the templates.

Every word in a list fits its slot: any person can do any action to any thing. In a template, upper
case marks a slot in SLOTS or OPENINGS, `:d` the dependent, `:g` the governor and `:c` a candidate.
C1, C2 and C3 are candidates: one is the antecedent of the pronoun, or the partner of concept D.
"""

AGREEMENT = "pronoun-agreement"
"""The relation that gender, number or kind decides."""
SLOT_WORDS = {
    "FEMALE": "Anna Maria Laura Julia Emma Sarah Alice Helen Clara Diana Emily Grace Hannah Irene "
    "Jane Kate Linda Lucy Martha Nancy Olivia Paula Rachel Rosa Sophie Susan Teresa Vera Eva "
    "Monica",
    "MALE": "Peter John David Thomas Paul Mark Henry Daniel Robert George Adam Brian Carl Edward "
    "Frank Harry Jack James Kevin Martin Michael Oliver Patrick Richard Simon Stephen Victor "
    "Walter William Arthur",
    "WOMEN": "woman girl queen aunt grandmother princess actress waitress mother sister daughter "
    "wife widow",
    "MEN": "man boy king uncle grandfather prince brother father son husband nephew monk gentleman",
    "GROUPS": "boys girls farmers teachers students soldiers sailors nurses children guests "
    "workers tourists neighbors visitors travelers musicians dancers players lawyers hunters",
    "DET": "the this that A every another",
    "THE": "the this that A",
    "PERSON": "doctor farmer teacher baker lawyer nurse pilot painter soldier sailor singer dancer "
    "writer student judge merchant carpenter driver engineer gardener hunter plumber poet "
    "professor scientist tailor tourist waiter witness banker barber butcher captain clerk "
    "detective editor guard journalist librarian mechanic mayor musician neighbor photographer "
    "policeman priest secretary shepherd surgeon manager artist actor inspector architect chemist "
    "cook dentist fisherman blacksmith traveler",
    "THING": "chair table lamp clock mirror basket bucket bottle box blanket ladder bicycle "
    "suitcase umbrella kettle vase drum violin candle carpet curtain bench barrel rope shovel "
    "hammer teapot bowl plate cup jug spoon knife coat scarf hat jacket ring necklace statue "
    "portrait telescope camera radio lantern wheel cart cradle pillow stool cupboard trunk wallet "
    "helmet flag kite doll puppet globe map book diary bell tray guitar crown sword shield "
    "backpack envelope pencil",
    "THINGS": "chairs tables lamps clocks mirrors baskets buckets bottles boxes blankets ladders "
    "bicycles suitcases umbrellas kettles vases drums violins candles carpets curtains benches "
    "barrels ropes shovels hammers bowls plates cups spoons coats hats jackets rings statues "
    "portraits cameras radios lanterns wheels pillows flags kites dolls puppets maps books bells "
    "trays guitars helmets pencils",
    "PLACE": "station market bridge harbor library museum church castle school gate factory bakery "
    "theater hotel airport park tower stadium hospital bank lighthouse farm mill fountain palace "
    "temple pharmacy well barn warehouse cottage inn gallery workshop prison monument cemetery",
    "WORK": "station market library museum church castle school factory bakery theater hotel "
    "airport hospital bank farm mill palace temple pharmacy warehouse inn gallery workshop prison "
    "cinema",
    "CITY": "Paris London Rome Berlin Madrid Vienna Boston Chicago Dublin Lisbon Prague Oslo "
    "Athens Cairo Tokyo Moscow Denver Toronto Geneva Naples",
    "HOME": "town village city country island valley region district street province",
    "KIND": "village town city island country valley",  # before a person: the village doctor
    "COND": "broken dusty clean dirty expensive cheap beautiful ugly strange valuable simple "
    "ordinary elegant plain pretty curious fancy shabby splendid unusual famous lovely",
    "FINE": "beautiful elegant splendid lovely pretty fancy charming graceful",
    "RARE": "valuable expensive famous unusual rare precious",
    "SIZE": "small large tiny huge big little enormous",
    "AGE": "old new ancient modern",
    "COLOR": "red green blue yellow brown black white grey purple orange pink golden",
    "QUALITY": "kind clever quiet friendly nervous cheerful patient brave polite lazy gentle proud "
    "stubborn shy calm generous grumpy careful wise lonely serious strict noisy ambitious "
    "impatient elderly young",
    "STATE": "tired happy hungry late ill busy lost angry nervous worried sad ready bored afraid "
    "alone sleepy",
    "FAULT": "heavy wet broken dirty expensive cheap dusty old new fragile rare damaged ugly",
    "VERY": "very rather unusually surprisingly extremely fairly remarkably",
    "ADV": "quietly slowly carefully quickly gently proudly eagerly calmly nervously secretly "
    "patiently happily silently politely bravely gladly hastily cheerfully reluctantly gratefully "
    "angrily sadly cautiously boldly promptly clumsily dutifully solemnly",
    "SOFTLY": "slowly quietly gently calmly patiently silently carefully cautiously softly",
    "MET": "greeted thanked called visited helped followed met watched praised invited warned "
    "hugged recognized ignored trusted admired interviewed noticed questioned interrupted "
    "encouraged surprised phoned",
    "RESTED": "smiled laughed waited slept rested coughed sneezed sang danced whistled worked "
    "paused wept shouted nodded yawned hesitated complained trembled sighed",
    "STOOD": "stood sat waited rested knelt slept worked lived",
    "NEAR": "near behind beside outside",
    "TOWARD": "to from toward past around",
    "ACTED": "cleaned carried painted repaired moved packed hid washed examined photographed "
    "polished wrapped inspected delivered collected measured lifted dusted sketched decorated "
    "described returned touched sold bought unpacked dropped studied stole grabbed borrowed "
    "displayed removed destroyed",
    "ACT": "clean carry paint repair move pack hide wash examine photograph polish wrap inspect "
    "deliver collect measure lift dust sketch decorate describe return touch sell buy unpack drop "
    "study steal grab borrow display remove destroy",
    "MOVED": "walked traveled drove ran marched hurried cycled strolled wandered rode",
    "MOVE": "walk travel drive run march hurry cycle stroll wander ride",
}
SLOTS = {slot: words.split() for slot, words in SLOT_WORDS.items()}
SLOTS["NAME"] = [*SLOTS["FEMALE"], *SLOTS["MALE"]]

# People and their places, people and their tools, animals and what they eat or live in, things and
# their parts. Wrong candidates come from the same group, in which no first word is related to the
# second word of another pair. The words in a pair share no stem, so spelling reveals nothing.
RELATED = tuple(
    tuple(tuple(pair.split("/")) for pair in group.split())
    for group in (
        "doctor/hospital pilot/airport priest/church sailor/harbor judge/courtroom actor/theater "
        "waiter/restaurant king/palace chemist/laboratory mechanic/garage teacher/school "
        "cashier/supermarket goalkeeper/stadium ranger/forest farmer/barn banker/vault",
        "carpenter/hammer painter/brush barber/razor tailor/needle photographer/camera "
        "fisherman/net astronomer/telescope plumber/wrench archer/arrow poet/pen lumberjack/axe "
        "drummer/stick gardener/shovel knight/armor cook/oven",
        "dog/bone panda/bamboo monkey/banana horse/hay bear/honey squirrel/acorn cat/mouse "
        "spider/web eagle/nest frog/pond camel/desert whale/ocean",
        "ship/anchor guitar/string book/page tree/leaf candle/flame envelope/stamp bottle/cork "
        "house/roof shirt/button bicycle/pedal mountain/summit knife/blade",
    )
)

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

TEMPLATES = {
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
        "SAID the PERSON from the WORK MOVED TOWARD:d CITY:g .",
        "SAID the PERSON waited NEAR:d the PLACE:g with NAME .",
        "SAID the PERSON from the WORK ACTED the THING NEAR:d the AGE PLACE:g .",
        "SAID the PERSON with the THING MOVED TOWARD:d the SIZE AGE PLACE:g .",
        "ASK which HOME:g is NAME from:d ?",
        "ASK which PLACE:g did NAME MOVE TOWARD:d with the PERSON ?",
        "ASK which AGE PLACE:g did the PERSON MOVE TOWARD:d ?",
    ),
    AGREEMENT: (
        # "it" can only be the thing, because the other candidates are people
        "the THING:g belonged to NAME:c until NAME:c sold it:d .",
        "NAME:c put the THING:g NEAR NAME:c because it:d was FAULT .",
        "NAME:c asked NAME:c about the THING:g because it:d was FAULT .",
        "because it:d was FAULT , the THING:g worried NAME:c and NAME:c .",
        "because it:d was FAULT , NAME:c gave the THING:g to NAME:c .",
        "although it:d was FAULT , NAME:c and NAME:c ACTED the THING:g .",
        # PRON is the pronoun as a subject, OBJ as an object, WAS the matching "was" or "were"
        "C1 MET C2 because PRON:d WAS STATE .",
        "C1 told C2 that PRON:d could stay at the PLACE .",
        "after C1 had met C2 at the PLACE , PRON:d went home .",
        "C1 waited for C2 NEAR the PLACE until PRON:d WAS STATE .",
        "C1 talked to C2 about the THING that PRON:d had bought .",
        "while C1 talked to C2 , the PERSON looked at OBJ:d .",
        "because PRON:d WAS STATE , C1 MET C2 .",
        "when PRON:d arrived at the PLACE , C1 MET C2 .",
        "before PRON:d left the PLACE , C1 talked to C2 .",
        "although PRON:d WAS STATE , C1 asked C2 for the THING .",
        "as PRON:d WAS STATE , C1 gave C2 the THING .",
        "C1 saw C2 and C3 at the PLACE , but PRON:d WAS STATE .",
        "C1 asked C2 about C3 because PRON:d WAS STATE .",
        "C1 went to the PLACE with C2 to meet C3 , but PRON:d did not stay .",
        "C1 told C2 a story about C3 after PRON:d had left .",
        "while PRON:d WAS at the PLACE , C1 asked C2 about C3 .",
        "because PRON:d WAS STATE , C1 went to the PLACE with C2 to meet C3 .",
        "when PRON:d called , C1 told C2 a story about C3 .",
    ),
    "related-concepts": (
        "NAME drew the C1 and the C2 before NAME drew the D:d .",
        "first came the C1 , then the C2 , and finally the D:d .",
        "neither the C1 nor the C2 was as famous as the D:d .",
        "in a dream NAME saw the C1 , the C2 and the D:d .",
        "NAME drew the D:d before NAME drew the C1 and the C2 .",
        "the D:d was missing , but NAME found the C1 and the C2 .",
        "the article about the D:d also described the C1 and the C2 .",
        "NAME drew the C1 beside the D:d and the C2 in a notebook .",
        "the story mentioned the C1 , the C2 , the C3 and the D:d .",
        "NAME described the C1 , the C2 and the C3 before the D:d .",
        "after the D:d NAME described the C1 , the C2 and the C3 .",
        "the D:d came first , and then came the C1 , the C2 and the C3 .",
    ),
}

# Sentences with their arcs: relation, dependent, governor and candidates, numbered from 0.
WORKED = {
    "The cat sat down": "determiner-noun 0 1, subject-verb 1 2, verb-modifier 3 2",
    "The animal didn't cross the street because it was too tired .": "determiner-noun 0 1, "
    "subject-verb 1 3, determiner-noun 4 5, verb-object 5 3, coreference 7 1 1 5, "
    "subject-verb 7 8, subject-predicate 7 10",
    "The scientist who reviewed the paper said it was flawed": "determiner-noun 0 1, "
    "subject-verb 1 6, determiner-noun 4 5, verb-object 5 3, coreference 7 5 1 5, "
    "subject-verb 7 8, subject-predicate 7 9",
    "The agent opened a pull request because the test suite was green .": "determiner-noun 0 1, "
    "subject-verb 1 2, determiner-noun 3 5, verb-object 5 2, determiner-noun 7 9, "
    "subject-verb 9 10, subject-predicate 9 11",
    "The agent merged the pull request after review": "determiner-noun 0 1, subject-verb 1 2, "
    "determiner-noun 3 5, verb-object 5 2, preposition-object 6 7",
}
