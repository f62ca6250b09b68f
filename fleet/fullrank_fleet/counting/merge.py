"""Merge the words of all pieces, and number them."""

from __future__ import annotations

import numpy as np

from fullrank_fleet.counting.objects import pack_words, read_arrays, unpack_words, write_arrays
from fullrank_fleet.counting.tally import Plan, tally_name
from fullrank_fleet.remote import Folder

VOCABULARY = "vocabulary.npz"


def merge_bucket(plan: Plan, bucket: int) -> None:
    """Merge the words of one bucket: add up in how many documents each occurs.

    Writes the distinct words, ascending, their frequencies, and for each piece the place of each of its words.

    Args:
        plan: Of the count; all pieces are tallied.
        bucket: Of the hash.

    Raises:
        RemoteError: An object cannot be read or written.
    """
    folder, name = Folder(plan.folder), _bucket_name(bucket)
    if folder.has(name):
        return
    pieces: list[list[str]] = []
    frequency: dict[str, int] = {}
    for number in range(plan.pieces):
        with read_arrays(folder, tally_name(number)) as arrays:
            found = unpack_words(arrays[f"words-{bucket}"])
            for word, count in zip(found, arrays[f"frequency-{bucket}"].tolist(), strict=True):
                frequency[word] = frequency.get(word, 0) + count
            pieces.append(found)
    words = sorted(frequency)
    place = {word: i for i, word in enumerate(words)}
    arrays = {
        "words": pack_words(words),
        "frequency": np.fromiter(map(frequency.__getitem__, words), np.int64, len(words)),
    }
    for number, found in enumerate(pieces):
        arrays[f"piece-{number}"] = np.fromiter(map(place.__getitem__, found), np.int32, len(found))
    write_arrays(folder, name, arrays)


def fix_vocabulary(plan: Plan) -> None:
    """Number the words of all buckets, ascending.

    Writes the words, their frequencies, and for each bucket the number of each of its words.

    Args:
        plan: Of the count; all buckets are merged.

    Raises:
        RemoteError: An object cannot be read or written.
    """
    folder = Folder(plan.folder)
    if folder.has(VOCABULARY):
        return
    buckets, frequencies = [], []
    for bucket in range(plan.buckets):
        with read_arrays(folder, _bucket_name(bucket)) as arrays:
            buckets.append(unpack_words(arrays["words"]))
            frequencies.append(arrays["frequency"])
    words = [word for found in buckets for word in found]
    order = np.array(sorted(range(len(words)), key=words.__getitem__), np.int64)
    numbers = np.empty(len(words), np.int32)
    numbers[order] = np.arange(len(words), dtype=np.int32)
    ends = np.cumsum([len(found) for found in buckets])
    arrays = {
        "words": pack_words([words[i] for i in order.tolist()]),
        "frequency": np.concatenate(frequencies)[order],
    }
    for bucket, part in enumerate(np.split(numbers, ends[:-1])):
        arrays[f"bucket-{bucket}"] = part
    write_arrays(folder, VOCABULARY, arrays)


def number_piece(plan: Plan, number: int) -> None:
    """Write the number, in the vocabulary, of each word of one piece.

    Args:
        plan: Of the count; the vocabulary is fixed.
        number: Of the piece.

    Raises:
        RemoteError: An object cannot be read or written.
    """
    folder, name = Folder(plan.folder), numbers_name(number)
    if folder.has(name):
        return
    parts = []
    with read_arrays(folder, VOCABULARY) as vocabulary:
        for bucket in range(plan.buckets):
            with read_arrays(folder, _bucket_name(bucket)) as arrays:
                parts.append(vocabulary[f"bucket-{bucket}"][arrays[f"piece-{number}"]])
    with read_arrays(folder, tally_name(number)) as arrays:
        order = arrays["order"]
    numbers = np.empty(len(order), np.int32)
    numbers[order] = np.concatenate(parts)
    write_arrays(folder, name, {"numbers": numbers})


def numbers_name(number: int) -> str:
    """Return the name of the object with the numbers of a piece's words."""
    return f"numbers-{number:05}.npz"


def _bucket_name(bucket: int) -> str:
    return f"bucket-{bucket:02}.npz"
