"""Times the preparation of documents by language, beside the tokenizer alone.

    python -m benchmarks.preparation_by_language --data DATA/languages [--languages de th] [--kinds wordpiece unigram bytes]
        [--analyzer '{"language": "de"}'] [--documents 100]

The script joins a language's texts and cuts them into documents of as many characters as 2,000 words have. For Chinese, Japanese
and Thai it takes 3,500, 4,500 and 9,000 characters for 2,000 words. The tokenizers are MiniLM's WordPiece, and two that are trained
here on the collections: Unigram with the steps of XLM-RoBERTa's, and byte-level BPE with those of Qwen's; each has 30,000 tokens.
No model is run. Prints CPU time of one thread, medians of five turns: the tokenizer alone (ids and offsets), reading (tokens and
terms), a preparation that Python cuts, and a normal preparation; beside them the first preparation of these texts in the process.
With the analyzer `{"language": ""}` each language uses its own.
"""

import argparse
import gzip
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Regex, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Backend

from benchmarks.preparation import CutsNothing
from keyblock.bundle import load_bundle
from keyblock.description import PipelineConfig
from keyblock.pipeline import Pipeline
from keyblock.text.frequencies import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer
from keyblock.text.units import WITH_NEWLINES

BUNDLE = Path(__file__).resolve().parent.parent / "models" / "default"
UNSPACED = {"zh": 3500, "ja": 4500, "th": 9000}
WORDS = 2000
VOCABULARY = 30_000


def texts_of(directory: Path) -> list[str]:
    """The texts of a language's collection."""
    with gzip.open(directory / "corpus.jsonl.gz", "rt", encoding="utf-8") as corpus:
        return [json.loads(line)["text"] for line in corpus]


def stretches(texts: Sequence[str], language: str, documents: int) -> list[str]:
    """Documents of about WORDS words each."""
    whole = "\n\n".join(texts)
    length = UNSPACED.get(language) or round(len(whole) / len(whole.split()) * WORDS)
    return [whole[start : start + length] for start in range(0, len(whole) - length, length)][:documents]


def trained(kind: str, texts: Iterator[str]) -> Backend:
    """A tokenizer trained on texts of many languages."""
    if kind == "unigram":
        found = Backend(models.Unigram())
        found.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])
        found.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
        special = ["<s>", "<pad>", "</s>", "<unk>"]
        trainer: Any = trainers.UnigramTrainer(
            vocab_size=VOCABULARY, special_tokens=special, unk_token=special[-1], show_progress=False
        )
    else:
        found = Backend(models.BPE())
        found.normalizer = normalizers.NFC()
        split = pre_tokenizers.Split(Regex(WITH_NEWLINES[0]), "isolated")
        found.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=VOCABULARY, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet, show_progress=False
        )
    found.train_from_iterator(texts, trainer)
    ends = [("<s>", found.token_to_id("<s>")), ("</s>", found.token_to_id("</s>"))]
    found.post_processor = processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> </s> $B </s>", ends)
    return found


def tokenizer_of(kind: str, directories: Sequence[Path], folder: Path) -> Tokenizer:
    """The tokenizer of a kind."""
    if kind == "wordpiece":
        return load_bundle(BUNDLE).pipeline.tokenizer
    path = folder / f"{kind}.json"
    trained(kind, (text[:20_000] for directory in directories for text in texts_of(directory)[:10])).save(str(path))
    return Tokenizer(path)


def pipeline_of(tokenizer: Tokenizer, analyzer: dict[str, Any]) -> Pipeline:
    """A pipeline like that of an imported multilingual model."""
    config = PipelineConfig.model_validate(
        {
            "analyzer": analyzer,
            "segmenter": {"name": "structure", "block_tokens": 63},
            "selector": {"name": "bm25", "idf": "blocks"},
        }
    )
    return Pipeline(config, tokenizer, DocumentFrequencies(0, {}))


def milliseconds(work: Callable[[], object], documents: int) -> float:
    """Milliseconds of CPU time a document."""
    started = time.process_time()
    work()
    return (time.process_time() - started) * 1000 / documents


def alone(tokenizer: Tokenizer, texts: Sequence[str]) -> object:
    """The ids and offsets from the tokenizer alone."""
    return [(encoding.ids, encoding.offsets) for encoding in tokenizer.encode(texts)]


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    directories = sorted(path for path in options.data.iterdir() if (path / "corpus.jsonl.gz").exists())
    with tempfile.TemporaryDirectory() as folder:
        for kind in options.kinds:
            tokenizer = tokenizer_of(kind, directories, Path(folder))
            print(f"\n{kind}, CPU ms a document\n")
            print("| | tokens | alone | read | cut by Python | prepared first | prepared | alone / read | alone / prepared |")
            print("|---|---|---|---|---|---|---|---|---|")
            for directory in directories:
                if not options.languages or directory.name in options.languages:
                    print(row(tokenizer, directory, options), flush=True)


def row(tokenizer: Tokenizer, directory: Path, options: argparse.Namespace) -> str:
    """The table row of a language."""
    texts = stretches(texts_of(directory), directory.name, options.documents)
    analyzer = options.analyzer | ({"language": directory.name} if "language" in options.analyzer else {})
    (pipeline, cut_by_python), n = (pipeline_of(tokenizer, analyzer) for _ in range(2)), len(texts)
    cut_by_python.reader = CutsNothing(tokenizer, cut_by_python.analyzer)
    first = milliseconds(lambda: pipeline.prepare_documents(texts), n)
    cut_by_python.prepare_documents(texts)
    ways = (
        lambda: alone(tokenizer, texts),
        lambda: pipeline.reader.read(texts),
        lambda: cut_by_python.prepare_documents(texts),
        lambda: pipeline.prepare_documents(texts),
    )
    turns = [[milliseconds(way, n) for way in ways] for _ in range(5)]
    tokenizer_alone, read, by_python, prepared = map(statistics.median, zip(*turns, strict=True))
    tokens = statistics.mean(len(document.token_ids) for document in pipeline.prepare_documents(texts))
    cells = " | ".join(f"{value:.2f}" for value in (tokenizer_alone, read, by_python, first, prepared))
    return f"| {directory.name} ({n}) | {tokens:.0f} | {cells} | {tokenizer_alone / read:.1f} | {tokenizer_alone / prepared:.1f} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--kinds", nargs="+", default=["wordpiece", "unigram", "bytes"], choices=["wordpiece", "unigram", "bytes"])
    parser.add_argument("--languages", nargs="*", default=[])
    parser.add_argument("--analyzer", type=json.loads, default={"name": "universal"})
    parser.add_argument("--documents", type=int, default=100)
    main(parser.parse_args())
