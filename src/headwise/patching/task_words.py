"""Words and templates for the built-in prompt tasks; `tasks.py` fills the templates.

Words are common ones, which most tokenizers keep whole inside a sentence. No template begins with a
slot, because many tokenizers split words at the very start of a text. Upper case in braces is a
slot. Two forms of a word are separated by a slash: singular/plural, or country/capital.
"""

WOMEN = (
    "Mary Anna Sarah Emma Lucy Laura Kate Alice Susan Maria Helen Julia Grace Jane Rachel Lisa "
    "Emily Linda Karen Nancy"
)
MEN = (
    "John Tom Paul David James Peter Mark Henry Jack Adam Daniel Robert Martin Simon Michael "
    "George Frank Kevin Brian Eric"
)

INDIRECT_OBJECT = (
    "When {FIRST} and {SECOND} went to the shop, {GIVER} gave the bag to",
    "After {FIRST} and {SECOND} came back from the lake, {GIVER} handed the basket to",
    "While {FIRST} and {SECOND} were waiting at the station, {GIVER} passed a sandwich to",
    "Because {FIRST} and {SECOND} had worked all night, {GIVER} made a cup of tea for",
    "On Sunday {FIRST} and {SECOND} met in the garden, and {GIVER} showed the letter to",
    "Then {FIRST} and {SECOND} sat down in the kitchen, and {GIVER} offered some bread to",
)
"""GIVER is one of the two people; the answer is the other."""

YEARS = (
    "The war lasted from the year {CENTURY}{START}{DIGIT} to the year {CENTURY}",
    "The king ruled the country from {CENTURY}{START}{DIGIT} to {CENTURY}",
    "The bridge was built between {CENTURY}{START}{DIGIT} and {CENTURY}",
    "The painter lived in the town from {CENTURY}{START}{DIGIT} until {CENTURY}",
)
RANGES = (
    "Before the exam, please read chapters {START}-",
    "The notes for this lesson are on pages {START}-",
    "The new offices are on floors {START}-",
    "The answers can be found in lines {START}-",
)
"""Each ends just before a digit that is greater than START."""

THINGS = (
    "key/keys book/books letter/letters picture/pictures door/doors boat/boats plate/plates "
    "table/tables ticket/tickets box/boxes flower/flowers window/windows bag/bags photo/photos "
    "chair/chairs painting/paintings"
)
PLACES = (
    "cabinet/cabinets house/houses garden/gardens wall/walls tree/trees car/cars river/rivers "
    "road/roads tower/towers bridge/bridges"
)
PEOPLE = (
    "teacher/teachers student/students farmer/farmers doctor/doctors driver/drivers writer/writers "
    "player/players worker/workers lawyer/lawyers artist/artists"
)
TOWNS = "school/schools village/villages hotel/hotels church/churches farm/farms shop/shops"
AGREEMENT = (
    ("At the moment the {THING} near the old {PLACE}", "is/are", "very beautiful."),
    ("In the end the {THING} beside the {PLACE}", "was/were", "sold."),
    ("As we all know, the {PERSON} from the {TOWN}", "is/are", "tired."),
    ("Last year the {PERSON} near the {TOWN}", "was/were", "very happy."),
)
"""The start of a sentence, its verb, and the end that follows the verb."""

PRONOUN = (
    ("Yesterday {NAME} lost the key because", "was tired."),
    ("Last week {NAME} stayed at home because", "was ill."),
    ("We all know that {NAME} left the party when", "felt ill."),
    ("My friend {NAME} bought a new coat because", "was cold."),
)
"""The start of a sentence with a name, and the end that follows the pronoun."""

OBJECTS = (
    "lamp river cloud stone wheel apple chair bridge paper horse garden bottle window snow train "
    "shirt forest mirror bread island candle ship door orange knife rain tower flower mouse glass "
    "road table coat moon sand boat fire tree desk key"
)

CAPITALS = (
    "France/Paris Italy/Rome Germany/Berlin Spain/Madrid England/London Japan/Tokyo Russia/Moscow "
    "China/Beijing Greece/Athens Egypt/Cairo Ireland/Dublin Austria/Vienna Portugal/Lisbon "
    "Sweden/Stockholm Canada/Ottawa Cuba/Havana Iran/Tehran Iraq/Baghdad Poland/Warsaw Norway/Oslo"
)
COUNTRY_TEMPLATES = (
    "The capital of {COUNTRY} is",
    "The capital city of {COUNTRY} is called",
    "The government of {COUNTRY} sits in its capital city,",
    "They flew to the capital of {COUNTRY}, the city of",
)
