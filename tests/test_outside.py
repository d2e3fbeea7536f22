"""benchmarks/outside.py and its readers: public formats become questions, claims become checks."""

import importlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from headwise import Arc, HeadTable, ProbeSentence

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

GAP_COLUMNS = "ID Text Pronoun Pronoun-offset A A-offset A-coref B B-offset B-coref URL".split()
SICK_COLUMNS = "pair_ID sentence_A sentence_B relatedness_score entailment_judgment".split()
SIMILAR = [
    ("A dog runs across the field.", "A dog is running over the field.", 4.9),
    ("A man plays the guitar.", "A man plays a piano on stage.", 3.5),
    ("A woman cuts an onion.", "A woman cooks dinner.", 2.5),
    ("Two boys swim in a lake.", "The stock market fell today.", 1.0),
]
NAN = float("nan")


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("outside_data")


@pytest.fixture
def outside(data: Any) -> Any:
    return importlib.import_module("outside")


def conllu(*rows: str, document: str = "") -> str:
    """A sentence from rows of form, part of speech, head, relation and optionally an Entity."""
    lines = []
    if document:
        columns = "GRP-etype-infstat-salience-centering-minspan-link-identity"
        lines = [f"# newdoc id = {document}", f"# global.Entity = {columns}"]
    for number, row in enumerate(rows, 1):
        form, part, head, relation, *entity = row.split()
        misc = f"SpaceAfter=No|Entity={entity[0]}" if entity else "_"
        lines.append(f"{number}\t{form}\t{form}\t{part}\t_\t_\t{head}\t{relation}\t_\t{misc}")
    return "\n".join([*lines, "", ""])


BAKER = conllu(
    "The DET 3 det (1-person-new-nnnnn-cf1-3-coref",
    "old ADJ 3 amod",
    "baker NOUN 4 nsubj 1)",
    "sold VERB 0 root",
    "Maria PROPN 4 iobj (2-person-new-nnnnn-cf2-1-coref-Maria_Example)",
    "bread NOUN 4 obj (3-object-new-nnnnn-cf3-1-sgl)",
    document="GUM_fiction_bread",
)
RAIN = conllu("Rain NOUN 2 nsubj", "fell VERB 0 root")
SHE = conllu(
    "She PRON 2 nsubj (2-person-giv:act-nnnnn-cf1*-1-ana)",
    "thanked VERB 0 root",
    "her PRON 4 nmod:poss (4-person-new-nnnnn-cf2-2-sgl(2-person-giv:act-nnnnn-cf1*-1-ana)",
    "friend NOUN 2 obj 4)",
)


def write(path: Path, *parts: str) -> Path:
    path.write_text("".join(parts), encoding="utf-8")
    return path


def test_a_pronoun_is_asked_about_the_entities_of_its_kind(data: Any, tmp_path: Path) -> None:
    words = tuple("The old baker sold Maria bread Rain fell She thanked her friend".split())
    sentences = data.read_entities(write(tmp_path / "gum.conllu", BAKER, RAIN, SHE))
    assert sentences == [
        ProbeSentence(words, (Arc("coreference", 8, 4, (2, 4)),)),
        ProbeSentence(words, (Arc("coreference", 10, 4, (2, 4)),)),
    ]


def test_the_last_mention_of_an_entity_is_its_candidate(data: Any, tmp_path: Path) -> None:
    again = conllu(
        "The DET 2 det (1-person-giv:act-nnnnn-cf1-2-coref",
        "man NOUN 4 nsubj",
        "there ADV 2 advmod 1)",
        "smiled VERB 0 root",
    )
    he = conllu("He PRON 2 nsubj (1-person-giv:act-nnnnn-cf1-1-ana)", "left VERB 0 root")
    (sentence,) = data.read_entities(write(tmp_path / "gum.conllu", BAKER, again, he))
    assert sentence.arcs == (Arc("coreference", 10, 7, (4, 7)),)
    assert sentence.words[7] == "man", "the word that governs the mention, not its last one"


NEW_DOCUMENT = conllu("Rain NOUN 2 nsubj", "fell VERB 0 root", document="GUM_fiction_rain")
ONE_PERSON = conllu(
    "Maria PROPN 2 nsubj (2-person-new-nnnnn-cf1-1-coref)",
    "bought VERB 0 root",
    "bread NOUN 2 obj (3-object-new-nnnnn-cf2-1-sgl)",
)
UNKNOWN_PERSON = conllu("He PRON 2 nsubj (9-person-new-nnnnn-cf1-1-ana)", "left VERB 0 root")
FIRST_PERSON = conllu("I PRON 2 nsubj (2-person-giv:act-nnnnn-cf1-1-ana)", "left VERB 0 root")
UNMARKED = conllu("She PRON 2 nsubj", "left VERB 0 root")


@pytest.mark.parametrize(
    "sentences",
    [
        (BAKER, RAIN, RAIN, SHE),
        (BAKER, NEW_DOCUMENT, SHE),
        (ONE_PERSON, SHE),
        (BAKER, UNKNOWN_PERSON),
        (BAKER, FIRST_PERSON),
        (BAKER, UNMARKED),
        (),
    ],
    ids=[
        *("three sentences back", "another document", "one candidate", "antecedent unknown"),
        *("first person", "no entity", "empty file"),
    ],
)
def test_a_pronoun_without_two_near_candidates_is_skipped(
    data: Any, tmp_path: Path, sentences: Sequence[str]
) -> None:
    assert data.read_entities(write(tmp_path / "gum.conllu", *sentences)) == []


@pytest.mark.parametrize("numbers", [("", ""), ("1 ", "27 ")], ids=["plain", "numbered"])
def test_brackets_mark_a_pronoun_and_its_noun(
    data: Any, tmp_path: Path, numbers: tuple[str, str]
) -> None:
    lines = (
        "[The tall gardener] thanked the pilot because [she] was tired.\n",
        "The gardener waved to [the pilot], and then called [him].\n",
    )
    file = write(tmp_path / "wino.txt", *(a + b for a, b in zip(numbers, lines, strict=True)))
    first, second = data.read_bracketed(file)
    assert " ".join(first.words) == "The tall gardener thanked the pilot because she was tired ."
    assert first.arcs == (Arc("coreference", 7, 2, (2, 5)),)
    assert " ".join(second.words) == "The gardener waved to the pilot , and then called him ."
    assert second.arcs == (Arc("coreference", 10, 5, (1, 5)),)


@pytest.mark.parametrize(
    "line",
    [
        "[The gardener] thanked the pilot because [she] had lost [her] hat.",
        "[The gardener] thanked the pilot.",
        "The gardener thanked the pilot because she was tired.",
        "[The gardener] thanked [the pilot] in spring.",
        "[The gardener] thanked the stranger because [she] was tired.",
        "[The gardener] sent the pilot to the cook because [she] was tired.",
    ],
    ids=[
        *("three brackets", "one bracket", "no bracket", "no pronoun", "no other noun"),
        "two other nouns",
    ],
)
def test_lines_with_other_brackets_or_candidates_are_skipped(
    data: Any, tmp_path: Path, line: str
) -> None:
    known = [
        "[The gardener] thanked the pilot because [she] was tired.",
        "The gardener thanked [the pilot] because [he] was kind.",
        "[The cook] thanked the pilot because [he] was tired.",
    ]
    plain = data.read_bracketed(write(tmp_path / "wino.txt", "\n".join(known)))
    assert len(plain) == 3
    assert data.read_bracketed(write(tmp_path / "wino.txt", "\n".join([*known, line]))) == plain


@pytest.mark.parametrize(
    ("line", "arc"),
    [
        (
            "[The pilot] called the cook because [she] heard that she could fly.",
            Arc("coreference", 6, 1, (1, 4)),
        ),
        ("The cook met [the cook] and thanked [her].", Arc("coreference", 7, 4, (1, 4))),
    ],
    ids=["pronoun twice", "noun twice"],
)
def test_the_marked_word_counts_if_a_line_has_it_twice(
    data: Any, tmp_path: Path, line: str, arc: Arc
) -> None:
    other = "[The cook] called the pilot because [he] was late."
    sentences = data.read_bracketed(write(tmp_path / "wino.txt", f"{line}\n{other}\n"))
    assert sentences[0].arcs == (arc,)


def tsv(*rows: Sequence[object]) -> str:
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


def gap(text: str, pronoun: str, a: tuple[str, str], b: tuple[str, str]) -> list[object]:
    """A row of GAP: each name comes with TRUE or FALSE."""
    names = [(name, text.index(name), is_gold) for name, is_gold in (a, b)]
    return ["test-1", text, pronoun, text.index(f" {pronoun}") + 1, *names[0], *names[1], "url"]


LETTER = "Anna Lee's letter reached Ms. Eva Brown after she had moved."


@pytest.mark.parametrize(("a", "b", "gold"), [("TRUE", "FALSE", 1), ("FALSE", "TRUE", 7)])
def test_names_of_several_words_end_in_the_candidate(
    data: Any, tmp_path: Path, a: str, b: str, gold: int
) -> None:
    row = gap(LETTER, "she", ("Anna Lee", a), ("Eva Brown", b))
    (sentence,) = data.read_gap(write(tmp_path / "gap.tsv", tsv(GAP_COLUMNS, row)))
    words = "Anna Lee's letter reached Ms . Eva Brown after she had moved ."
    assert " ".join(sentence.words) == words
    assert sentence.arcs == (Arc("coreference", 9, gold, (1, 7)),)
    assert sentence.text == LETTER


def test_candidates_are_in_reading_order_even_if_the_names_are_not(
    data: Any, tmp_path: Path
) -> None:
    row = gap(LETTER, "she", ("Eva Brown", "TRUE"), ("Anna Lee", "FALSE"))
    (sentence,) = data.read_gap(write(tmp_path / "gap.tsv", tsv(GAP_COLUMNS, row)))
    assert sentence.arcs == (Arc("coreference", 9, 7, (1, 7)),)


def test_passages_without_one_right_name_are_skipped(data: Any, tmp_path: Path) -> None:
    anna, eva = ("Anna Lee", "TRUE"), ("Eva Brown", "FALSE")
    both = gap(LETTER, "she", anna, ("Eva Brown", "TRUE"))
    neither = gap(LETTER, "she", ("Anna Lee", "FALSE"), eva)
    one_word = gap(LETTER, "she", anna, ("Anna Lee", "FALSE"))
    in_a_space = gap(LETTER, "she", anna, eva)
    in_a_space[3] = LETTER.index(" she")
    good = gap(LETTER, "she", anna, eva)
    rows = (GAP_COLUMNS, both, neither, one_word, in_a_space, good)
    (sentence,) = data.read_gap(write(tmp_path / "gap.tsv", tsv(*rows)))
    assert sentence.arcs == (Arc("coreference", 9, 1, (1, 7)),)


def test_a_table_with_gaps_header_and_nothing_else_gives_nothing(data: Any, tmp_path: Path) -> None:
    assert data.read_gap(write(tmp_path / "gap.tsv", tsv(GAP_COLUMNS))) == []
    assert data.read_gap(write(tmp_path / "gap.tsv")) == []


def test_a_table_with_other_columns_gives_no_passage(data: Any, tmp_path: Path) -> None:
    assert data.read_gap(write(tmp_path / "sts.tsv", tsv((4.5, "A dog.", "A cat.")) * 2)) == []


def sick(*pairs: tuple[str, str, float]) -> str:
    rows = [(n, *pair, "NEUTRAL") for n, pair in enumerate(pairs, 1)]
    return tsv(SICK_COLUMNS, *rows)


def test_pairs_and_prose_give_no_bracketed_sentences(data: Any, tmp_path: Path) -> None:
    text = sick(*SIMILAR) + "A note [1] with a second [2] footnote.\n"
    assert data.read_bracketed(write(tmp_path / "other.txt", text)) == []


def head_table(*claims: tuple[int, int, str, str, float]) -> HeadTable:
    """Heads with a layer, a number, a relation, a reading and a score; a score of 0 has no role."""
    layers, heads, relations, readings, scores = zip(*claims, strict=True)
    role = "coreference" if "coreference" in relations else "syntactic"
    df = pd.DataFrame({"stack": "", "layer": layers, "head": heads})
    df["roles"] = [[role] if score else [] for score in scores]
    columns = {"relation": relations, "reading": readings, "score": scores}
    df = df.assign(**{f"{role}_{name}": values for name, values in columns.items()})
    df[f"{role}_detail"] = [f"{relation} (a -> b)" for relation in relations]
    return HeadTable(df, {})


def relation_table(*rows: tuple[str, str, str, float, float]) -> pd.DataFrame:
    columns = ["relation", "reading", "name", "accuracy", "baseline_accuracy"]
    return pd.DataFrame(rows, columns=columns)


RELATIONS = relation_table(
    ("obj", "dependent", "L0H1", 0.625, 0.5),
    ("obj", "governor", "L0H1", 0.125, 0.75),
    ("det", "dependent", "L0H1", 1.0, 0.25),
    ("obj", "dependent", "L2H3", 0.5, 0.5),
    ("obj", "governor", "L2H3", 0.875, 0.75),
    ("det", "column", "L1H2", 0.375, 0.25),
    ("obj", "dependent", "L1H0", 1.0, 0.5),
)


def test_each_head_is_checked_in_its_own_relation_and_reading(outside: Any) -> None:
    table = head_table(
        (0, 1, "obj", "dependent", 0.7),
        (1, 0, "obj", "dependent", 0),
        (1, 2, "det", "column", 0.9),
        (1, 3, "nsubj", "dependent", 0.95),
        (2, 3, "obj", "dependent", 0.8),
    )
    assert list(outside.role_checks(table, "syntactic", "some.conllu", RELATIONS)) == [
        outside.Check("L1H2 det (a -> b)", "some.conllu", 0.9, 0.375, 0.25, True),
        outside.Check("L2H3 obj (a -> b)", "some.conllu", 0.8, 0.5, 0.5, False),
        outside.Check("L0H1 obj (a -> b)", "some.conllu", 0.7, 0.625, 0.5, True),
    ]


def test_heads_without_the_role_make_no_claims(outside: Any) -> None:
    table = head_table((1, 0, "obj", "dependent", 0))
    assert list(outside.role_checks(table, "syntactic", "some.conllu", RELATIONS)) == []
    assert list(outside.role_checks(table, "coreference", "some.conllu", RELATIONS)) == []


def test_the_best_head_is_shown_without_a_claim(outside: Any) -> None:
    relations = relation_table(
        ("coreference", "dependent", "L1H0", 0.5, 0.625),
        ("coreference", "column", "L3H1", 0.75, 0.625),
        ("coreference", "dependent", "L2H7", 0.25, 0.625),
    )
    best = outside.best_coreference("gap.tsv", relations)
    assert (best.claim, best.data) == ("(best head here: L3H1, column)", "gap.tsv")
    assert (best.outside, best.baseline, best.holds) == (0.75, 0.625, None)
    assert math.isnan(best.own)


@pytest.fixture
def checks(outside: Any) -> list[Any]:
    return [
        outside.Check("L1H2 det (a -> b)", "gum.conllu", 0.9, 0.375, 0.25, True),
        outside.Check("L0H1 obj (a -> b)", "gum.conllu", 0.7, 0.5, 0.5, False),
        outside.Check("L3H1 coreference (a -> b)", "gum.conllu", 0.6, 0.75, 0.5, True),
        outside.Check("(best head here: L3H1, column)", "gum.conllu", NAN, 0.75, 0.5, None),
        outside.Check("similarity of 4 pairs", "SICK.txt", NAN, 0.8125, NAN, None),
        outside.Check("L3H1 coreference (a -> b)", "wino.txt", 0.6, 0.25, 0.5, False),
    ]


def test_the_table_has_a_row_per_check_and_blanks_for_missing_figures(
    outside: Any, checks: list[Any]
) -> None:
    table = outside.as_table(checks)
    assert table.columns == ("data", "claim", "on our text", "on that text", "baseline", "holds")
    assert table.numeric == ("on our text", "on that text", "baseline")
    assert len(table.rows) == len(checks)
    assert table.rows[0] == ("gum.conllu", "L1H2 det (a -> b)", "0.900", "0.375", "0.250", "yes")
    assert table.rows[1][-1] == "no"
    assert table.rows[4] == ("SICK.txt", "similarity of 4 pairs", "", "0.812", "", "")
    assert outside.as_table([]).rows == []


def test_the_summary_counts_claims_by_file_and_kind(outside: Any, checks: list[Any]) -> None:
    assert outside.summary(checks) == [
        "gum.conllu: 1 of 2 syntactic heads beat the best baseline",
        "gum.conllu: 1 of 1 coreference heads beat the best baseline",
        "wino.txt: 0 of 1 coreference heads beat the best baseline",
    ]
    assert outside.summary(checks[4:5]) == []


def test_a_folder_of_public_data_becomes_checks(outside: Any, tmp_path: Path) -> None:
    write(tmp_path / "gum.conllu", BAKER, RAIN, SHE)
    write(tmp_path / "SICK.txt", sick(*SIMILAR))
    write(tmp_path / "notes.txt", "Nothing to read here.\n")
    write(tmp_path / "readme.md", "[The cook] called the pilot because [he] was late.\n")
    (tmp_path / "more").mkdir()
    table = head_table((2, 0, "obj", "dependent", 0.7684), (1, 6, "xcomp", "dependent", 0.6529))
    similar, claim, best = outside.check_folder("minilm", tmp_path, table)
    assert (similar.claim, similar.data) == ("similarity of 4 pairs", "SICK.txt")
    assert similar.outside == pytest.approx(1), "the pairs are in the order in which people rank"
    assert (claim.claim, claim.data, claim.own) == ("L2H0 obj (a -> b)", "gum.conllu", 0.7684)
    assert claim.outside in (0, 0.5, 1), "the file has two objects"
    assert claim.holds == (claim.outside > claim.baseline)
    assert best.claim.startswith("(best head here: L") and best.data == "gum.conllu"
    assert best.outside == 1, "of 72 heads, one answers both questions"
    assert len(outside.as_table([similar, claim, best]).rows) == 3


def assert_rejected(capsys: pytest.CaptureFixture[str], outside: Any, *arguments: str) -> str:
    """The message of a command that exits with status 2."""
    with pytest.raises(SystemExit) as error:
        outside.main(arguments)
    assert error.value.code == 2
    return capsys.readouterr().err


def test_mistakes_on_the_command_line_get_one_sentence(
    outside: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, fact in [
        (["--data", "missing"], "missing is not a folder"),
        (["--data", ".", "--json", "missing/out.json"], "missing is not a folder"),
        (["--data", ".", "--cut", "25"], "25 is not a share"),
        (["nothing", "--data", ".", "--cut", "25%"], "nothing"),
        (["minilm", "--data", ".", "--cut", "25%"], "pairs"),
    ]:
        message = assert_rejected(capsys, outside, *arguments)
        assert fact in message.splitlines()[-1]
