"""A fingerprint of everything that decides how a document is prepared; stored documents carry it."""

import hashlib
import json
import unicodedata
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from keyblock.pipeline import Pipeline

CODE = (
    "text",
    "encoders.py",
    "meaning.py",
    "native.py",
    "preparation.py",
    "prepared.py",
    "segmenters.py",
    "sentence_vectors.py",
)  # the files and folders of this package that prepare a document
LIBRARIES = ("tokenizers", "PyStemmer", "stopwordsiso")


def preparation_fingerprint(of: Pipeline, tokenizer_file: Path) -> str:
    """32 hexadecimal digits for everything that decides how a document is prepared, including the code and its libraries.

    The model's weights, the selector and the frequencies play no part: they come later.

    Args:
        of: the pipeline.
        tokenizer_file: the file of its tokenizer.
    """
    description = {
        "analyzer": of.config.analyzer.model_dump(mode="json"),
        "segmenter": of.config.segmenter,
        "scripts": None if of.config.trained_on is None else sorted(of.config.trained_on.scripts),  # others get other terms
        "title_tokens": of.config.packing.title_tokens,
        "encoder": None if of.encoder is None else of.encoder.fingerprint.hex(),
        **_meaning(of, tokenizer_file.parent),
        "lead": of.tokenizer.prompt.lead if of.tokenizer.prompt else "",
        "unicode": unicodedata.unidata_version,
        "libraries": {name: version(name) for name in LIBRARIES},
    }
    digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode())
    for content in (tokenizer_file.read_bytes(), *(path.read_bytes() for path in code_files())):
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()[:32]


def _meaning(of: Pipeline, folder: Path) -> dict[str, str]:
    """The digest of the sentence encoder that understands documents; nothing without one."""
    if of.understanding is None or of.config.meaning is None:
        return {}
    return {"meaning": hashlib.sha256((folder / of.config.meaning.encoder["file"]).read_bytes()).hexdigest()}


def code_files() -> Iterator[Path]:
    """The Python files that prepare a document, in a fixed order."""
    for name in CODE:
        path = Path(__file__).with_name(name)
        yield from [path] if path.is_file() else sorted(path.glob("*.py"))
