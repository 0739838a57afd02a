"""Uploads: every document in one batch, in order, and one report of all."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.client import uploads
from keyblock.client.errors import ErrorAnswer, KeyBlockError
from keyblock.client.uploads import Batch, Outcome, Upload, nothing_stored


@given(st.lists(st.integers(0, 300), max_size=30))
def test_batches_hold_every_document_once_in_order(sizes: list[int]) -> None:
    upload, most = Upload(), 200
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uploads, "BATCH_BYTES", most)
        made = [upload.add({"id": number, "text": "x" * size}) for number, size in enumerate(sizes)] + [upload.rest()]
    batches = [batch for batch in made if batch is not None]
    lines = [json.loads(line) for batch in batches for line in batch.content.splitlines()]
    assert [(line["id"], len(line["text"])) for line in lines] == list(enumerate(sizes))
    assert all(len(batch.content) <= most or batch.count == 1 for batch in batches)
    assert [batch.first for batch in batches] == [sum(one.count for one in batches[:number]) for number in range(len(batches))]
    assert upload.rest() is None


def test_a_report_of_all() -> None:
    upload = Upload()
    upload.enter(Batch(b"", 0, 5), Outcome(4, 1, ({"line": 2, "message": "m", "id": 7},), ("w",)))
    upload.enter(Batch(b"", 5, 3), Outcome(3, 0, (), ("w", "v")))
    upload.enter(Batch(b"", 8, 40), Outcome(0, 40, tuple({"line": n, "message": "n"} for n in range(1, 21))))
    report = upload.report
    assert (report.stored, report.failed, report.warnings) == (7, 41, ("w", "v"))
    assert [one.index for one in report.errors] == [1, *range(8, 27)]
    assert report.errors[0].id == 7


def test_only_wrong_lines_are_an_outcome() -> None:
    wrong = {"loc": ["body", 2], "msg": "id: is missing"}
    refused = ErrorAnswer(422, "", "", "nothing_stored", details=(wrong,)).error()
    assert nothing_stored(refused).wrong == ({"line": 2, "message": "id: is missing"},)
    for error in (KeyBlockError("x"), ErrorAnswer(422, "there is no store", "", "invalid_request").error()):
        with pytest.raises(KeyBlockError):
            nothing_stored(error)
