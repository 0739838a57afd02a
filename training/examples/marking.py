"""Labels the tokens of a sequence that belong to the answering passage: the marker learns these labels."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from keyblock.packing import Packed, pieces
from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument
from training.collections.types import Span

Labels = NDArray[np.int8]
LEFT_OUT = -1  # label of a token of the query, of the title, or of a relevant document without a gold passage


def no_labels(packed: Packed) -> Labels:
    """Labels of a sequence whose tokens are all left out, shape (length,)."""
    return np.full(len(packed.ids), LEFT_OUT, np.int8)


def token_labels(
    pipeline: Pipeline,
    document: PreparedDocument,
    text: str,
    gold: Sequence[Span],
    packed: Packed,
) -> Labels:
    """Labels of a sequence's tokens, shape (length,).

    The label is 1 for a token inside a gold passage, 0 for another token of the document's blocks, else LEFT_OUT.

    Args:
        pipeline: the pipeline that prepared and packed the document; its sequences hold whole blocks, not grown by neighbours.
        document: the sequence's document.
        text: the document's text.
        gold: the document's gold passages; without any, all tokens of its blocks are 0.
        packed: the sequence.
    """
    labels = no_labels(packed)
    starts, ends = pipeline.reader.read([text])[0].places() if len(gold) else (document.starts[:0], document.ends[:0])
    lengths, after = document.bounds[:, 1] - document.bounds[:, 0], len(pipeline.tokenizer.template.after)
    for block, at, count in pieces(packed, packed.taken, lengths, document.starts, len(document.title_ids), after):
        first = int(document.bounds[block, 0])
        tokens, inside = slice(first, first + count), np.zeros(count, np.bool_)
        for span in gold:
            inside |= (starts[tokens] < span.end) & (ends[tokens] > span.start)
        labels[at : at + count] = inside
    return labels
