"""Questions in WordNet's words, by a WordNet of five synsets in its own file format."""

import numpy as np
import pytest

from training.derive.wordnet import WordNet, regular, rewrite

INDEX = {
    "noun": ["car n 1 1 @ 1 1 00000100", "city n 1 1 @ 1 1 00000200", "saw n 1 0 1 0 00000300"],
    "verb": ["buy v 1 1 @ 1 1 00000400", "purchase v 1 1 @ 1 1 00000400", "see v 1 0 1 1 00000500", "die v 1 0 1 1 00000600"],
    "adj": ["tall a 1 0 1 0 00000700"],
    "adv": [],
}
DATA = {
    "noun": [
        '00000100 06 n 03 car 0 auto 0 Auto 0 000 | a motor vehicle; "he needs a car"',
        "00000200 15 n 01 city 0 000 | a large and densely populated urban area",
        "00000300 06 n 01 saw 0 000 | hand tool having a toothed blade for cutting, which has a definition of more words than fit",
    ],
    "verb": [
        "00000400 40 v 02 buy 0 purchase 0 000 | obtain by purchase",
        "00000500 39 v 02 see 0 discern 0 000 | perceive by sight",
        "00000600 30 v 01 pass_away 0 000 | lose all bodily attributes",
    ],
    "adj": ["00000700 00 a 01 tall 0 000 | (used of people) great in stature"],
    "adv": [],
}
EXCEPTIONS = {"noun": [], "verb": ["bought buy", "saw see", "seen see"], "adj": [], "adv": []}
COUNTS = ["see%2:39:00:: 1 50", "saw%1:06:00:: 1 2"]


@pytest.fixture(scope="module", params=["\n", "\r\n"], ids=["LF", "CRLF"])
def wordnet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> WordNet:
    directory = tmp_path_factory.mktemp("wordnet")
    files = {
        **{f"index.{part}": lines for part, lines in INDEX.items()},
        **{f"data.{part}": ["  1 the licence begins with a space", *lines] for part, lines in DATA.items()},
        **{f"{part}.exc": lines for part, lines in EXCEPTIONS.items()},
        "cntlist.rev": COUNTS,
    }
    for name, lines in files.items():
        (directory / name).write_bytes("".join(line + request.param for line in lines).encode())
    return WordNet(directory)


@pytest.mark.parametrize(
    ("question", "other"),
    [
        ("Who bought the cars?", "Who purchased the autos?"),
        ("Is buying cars fun?", "Is purchasing autos fun?"),
        ("She buys a car", "She purchases a auto"),
        ("Who saw him?", "Who discerned him?"),  # the verb: it is met more often than the tool
        ("Who died?", "Who passed away?"),
        ("How tall is it?", "How great in stature is it?"),
        ("See 2020 cars", "Discern 2020 autos"),
        ("Car was a singer", "Car was a singer"),  # a name, most likely
        ("car of 2020", "auto of 2020"),
        ("Which Car in City 7?", "Which Car in City 7?"),  # names stay
        ("the and of zebra", "the and of zebra"),
        ("", ""),
    ],
)
def test_words_give_way_to_synonyms_and_short_definitions(wordnet: WordNet, question: str, other: str) -> None:
    assert rewrite(question, wordnet, np.random.default_rng(0)) == other


def test_a_definition_loses_its_article(wordnet: WordNet) -> None:
    assert rewrite("a city", wordnet, np.random.default_rng(0)) == "a large and densely populated urban area"


@pytest.mark.parametrize(("word", "ending", "form"), [("box", "s", "boxes"), ("play", "s", "plays"), ("like", "ed", "liked")])
def test_regular_forms(word: str, ending: str, form: str) -> None:
    assert regular(word, ending) == form
