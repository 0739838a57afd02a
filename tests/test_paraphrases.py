"""The hundred pairs of tests/data/paraphrases.jsonl: what they must be, and how many answers the embedded bundle reads."""

from pathlib import Path

from tests.support.paraphrases import answers_read, read_pairs

ROOT = Path(__file__).resolve().parents[1]
READ = 43  # of the hundred answers, by models/default: raise it with a bundle that reads more


def test_the_embedded_bundle_reads_as_many_answers_as_it_did() -> None:
    read = answers_read(ROOT / "models" / "default", read_pairs(), "cpu")
    assert len(read) >= READ, f"only {len(read)} of 100 answers are among the chosen blocks: {', '.join(read)}"
