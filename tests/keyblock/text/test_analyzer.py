"""From text to terms and their keys: English, languages with stemmers, and any other."""

import unicodedata
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b

import pytest
import Stemmer
from hypothesis import given
from hypothesis import strategies as st

from keyblock.text.analyzer import STOP_WORDS, Analyzer, AnalyzerConfig, term_key
from keyblock.text.languages import LANGUAGES, stop_words
from keyblock.text.universal import STRETCH, caseless, folded, pieces

ENGLISH, PLAIN = AnalyzerConfig(), AnalyzerConfig(stem=False, stop_words=False)
GERMAN, UNIVERSAL = AnalyzerConfig(language="de"), AnalyzerConfig(name="universal")
RIVERS = "The Rivers, are running: (on) bridges!"
KATZE = "Die Katze und der Hund"
PORTER = "caresses ponies relational vietnamization hopefulness adjustable probate controlling"  # 1980, steps 1a to 5b


@pytest.mark.parametrize(
    ("config", "text", "expected"),
    [
        (ENGLISH, RIVERS, ["river", "run", "bridg"]),
        (AnalyzerConfig(stem=False), RIVERS, ["rivers", "running", "bridges"]),
        (AnalyzerConfig(stop_words=False), RIVERS, ["the", "river", "ar", "run", "on", "bridg"]),
        (PLAIN, RIVERS, ["the", "rivers", "are", "running", "on", "bridges"]),
        (PLAIN, '"river," river; (river) river.River', ["river"] * 5),  # which `lower().split(" ")` misses
        (PLAIN, "route_66 B-52 naïve Größe 東京都 e=mc2", ["route_66", "b", "52", "naïve", "größe", "東京都", "e", "mc2"]),
        (ENGLISH, PORTER, ["caress", "poni", "relat", "vietnam", "hope", "adjust", "probat", "control"]),
        (GERMAN, KATZE, ["katz", "hund"]),
        (AnalyzerConfig(language="de", stop_words=False, stem=False), KATZE, ["die", "katze", "und", "der", "hund"]),
        (UNIVERSAL, "The Rivers, running!", ["the", "rivers", "running"]),
        (UNIVERSAL, "l'eau, Tesla's: “naïve”", ["l", "eau", "tesla", "s", "naive"]),
        (UNIVERSAL, "東京都は首都。", ["東京", "京都", "都は", "は首", "首都"]),
        (UNIVERSAL, "水 を", ["水", "を"]),
        (UNIVERSAL, "2023年のVPN", ["2023", "年の", "vpn"]),
        (UNIVERSAL, "हिन्दी की किताब।", ["हिन्दी", "की", "किताब"]),
        (UNIVERSAL, "ไทย", ["ไท", "ทย"]),
        (UNIVERSAL, "한국어를", ["한국", "국어", "어를"]),
        (UNIVERSAL, "葛\U000e0100飾", ["葛飾"]),
        (UNIVERSAL, "\u200f \ufe0f ...", []),
    ],
)
def test_terms(config: AnalyzerConfig, text: str, expected: list[str]) -> None:
    assert Analyzer(config).terms(text) == expected


def test_every_stop_word_is_dropped_and_only_those() -> None:
    assert Analyzer(ENGLISH).terms(" ".join(STOP_WORDS)) == []
    assert Analyzer(AnalyzerConfig(stem=False)).terms("thee theory") == ["thee", "theory"]


def test_keys_are_the_same_in_every_process() -> None:
    """Prepared documents may be stored: a key never depends on Python's hash seed."""
    assert term_key("river") == -6961299224440628586
    assert term_key(chr(0xD800)) == int.from_bytes(blake2b(b"\xed\xa0\x80", digest_size=8).digest(), "little", signed=True)


@pytest.mark.parametrize("config", [ENGLISH, UNIVERSAL])
def test_an_endless_word_is_matched_by_its_head(config: AnalyzerConfig) -> None:
    analyzer = Analyzer(config)
    assert analyzer.terms("x" * 1_000_000) == ["x" * 64]
    assert analyzer.keys("x" * 1_000_000) == analyzer.keys("x" * 64 + "y")


@given(st.text(), st.sampled_from([ENGLISH, UNIVERSAL, AnalyzerConfig(language="tr")]))
def test_keys_are_those_of_the_terms(text: str, config: AnalyzerConfig) -> None:
    analyzer = Analyzer(config)
    expected = [term_key(term) for term in analyzer.terms(text)]
    assert analyzer.keys(text) == expected
    assert analyzer.keys(text) == expected  # from the memo


def test_the_memo_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keyblock.text.analyzer._MEMO_WORDS", 50)
    analyzer = Analyzer(ENGLISH)
    for i in range(200):
        analyzer.keys(f"word{i} other{i}")
        assert len(analyzer._memo) <= 50
    assert analyzer.keys("word3") == [term_key("word3")]


def test_threads_agree() -> None:
    """A Snowball stemmer keeps state between calls, so one analyzer must not let threads share one."""
    words = [
        f"{stem}{ending}"
        for stem in ("relat", "controll", "adjust", "oper", "electr")
        for ending in ("ing", "ed", "ational", "ness")
    ]
    texts = [" ".join(f"{word}{i}ing {word}" for word in words) for i in range(60)]
    alone = [Analyzer(ENGLISH).terms(text) for text in texts]
    shared = Analyzer(ENGLISH)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(shared.terms, texts * 3)) == alone * 3
        assert list(pool.map(shared.keys, texts)) == [[term_key(term) for term in terms] for terms in alone]


def test_a_description_of_before_there_were_others_is_english() -> None:
    assert AnalyzerConfig.model_validate({"stem": True, "stop_words": True}) == AnalyzerConfig(name="english")
    assert AnalyzerConfig(language="de").name == "language"
    assert (UNIVERSAL.stem, UNIVERSAL.stop_words) == (False, False)
    assert AnalyzerConfig.model_validate(UNIVERSAL.model_dump()) == UNIVERSAL


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"language": "xx"}, "no stemmer for language 'xx'; known: ar, ca, "),
        ({"name": "language"}, "no stemmer for language None"),
        ({"name": "universal", "language": "de"}, "language 'de' needs the name 'language', not 'universal'"),
        ({"name": "universal", "stem": True}, "universal knows no stems"),
    ],
)
def test_what_is_no_analyzer(given: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        AnalyzerConfig.model_validate(given)


@pytest.mark.parametrize(
    ("language", "question", "text"),
    [
        ("de", "der Fluss", "Die Flüsse"),
        ("ru", "река", "о реками"),
        ("es", "búsqueda", "las busquedas"),
        ("tr", "kitap", "KITABI"),
        ("ar", "كتاب", "الكتاب"),
        ("el", "δρόμος", "ΔΡΟΜΟΥΣ"),
    ],
)
def test_forms_of_a_word_meet(language: str, question: str, text: str) -> None:
    analyzer = Analyzer(AnalyzerConfig(language=language))
    assert set(analyzer.terms(question)) & set(analyzer.terms(text))


def test_turkish_has_two_letters_i() -> None:
    assert Analyzer(AnalyzerConfig(language="tr", stem=False)).terms("IŞIK") == ["isik"]
    assert len(set(Analyzer(AnalyzerConfig(language="tr")).terms("İSTANBUL istanbul"))) == 1


def test_every_language_has_a_stemmer() -> None:
    assert set(LANGUAGES.values()) == set(Stemmer.algorithms()) - {"porter", "dutch_porter"}
    assert [language for language in LANGUAGES if not stop_words(language)] == ["ne", "sr", "ta", "yi"]


@pytest.mark.parametrize("text", ["Crème brûlée", "Việt Nam", "हिन्दी क़लम", "がぎぐげご", "한국어", "Ελλάδα", "ёлка"])
def test_however_it_is_composed(text: str) -> None:
    """What a Mac writes and what a web page has are the same to a reader."""
    analyzer = Analyzer(UNIVERSAL)
    assert len({tuple(analyzer.keys(unicodedata.normalize(form, text))) for form in ("NFC", "NFD", "NFKC", "NFKD")}) == 1


@given(st.text(st.characters(codec=None)), st.text(st.characters(codec=None)))
def test_any_text(text: str, other: str) -> None:
    """Words are found by themselves: what stands behind a space changes nothing."""
    analyzer = Analyzer(UNIVERSAL)
    assert analyzer.terms(f"{text} {other}") == analyzer.terms(text) + analyzer.terms(other)


@given(st.text())
def test_pieces_stand_in_the_text_or_are_in_one_spelling(text: str) -> None:
    for piece in pieces(text):
        assert piece in text or folded(caseless(piece)) == piece


def test_a_long_stretch_is_several() -> None:
    assert len(Analyzer(UNIVERSAL).terms("水" * 3 * STRETCH)) == 3 * (STRETCH - 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Straße", "strasse"),
        ("ＡＢＣ１２３", "abc123"),
        ("ﬁne soft\u00adhyphen", "fine softhyphen"),
        ("ΟΔΟΣ οδός", "οδοσ οδόσ"),
        ("ｶﾞﾗｽ", "ガラス"),
        ("می\u200cخواهم", "میخواهم"),
    ],
)
def test_looks_are_left_out(text: str, expected: str) -> None:
    assert caseless(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("crème brûlée", "creme brulee"),
        ("οδόσ", "οδοσ"),
        ("ещё чай", "еще чай"),  # й is a letter of its own
        ("нао\u0301ми їжак", "наоми їжак"),
        ("مُحَمَّد أحمد", "محمد احمد"),
        ("שָׁלוֹם", "שלום"),
        ("हिन्दी की", "हिन्दी की"),
        ("がぎぐ", "がぎぐ"),
        ("tiếng việt", "tieng viet"),
        ("ısı łódź ærø", "isi lodz aero"),
    ],
)
def test_accents_go_where_readers_leave_them_out(text: str, expected: str) -> None:
    assert folded(text) == expected


@given(st.text())
def test_composed_and_decomposed_texts_meet(text: str) -> None:
    forms = {folded(caseless(unicodedata.normalize(form, text))) for form in ("NFC", "NFD")}
    assert len(forms) == 1
