"""Lessons: what answers is marked where it stands, and what does not holds no answer; questions in the words of a small WordNet."""

import gzip
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from training.commands.derive import main
from training.data.collection import Collection
from training.data.directory import write_directory
from training.data.types import Document, Span
from training.derive.answers import (
    Replacement,
    answering_sentence,
    exchanged,
    in_other_words,
    near_by_words,
    negated,
)
from training.derive.collection import derive
from training.derive.echoes import ECHOES
from training.derive.queries import FORMS, keywords, typing_error
from training.derive.wordnet import WordNet, regular, rewrite

ANIMALS = "otter badger heron salmon beaver falcon lynx marten toad viper stork weasel".split()
PLACES = "river forest meadow harbour valley orchard".split()


def article(animal: str, days: int) -> str:
    return "\n\n".join(
        [
            f"Nothing much is known about how people in the old {place} saw the {animal}, but the {place} is quiet and wide in May."
            for place in PLACES[:3]
        ]
        + [f"The {animal} raises its young for {days} days. After that they leave the nest. They come back only rarely."]
        + [
            f"Whoever walks through the {place} at night should carry a lamp, since the path along the {place} is steep."
            for place in PLACES
        ]
    )


def write_articles(folder: Path) -> Path:
    """Twelve articles about animals, half of them for train, half for dev, with the paragraph that answers as the gold passage."""
    documents = [Document(animal, animal.capitalize(), article(animal, 20 + number)) for number, animal in enumerate(ANIMALS)]
    queries = {f"q{number}": f"How many days does the {animal} raise its young?" for number, animal in enumerate(ANIMALS)}
    spans = {}
    for number, document in enumerate(documents):
        start = document.text.index(f"The {document.doc_id} raises")
        spans[f"q{number}"] = [Span(document.doc_id, start, document.text.index("\n\n", start))]
    splits = {"train": list(queries)[:6], "dev": list(queries)[6:]}
    write_directory(folder / "animals", documents, queries, spans, splits)
    return folder / "animals"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    path = tmp_path_factory.mktemp("made")
    counts = derive(Collection(write_articles(path)), {"train": 60, "dev": 12}, path / "lessons", near_by_words)
    lessons = Collection(path / "lessons")
    assert counts == {"train": len(lessons.split("train")), "dev": len(lessons.split("dev"))}
    assert counts["train"] >= 20
    return lessons


def test_what_answers_is_marked_and_what_does_not_holds_no_answer(made: Collection) -> None:
    for query in made.split("train"):
        candidates = made.run("train")[query]
        answers = [name for name, grade in made.qrels[query].items() if grade > 0]
        assert set(answers) < set(candidates)
        assert {span.doc_id for span in made.spans[query]} == set(answers)
        golds = {made.document(s.doc_id).text[s.start : s.end] for s in made.spans[query]}
        assert all(gold == gold.strip() and len(gold) > 20 for gold in golds)
        for other in set(candidates) - set(answers):
            assert not any(gold in made.document(other).text for gold in golds)


@pytest.mark.parametrize("seed", [1, 3, 4, 5])
def test_no_filler_holds_the_answer(tmp_path: Path, seed: int) -> None:
    """A text that does not answer has no whole sentence of the gold passage, with which some fillers of these seeds were drawn."""
    derive(Collection(write_articles(tmp_path)), {"train": 40}, tmp_path / "lessons", near_by_words, seed=seed)
    made = Collection(tmp_path / "lessons")
    for query in made.split("train"):
        others = " ".join(made.document(name).text for name in made.run("train")[query] if name not in made.qrels[query])
        golds = {made.document(s.doc_id).text[s.start : s.end] for s in made.spans[query]}
        assert not [gold for gold in golds if "raises its young for" in gold and gold in others]


def test_the_sentence_of_a_passage_that_answers_is_marked(made: Collection) -> None:
    golds = [made.document(s.doc_id).text[s.start : s.end] for spans in made.spans.values() for s in spans]
    assert sum("raises its young for" in gold for gold in golds) > len(golds) / 2
    assert not [gold for gold in golds if "raises its young for" in gold and "They come back only rarely." in gold]


def test_no_text_of_dev_is_in_train(made: Collection) -> None:
    trained = " ".join(d.text for name, d in made.documents.items() if name.startswith("train-")).lower()
    assert all(f"the {animal}" in trained for animal in ANIMALS[:6])
    assert not [animal for animal in ANIMALS[6:] if animal in trained]


def test_the_same_seed_makes_the_same_lessons(tmp_path: Path) -> None:
    collection = Collection(write_articles(tmp_path))

    def corpus(name: str, seed: int) -> bytes:
        derive(collection, {"train": 20}, tmp_path / name, near_by_words, seed=seed)
        return gzip.decompress((tmp_path / name / "corpus.jsonl.gz").read_bytes())

    assert corpus("one", 1) == corpus("two", 1) != corpus("three", 2)


def test_the_command_says_what_it_made_and_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    collection = write_articles(tmp_path)
    arguments = ["--collection", str(collection), "--out", str(tmp_path / "out"), "--train", "5", "--dev", "3", "--near", "words"]
    assert main(arguments) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out'}: 5 lessons of train, 3 lessons of dev\n"
    assert main(arguments) == 2
    assert "exists already" in capsys.readouterr().err
    (collection / "spans.jsonl.gz").unlink()
    assert main([*arguments[:3], str(tmp_path / "other"), *arguments[4:]]) == 2
    assert "no query of split train has a gold passage" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("kind", ECHOES)
def test_every_echo_repeats_the_question(kind: str) -> None:
    query = "How long is the notice period for the flat?"
    others = ["Who pays for repairs?", "House rules", "When is the rent due?"]
    for seed in range(20):
        text = ECHOES[kind](query, others, np.random.default_rng(seed)).lower()
        assert all(word in text for word in keywords(query).split())


def test_forms_of_a_query_keep_its_words() -> None:
    query = "How do I descale the machine with vinegar?"
    made = {name: [form(query, np.random.default_rng(seed)) for seed in range(20)] for name, (_, form) in FORMS.items()}
    assert set(made["keywords"]) == {"descale machine vinegar"}
    assert set(made["lower case"]) == {"how do i descale the machine with vinegar"}
    assert set(made["no mark"]) == {"How do I descale the machine with vinegar"}
    assert all("descale the machine with vinegar" in text and len(text.split()) > 20 for text in made["wordy"])
    assert all(text != query and len(text.split()) == len(query.split()) for text in made["typing errors"])


def test_a_typing_error_changes_at_most_one_letter() -> None:
    for seed in range(100):
        assert len(set("machine") ^ set(typing_error("machine", np.random.default_rng(seed)))) <= 2
        assert abs(len(typing_error("machine", np.random.default_rng(seed))) - len("machine")) <= 1


def test_the_sentence_that_answers_is_found() -> None:
    passage = "Rents rise each year. The notice period for the flat is three months. Pets are allowed."
    assert (
        answering_sentence("How long is the notice period?", passage, near_by_words)
        == "The notice period for the flat is three months."
    )
    assert answering_sentence("Who was Newton?", passage, near_by_words) == passage, "no sentence stands out"


def test_an_exchanged_answer_is_about_something_else() -> None:
    others = Replacement(["Paris"], ["garage"])
    changed = {exchanged("hotel limit in London", "In London it is 230.", others, np.random.default_rng(n)) for n in range(30)}
    assert "In Paris it is 230." in changed
    assert "In London it is 230." not in changed
    assert exchanged("hotel limit", "In London it is 230.", others, np.random.default_rng(0)) is None


def test_a_denied_answer_says_the_opposite() -> None:
    assert negated("Alcohol is paid back by us.") == "Alcohol is not paid back by us."
    assert negated("Alcohol is not paid back by us.") == "Alcohol is paid back by us."
    assert negated("We pay nothing.") is None


def test_an_answer_in_other_words_keeps_names_and_numbers() -> None:
    query, text = "When does the heating in Building 7 start?", "The heating of Building 7 starts in October."
    for seed in range(20):
        other = in_other_words(query, text, None, np.random.default_rng(seed))
        assert "Building 7" in other
        assert "October" in other
    assert "heating" not in in_other_words(query, text, None, np.random.default_rng(1))


WRITTEN = {
    "title": "House rules",
    "query": "Until what time can I play the piano?",
    "keywords": "piano evening",
    "request": "My daughter practises after her homework. I would like to know until when she may play.",
    "answer": "Instruments have to fall silent at half past nine.",
    "plain": "Until 9:30 p.m.",
    "echoes": ["Until what time can I play the piano? Every tenant asks that sooner or later.", "Minutes: the piano. Put off."],
    "near": ["Washing machines may run until ten.", "The piano was tuned in March."],
    "context": ["The front door is locked at ten.", "Bicycles belong in the cellar."],
}


def test_written_lessons_have_three_forms_and_mark_what_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A question of two parts has both answers marked; a lesson stays in its split when others come."""

    def derived(name: str, rows: Sequence[dict[str, Any]]) -> Collection:
        (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        assert main(["--written", str(tmp_path / "rows.jsonl"), "--out", str(tmp_path / name)]) == 0
        return Collection(tmp_path / name)

    def row(animal: str, hour: int) -> dict[str, Any]:
        own = {"query": f"When does the {animal} {hour} sleep?", "keywords": f"{animal} {hour}"}
        return WRITTEN | own | {"answer": f"{animal.capitalize()}s rest at {hour} sharp.", "plain": f"At {hour}."}

    rows = {one["keywords"]: one for n, animal in enumerate(ANIMALS * 3) for one in [row(animal, 30 + n)]}
    rows["otter 30"] |= {"answer2": "The cellar is open at noon."}
    made = derived("written", list(rows.values()))
    alone = set[str]()
    for split in ("train", "dev"):
        names = made.split(split)
        for place in range(0, len(names), 3):
            of = rows.pop(made.query(names[place + 1]))
            answers = {of["answer"], of.get("answer2", of["plain"])}
            own, alien = [*WRITTEN["echoes"], *WRITTEN["near"], *answers], False
            for query in names[place : place + 3]:
                assert {made.document(s.doc_id).text[s.start : s.end] for s in made.spans[query]} == answers
                others = [made.document(name).text for name in made.run(split)[query] if name not in made.qrels[query]]
                assert len(others) >= 8
                assert not any(answer in text for answer in answers for text in others)
                assert any(echo in text for echo in WRITTEN["echoes"] for text in others)
                assert all(text.strip() for text in others)
                alone |= {text for text in others if re.fullmatch(r"\w+s rest at \d+ sharp\.", text)}
                beside = [made.document(s.doc_id).text[: s.start] for s in made.spans[query]]
                alien |= any("s rest at" in text and not any(part in text for part in own) for text in beside)
            assert alien, "an answer stands among sentences of other lessons alone"
    assert not rows, "each is in a split"
    assert alone, "a sentence of another lesson does not answer"
    more = derived("more", [row("newt", 9), *(row(animal, 30 + n) for n, animal in enumerate(ANIMALS * 3))])
    assert {made.query(q) for q in made.split("dev")[1::3]} <= {more.query(q) for q in more.split("dev")[1::3]}
    for wrong, problem in ((WRITTEN | {"near": []}, "line 1: near"), (WRITTEN, "too few")):
        (tmp_path / "rows.jsonl").write_text(json.dumps(wrong), encoding="utf-8")
        assert main(["--written", str(tmp_path / "rows.jsonl"), "--out", str(tmp_path / "other")]) == 2
        assert problem in capsys.readouterr().err


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
        ("a city", "a large and densely populated urban area"),  # the definition's own article is left out
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


@pytest.mark.parametrize(("word", "ending", "form"), [("box", "s", "boxes"), ("play", "s", "plays"), ("like", "ed", "liked")])
def test_regular_forms(word: str, ending: str, form: str) -> None:
    assert regular(word, ending) == form
