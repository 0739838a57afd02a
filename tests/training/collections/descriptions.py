"""A collection of TREC files by hand."""

from typing import Any

DOCUMENT = "<DOC>\n<DOCNO> {name} </DOCNO>\n<TITLE>{title}</TITLE>\n<TEXT>\n{text}\n</TEXT>\n</DOC>\n"
TOPIC = "<top>\n<num> Number: {name}\n<title> {title}\n\n<desc> Description:\nwhat is\na {title}?\n<narr> Narrative:\nany\n</top>\n"
TITLES = {"1": "river", "2": "stone", "3": "bridge", "4": "winter", "5": "garden", "6": "market"}


BASIC: dict[str, Any] = {
    "name": "hand",
    "documents": {"path": "documents.sgml.gz"},
    "candidates": "run.trec",
    "depth": 3,
    "splits": {"train": {"queries": {"path": "topics.txt"}, "qrels": "qrels.txt"}},
}
