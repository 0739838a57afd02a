"""The encoder puts first what says the same in other words."""

from pathlib import Path

import pytest

from benchmarks.encoded import Encoded, main
from benchmarks.paraphrases import System
from training.models.sentence_encoder import SentenceEncoder

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_block_that_answers_comes_first_without_a_shared_word(backbone: Path) -> None:
    system = System(ROOT / "models" / "default")
    text = " ".join(
        [
            "The museum opens at nine and closes at five on every day of the week, and its gardens"
            " stay open until the sun has set and the last of the guards has locked the gate.",
            "In case of sickness, notify your supervisor before the shift begins and bring a"
            " certificate of a physician on the third day, or the days count as leave.",
            "The train to the coast leaves from platform four, and its restaurant car serves soup,"
            " bread, cheese and coffee all afternoon long to whoever has found a seat.",
        ]
    )
    document = system.pipeline.prepare_document(text)
    first = Encoded(system, SentenceEncoder(str(backbone))).order("What do I do when I am ill?", document)[0]
    assert "sickness" in text[document.starts[first] : document.ends[first]]


def test_both_are_counted(capsys: pytest.CaptureFixture[str], backbone: Path) -> None:
    main(["--pairs", "2", "--encoder", str(backbone), "--bundle", str(ROOT / "models" / "default")])
    lines = capsys.readouterr().out.splitlines()
    assert [line.endswith("of 2") for line in lines] == [True, True]
