"""Trains a cross-encoder in its own environment, as sentence-transformers documents it. It imports nothing of KeyBlock.

    python outside_trainer.py PAIRS.json BACKBONE OUT [--batch 16] [--rate 2e-4] [--threads 1]

PAIRS.json is a list of [query, text, label]. OUT receives a checkpoint with one label.
"""

import argparse
import json
from pathlib import Path

import torch
from datasets import Dataset
from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

TOKENS = 256  # paragraphs are shorter
WARM, SEED, SAVED = 0.05, 1, 100
UNDROPPED = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # one epoch; random numbers are slow on a CPU


def main() -> None:
    """Train and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("backbone")
    parser.add_argument("out", type=Path)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=2e-4)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    queries, texts, labels = (list(column) for column in zip(*json.loads(given.pairs.read_text(encoding="utf-8")), strict=True))
    model = CrossEncoder(given.backbone, num_labels=1, max_length=TOKENS, config_kwargs=UNDROPPED, device="cpu")
    model.model.get_input_embeddings().requires_grad_(False)  # these are half of the weights, and cost a sixth of a step's time
    arguments = CrossEncoderTrainingArguments(
        output_dir=str(given.out.with_suffix(".training")),
        per_device_train_batch_size=given.batch,
        num_train_epochs=1,
        learning_rate=given.rate,
        warmup_steps=WARM,
        train_sampling_strategy="group_by_length",
        use_cpu=True,
        seed=SEED,
        save_steps=SAVED,
        save_only_model=True,
        report_to="none",
        logging_steps=10,
        disable_tqdm=True,
    )
    dataset = Dataset.from_dict({"query": queries, "text": texts, "label": [float(label) for label in labels]})
    CrossEncoderTrainer(model=model, args=arguments, train_dataset=dataset, loss=BinaryCrossEntropyLoss(model)).train()
    model.max_length = model.config.max_position_embeddings  # 512: it was trained on paragraphs, but scores longer texts
    model.save_pretrained(str(given.out))


if __name__ == "__main__":
    main()
