"""Shared by the parts of the benchmark: sizes, texts, weights and systems. A system starts when a part first needs it."""

import json
import shutil
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from transformers import BertForSequenceClassification

from benchmarks.harness import BUNDLE
from benchmarks.performance.peers import PEERS, Peer, Running
from keyblock.bundle import TOKENIZER_FILE, load_bundle, write_bundle
from tests.support.serving import Service
from tests.support.texts import Source, collected, invented
from training.model.cross_encoder import CrossEncoder
from training.model.starting import read_ranker
from training.recipe import DEFAULT_BACKBONE, backbone_path

LONGEST = 512  # tokens: the model's limit, at which every peer truncates
EPSILON = 2.0**-10  # a power of two: scaling by it loses no digit
ONE_LABEL = {"id2label": {0: "LABEL_0"}, "label2id": {"LABEL_0": 0}}
SPECIAL = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]"}


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        documents, words: documents of a request, and words of a document.
        turns: turns of each system.
        clients: numbers of concurrent clients.
        client_requests: requests of each client.
        client_words: words of a document in a client's request of ten documents.
        long_words: words of the documents that are ten times as long.
        starts: number of starts of the service.
        stored: documents that are stored by id.
    """

    documents: int
    words: int
    turns: int
    clients: tuple[int, ...]
    client_requests: int
    client_words: int
    long_words: int
    starts: int
    stored: int


FULL = Sizes(100, 2000, 3, (1, 8, 32), 3, 2000, 20_000, 5, 1000)
QUICK = Sizes(16, 2000, 2, (4, 32), 2, 500, 20_000, 2, 50)


@dataclass
class Bench:
    """One run of the benchmark. Use it in a `with` block, which stops all started systems at its end.

    Attributes:
        sizes: how much is measured.
        threads: threads that every system may use.
        home: folder for environments, weights and logs.
        data: collection of the texts; None: random texts.
        wanted: keys of the peers to measure.
    """

    sizes: Sizes
    threads: int
    home: Path
    data: Path | None = None
    wanted: tuple[str, ...] = tuple(peer.key for peer in PEERS)
    _services: dict[str, Service] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> "Bench":
        self.home.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @cached_property
    def source(self) -> Source:
        """The source of requests; every run draws different ones of the same kind."""
        seed = int(np.random.SeedSequence().generate_state(1)[0])
        return collected(self.data, seed) if self.data else invented(BUNDLE / TOKENIZER_FILE, seed)

    @cached_property
    def ranker(self) -> CrossEncoder:
        """The embedded bundle's ranker in PyTorch."""
        return read_ranker(BUNDLE, backbone_path(DEFAULT_BACKBONE))

    @cached_property
    def model(self) -> Path:
        """A directory with the ranker's weights for the peers."""
        directory = self.home / "model"
        directory.mkdir(exist_ok=True)
        write_hugging_face(directory, self.ranker, BUNDLE / TOKENIZER_FILE)
        return directory

    def service(self, wide: bool) -> Service:
        """KeyBlock on the embedded bundle, or on a copy whose budgets range up to 512 tokens."""
        name = "keyblock-wide" if wide else "keyblock"
        if name not in self._services or not self._services[name].alive:
            bundle = write_wide_bundle(BUNDLE, self.home / "wide", LONGEST) if wide else BUNDLE
            service = Service(self.threads, self.home / f"{name}.log", bundle=bundle)
            self._services[name] = self._stack.enter_context(service)
        return self._services[name]

    @cached_property
    def peers(self) -> dict[Peer, Running]:
        """The wanted peers. Raises PeerError if one does not start."""
        found: dict[Peer, Running] = {}
        for peer in PEERS:
            if peer.key in self.wanted:
                print(f"starting {peer.name} ...", flush=True)
                found[peer] = running = Running(peer, self.model, self.home, self.threads)
                self._stack.callback(running.stop)
                running.rank(self.source.request(8, 1000))  # the longest sequences
        return found


def write_hugging_face(directory: Path, ranker: CrossEncoder, tokenizer: Path) -> None:
    """Write a BERT ranker and its tokenizer as a BertForSequenceClassification with the same logits.

    Such a model has a pooler, the tanh of a linear layer. KeyBlock's head reads [CLS] directly. So the linear layer here multiplies
    by EPSILON, which is so small that tanh(x) is x, and the classifier divides by it.
    """
    config = type(ranker.encoder.config).from_dict(ranker.encoder.config.to_dict() | ONE_LABEL)
    model = BertForSequenceClassification(config)
    model.bert.load_state_dict(ranker.encoder.state_dict(), strict=False)
    with torch.no_grad():
        model.bert.pooler.dense.weight.copy_(torch.eye(config.hidden_size) * EPSILON)
        model.bert.pooler.dense.bias.zero_()
        model.classifier.weight.copy_(ranker.head.weight / EPSILON)
        model.classifier.bias.copy_(ranker.head.bias)
    model.float().eval().save_pretrained(directory)
    content = json.loads(tokenizer.read_text(encoding="utf-8")) | {"truncation": None, "padding": None}
    options = SPECIAL | {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": True,
        "model_max_length": config.max_position_embeddings,
    }
    for name, written in ((TOKENIZER_FILE, content), ("tokenizer_config.json", options), ("special_tokens_map.json", SPECIAL)):
        (directory / name).write_text(json.dumps(written), encoding="utf-8")
    vocabulary = content["model"]["vocab"]
    (directory / "vocab.txt").write_text("".join(f"{word}\n" for word in sorted(vocabulary, key=vocabulary.get)), encoding="utf-8")


def write_wide_bundle(path: Path, directory: Path, longest: int) -> Path:
    """A copy of a bundle whose budgets range up to `longest` tokens; nothing else differs."""
    shutil.rmtree(directory, ignore_errors=True)
    bundle = load_bundle(path)
    described = bundle.manifest.model_dump()
    described["pipeline"]["packing"]["budget_range"] = (described["pipeline"]["packing"]["budget_range"][0], longest)
    manifest = type(bundle.manifest).model_validate(described)
    return write_bundle(directory, manifest, {name: bundle.path / name for name in bundle.manifest.files}).path
