"""Reads the documents of a call that were sent as an id alone from the store, and writes back those that were prepared again."""

from service.call import Documents
from service.errors import RequestError
from service.ranking.admission import Place
from service.store.base import AWAY
from service.store.codec import StoredDocument
from service.store.library import AWAY_PROBLEM, AWAY_SECONDS, Library
from service.store.values import Check, Found


async def look_up(
    library: Library,
    documents: Documents,
    fingerprint: bytes,
    place: Place,
    *,
    texts: bool,
    check: Check,
    until: float | None,
) -> dict[str, StoredDocument]:
    """Look up a call's ids in the store and enter the documents into the call, as far as there is time.

    Args:
        library: the store.
        documents: of the call; `by_id` is filled, and the texts of stale documents.
        fingerprint: of the current preparation.
        place: counts the bytes of the documents before they are decoded.
        texts: whether to read texts and titles too.
        check: raises ValueError for a document that the pipeline cannot use.
        until: deadline, in seconds of the machine's clock.

    Returns:
        The stale documents by id, for `renew`.

    Raises RequestError: 503 when the store does not answer for any document, 429 or 422 when there is no room for the documents.
    """
    by_id = documents.by_id
    ids = list(dict.fromkeys(by_id.ids.values()))
    found = await library.look_up(by_id.namespace, ids, fingerprint, texts=texts, check=check, until=until, reserve=place.add_bytes)
    stale: dict[str, StoredDocument] = {}
    for identity, one in found.items():
        by_id.chars[identity] = int(one.stored.prepared.ends.max(initial=0)) if isinstance(one, Found) else 0
        if isinstance(one, Found) and one.stale:
            by_id.stale.add(identity)
            stale[identity] = one.stored
        elif isinstance(one, Found):
            by_id.found[identity] = one.stored.prepared
    repeated = 0
    for number, identity in by_id.ids.items():
        one = found.get(identity)
        if one is AWAY:
            by_id.away.add(number)
        elif one is None and identity in found:
            by_id.unknown.add(number)
        elif one is not None and one.text is not None:
            documents.texts[number], documents.titles[number] = one.text, one.stored.title
            repeated += len(one.text) * texts
    if len(by_id.away) == len(documents):
        raise RequestError(503, AWAY_PROBLEM, retry_after=AWAY_SECONDS)
    place.add_bytes(repeated)  # the answer repeats a text as often as the call names its id
    return stale


def renew(library: Library, documents: Documents, stale: dict[str, StoredDocument], fingerprint: bytes) -> None:
    """Write the stale documents of `look_up` back in the background, as they have been prepared again since."""
    by_id = documents.by_id
    library.renew(by_id.namespace, [(stale[identity], one) for identity, one in by_id.renewed.items()], fingerprint)
