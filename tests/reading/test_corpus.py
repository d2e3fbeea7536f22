"""The built-in texts are the files of the corpus, each as one line."""

from pathlib import Path

from headwise.reading import corpus
from headwise.scans.fingerprint import digest_texts


def test_every_file_is_a_text() -> None:
    files = Path(corpus.__file__).parent.glob("*.txt")
    assert {file.stem for file in files} == set(corpus.NAMES)
    assert len(corpus.TEXTS) == len(set(corpus.TEXTS)) == len(corpus.NAMES) == 8


def test_texts_stay_the_same() -> None:
    """Published head tables and reports were measured on these texts."""
    assert digest_texts(corpus.TEXTS).startswith("722bc0ba245199cc")
