"""Checks that the preparation of long texts without spaces takes linear time: CPU seconds by length.

    python -m benchmarks.lengths [--mb 1 2 5 10] [--only thai json emoji]

The script makes three kinds of text without spaces: Thai syllables, JSON records, and emoji (with skin tones, flags and families).
Each text is one document; --mb gives its million bytes of UTF-8. The embedded bundle's pipeline prepares it on one thread, and so
does a pipeline of the analyzer `universal`, the segmenter `structure` and BM25 by blocks, with three tokenizers: the embedded one
(WordPiece), a Unigram one like XLM-R's and a byte-level BPE one like Qwen's. The last two are trained on the heads of these texts.
Prints CPU seconds, the ratio of the longest text's to the shortest's, and the tokens of the longest text.
"""

import argparse
import itertools
import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import Regex, models, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Backend

from benchmarks.languages import EMBEDDED, PIPELINES
from keyblock.bundle import load_bundle
from keyblock.pipeline import Pipeline, PipelineConfig
from keyblock.text.tokenizer import Tokenizer
from keyblock.text.units import WITH_NEWLINES

MB = 1_000_000
_CONSONANTS, _VOWELS, _TONES = "กขคงจชซดตถทธนบปผพมยรลวสหอ", "ะาิีุู", ("", "", "่", "้")
_PEOPLE = ("👩", "👨", "🧒", "👍", "🏃", "🤷")
_TONES_OF_SKIN = ("", "🏻", "🏽", "🏿")
_SYMBOLS = ("😀", "🎉", "🚲", "🌧️", "❤️", "🇦🇹", "🇯🇵", "👨‍👩‍👧", "🏳️‍🌈", "1️⃣")


def thai(drawn: random.Random) -> str:
    """A random Thai syllable."""
    return drawn.choice(_CONSONANTS) + drawn.choice(_TONES) + drawn.choice(_VOWELS) + drawn.choice(("", *_CONSONANTS))


def record(drawn: random.Random) -> str:
    """A random object of a JSON list."""
    name, tags = "".join(drawn.choices("abcdefghij", k=8)), drawn.choices(["new", "paid", "late", "open"], k=2)
    made = {"id": drawn.randrange(10**6), "name": name, "price": drawn.randrange(9999) / 100, "tags": tags, "note": None}
    return json.dumps(made, separators=(",", ":")) + ","


def emoji(drawn: random.Random) -> str:
    """A random emoji, which may be several code points."""
    return drawn.choice(_SYMBOLS) if drawn.random() < 0.5 else drawn.choice(_PEOPLE) + drawn.choice(_TONES_OF_SKIN)


KINDS: Mapping[str, Callable[[random.Random], str]] = {"thai": thai, "json": record, "emoji": emoji}


@cache
def text(kind: str, n_bytes: int) -> str:
    """A text of about `n_bytes` bytes without spaces; the same for the same arguments."""
    drawn, made, size = random.Random(17), list[str](), 0
    while size < n_bytes:
        made.append(KINDS[kind](drawn))
        size += len(made[-1].encode())
    return f"[{''.join(made)}]" if kind == "json" else "".join(made)


def heads() -> list[str]:
    """The heads of all texts, in lines of 40 characters."""
    return [text(kind, 20_000)[:20_000][place : place + 40] for kind in KINDS for place in range(0, 20_000, 40)]


def trained(name: str, lines: Iterable[str], tokens: int = 4000) -> Tokenizer:
    """A Unigram or byte-level BPE tokenizer of `tokens` tokens, trained on these lines."""
    unknown = "<unk>"
    special: Any = {"special_tokens": ["<s>", "</s>", unknown], "vocab_size": tokens, "show_progress": False}
    if name == "unigram":
        made, trainer = Backend(models.Unigram()), trainers.UnigramTrainer(unk_token=unknown, **special)
        made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    else:
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        made, trainer = Backend(models.BPE()), trainers.BpeTrainer(initial_alphabet=alphabet, **special)
        split = pre_tokenizers.Split(Regex(WITH_NEWLINES[0]), "isolated")
        bytes_alone = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False, trim_offsets=False)
        made.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_alone])
    made.train_from_iterator(lines, trainer)
    pair = "<s> $A </s> </s> $B </s>"
    made.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair=pair, special_tokens=[("<s>", 0), ("</s>", 1)])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        made.save(str(path))
        return Tokenizer(path)


def pipelines() -> dict[str, Pipeline]:
    """The measured pipelines, by name."""
    bundle = load_bundle(EMBEDDED)
    config = PipelineConfig.model_validate(PIPELINES["universal, structure"])
    tokenizers = {"wordpiece": bundle.tokenizer, "unigram": trained("unigram", heads()), "bytes": trained("bytes", heads())}
    made = {f"universal, structure, {name}": Pipeline(config, one, bundle.frequencies) for name, one in tokenizers.items()}
    return {"embedded": bundle.pipeline, **made}


def seconds(pipeline: Pipeline, document: str) -> tuple[float, int]:
    """CPU seconds to prepare a document, and its tokens."""
    started = time.process_time()
    prepared = pipeline.prepare_document(document)
    return time.process_time() - started, len(prepared.token_ids)


def main() -> None:
    """Print a row for each text and pipeline."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, nargs="+", default=[1, 2, 5, 10])
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    given = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    made = pipelines()
    columns = [*(f"{mb} MB" for mb in given.mb), f"ratio (length: {given.mb[-1] / given.mb[0]:g})", "tokens"]
    print(f"| | pipeline | {' | '.join(columns)} |\n|{' --- |' * (len(columns) + 2)}")
    for kind, (name, pipeline) in itertools.product(given.only, made.items()):
        seconds(pipeline, text(kind, MB // 10))  # known words are read faster
        measured = [seconds(pipeline, text(kind, mb * MB)) for mb in given.mb]
        cells = [*(f"{each:.2f} s" for each, _ in measured), f"{measured[-1][0] / measured[0][0]:.1f}", f"{measured[-1][1]:,}"]
        print(f"| {kind} | {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
