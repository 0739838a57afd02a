"""What decides how a document is prepared, as one short name: prepared documents that are kept carry it."""

import hashlib
import inspect
import json
from importlib.metadata import version
from pathlib import Path

from keyblock import pipeline, prepared, segmenters
from keyblock.pipeline import Pipeline
from keyblock.text import analyzer, characters, hashing, known, lexicon, page, reader, reading, rows, tokenizer, words

CODE = (  # what prepares a document
    *(analyzer, characters, hashing, known, lexicon, page, pipeline, prepared, reader, reading, rows, segmenters, tokenizer, words),
)
LIBRARIES = ("tokenizers", "PyStemmer")


def preparation_fingerprint(of: Pipeline, tokenizer_file: Path) -> str:
    """32 hexadecimal digits for all that decides how a document is prepared, the code and its libraries included.

    The model's weights, the selector and the frequencies play no part: they come after.

    Args:
        of: the pipeline.
        tokenizer_file: the file that its tokenizer was read from.
    """
    description = {
        "analyzer": of.config.analyzer.model_dump(mode="json"),
        "segmenter": of.config.segmenter,
        "title_tokens": of.config.packing.title_tokens,
        "libraries": {name: version(name) for name in LIBRARIES},
    }
    digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode())
    for content in (tokenizer_file.read_bytes(), *(inspect.getsource(module).encode() for module in CODE)):
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()[:32]
