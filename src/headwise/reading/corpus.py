"""The corpus: a few pages of plain prose to measure heads on if the user gives no text.

Written for headwise. Names, numbers, quotations and phrases recur within a document, so that heads
which look for repetition find some.
"""

TEXTS = (
    "The ferry to Marlow Island leaves at six in the morning and comes back at six in the evening. "
    "Nobody on the island can remember a day on which it did not. In the winter of the long storm, "
    'old Captain Reyes tied the ferry to the pier, looked at the waves and said, "We leave at six."'
    " At six they left. The waves were higher than the church, and the three passengers sat on the "
    "floor and held each other by the sleeves. When they reached the mainland, the youngest of "
    "them asked the captain whether he had been afraid. He thought about it for a while. "
    '"At six in the evening," he said, "we go back."',
    "To bake the bread you need flour, water, salt and time; most people forget the time. Mix the "
    "flour and the water first, and let them rest for half an hour. Then add the salt. Fold the "
    "dough four times, once every half hour: take one side, pull it up, lay it over the other "
    "side, and turn the bowl. After the fourth fold the dough should be smooth, and it should "
    "move when you shake the bowl. Shape it, cover it, and put it in a cold place until the next "
    "morning. Bake it in a very hot oven for forty minutes. If the crust is pale, bake it for five "
    "more. Do not cut the bread while it is hot, however good the kitchen smells.",
    "The committee met on Tuesday to discuss the bridge. Mr. Okafor, who had built two bridges "
    "before, explained that the old one would stand for another ten years if the north pillar was "
    "repaired. Mrs. Lindqvist asked what the repair would cost. Mr. Okafor said that it would cost "
    "about a tenth of a new bridge. Mrs. Lindqvist asked what a new bridge would cost. Nobody knew."
    " The committee then decided, by five votes to two, to ask an engineer how much a new bridge "
    "would cost, and to meet again on the following Tuesday. Mr. Okafor pointed out that he was an "
    "engineer. The committee thanked him for the information.",
    "A compiler reads a program and writes another program that does the same thing. It begins by "
    "cutting the text into words: names, numbers, brackets and operators. From the words it builds "
    "a tree, in which every branch is a smaller part of the program. It checks that the tree makes "
    "sense; a number cannot be called as if it were a function, and a name must be known before it "
    "is used. Then it walks over the tree and writes instructions for the machine. A good compiler "
    "writes fewer instructions than a careless one, but both programs give the same answer. If "
    "they do not, the compiler is wrong, and somebody will have a very long week.",
    "When the river floods, the herons come into the village. They stand in the gardens on one "
    "leg, gray and patient, and look at the lawns as if the lawns were ponds. Last spring a heron "
    "stood in front of the school for three days. The children gave it a name, Professor, and drew "
    "it from the windows: Professor asleep, Professor with a frog, Professor in the rain. On the "
    "fourth day the water went down and the heron was gone. The children went on drawing it for "
    "weeks. In their pictures it grew larger every day, until it was taller than the school and "
    "the school had to look up at it.",
    "Light takes about eight minutes to travel from the sun to the earth, and a little more than "
    "one second to travel from the moon to the earth. If the sun went out, we would see it shine "
    "for eight more minutes. If the moon went out, we would know within two seconds. The nearest "
    "star after the sun is so far away that its light takes more than four years to arrive; when "
    "you look at that star, you see it as it was four years ago. The light of some galaxies has "
    "been on its way since before there was anyone on the earth to look up. A telescope is "
    "therefore a machine for looking into the past, and a large telescope looks further back.",
    '"Where did you put the key?" asked Nadia. "I did not put it anywhere," said Tomas. "You had '
    'it." Nadia looked in her coat, in her bag and under the mat. The key was in none of these '
    'places. "Then you must have had it," she said. Tomas looked in his coat, in his bag and under '
    "the same mat. A light went on next door, and their neighbor Irene came out in her slippers. "
    '"You gave it to me," she said, "on Saturday, so that you would not lose it." She held up the '
    'key. "And where," asked Nadia, when they were inside, "did we put the key to Irene\'s house?" '
    "Tomas looked in his coat.",
    "In 1912 the town had one telephone, and it stood in the post office. In 1922 it had forty; in "
    "1932, four hundred. The switchboard was run by two sisters, Agnes and Clara Holm, who knew "
    "every voice in the town. You did not ask them for a number. You asked for the doctor, and "
    "Agnes told you that the doctor was at the Petersens', because the baby had come, and "
    "connected you to the Petersens. When the automatic exchange was built in 1951, the sisters "
    "were given a clock and a small pension. For a year people lifted the receiver, asked for the "
    "doctor, and heard only a tone.",
)
