"""A shop in three languages: names, categories and prose among codes, dates, links and numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fullrank.storage.documents import Document
from tests.planted import write_lines, write_qrels

WORDS = {
    "en": {
        "things": ["Running shoe", "Rain jacket", "Wool hat", "Trail backpack", "Tent"],
        "colours": ["red", "navy blue", "black", "off-white", "green"],
        "brands": ["Nike", "H&M", "LG", "The North Face", "7-Eleven", "Salomon"],
        "categories": ["Shoes", "Clothing > Jackets", "Hats & Caps", "Bags", "Camping"],
    },
    "ja": {
        "things": [
            "ランニングシューズ",
            "レインジャケット",
            "毛糸の帽子",
            "登山用リュック40L",
            "テント",
        ],
        "colours": ["赤", "紺", "黒", "オフホワイト", "緑"],
        "brands": ["ミズノ", "無印良品", "SONY", "ユニクロ", "LG", "資生堂"],
        "categories": ["靴", "衣類", "帽子", "バッグ", "キャンプ"],
    },
    "ar": {
        "things": ["حذاء جري", "سترة مطر", "قبعة صوف", "حقيبة ظهر", "خيمة"],
        "colours": ["أحمر", "أزرق", "أسود", "أبيض", "أخضر"],
        "brands": ["المراعي", "نايك", "LG", "زين", "العربية", "SONY"],
        "categories": ["أحذية", "ملابس", "قبعات", "حقائب", "تخييم"],
    },
}


def product(i: int, language: str) -> dict[str, Any]:
    """One line of a shop's export."""
    words = WORDS[language]
    thing, colour = words["things"][i % 5], words["colours"][i // 5 % 5]
    return {
        "_id": f"p{i:04}",
        "sku": f"{'ABCDE'[i % 5]}{i * 7919 % 9973:04}-{'XLMS'[i % 4]}",
        "date": f"2024-{i % 12 + 1:02}-{i % 28 + 1:02}",
        "image": f"https://cdn.example.com/img/{i}.jpg",
        "file": f"img_{i}.jpg",
        "title": f"{thing} {colour}",
        "text": f"{thing}: {colour}. {i % 9} / 10",
        "brand": words["brands"][i % 6],
        "category": words["categories"][i % 5],
        "colour": colour,
        "price": f"{i % 90},99 €",
        "isbn": f"978-3-16-{i:06}-0",
        "hash": f"{i * 2654435761 % 2**64:016x}",
        "contact": f"seller{i % 7}@example.com",
        "language": language,
        "size": ["S", "M", "L", "XL"][i % 4],
        "in_stock": ["yes", "no"][i % 2],
        "currency": "EUR",
        "shop": "Example Outdoor Shop",
        "handle": "outdoor-shop-" + "".join("abcdefghij"[int(d)] for d in str(i)),
        "empty": ["", "-", "n/a"][i % 3],
        "stock": i,
        "tags": ["outdoor", colour],
        "boxes": [i % 3, 40],
        "on_sale": i % 3 == 0,
        "shipping": {"days": 3},
        "rating": 4.5 if i % 2 else "none yet",
        "note": None,
    }  # fmt: skip


def shop(*languages: str, size: int = 120) -> list[Document]:
    lines = [product(i, languages[i % len(languages)]) for i in range(size)]
    return [Document(line.pop("_id"), line) for line in lines]


def write_shop(folder: Path, *, size: int = 30) -> Path:
    """Write the English shop with three judged queries."""
    write_lines(folder / "corpus.jsonl", [product(i, "en") for i in range(size)])
    queries = [
        {"_id": "q1", "text": "nike shoe"},
        {"_id": "q2", "text": "camping tent"},
        {"_id": "q3", "text": "hat"},
    ]
    write_lines(folder / "queries.jsonl", queries)
    write_qrels(folder / "qrels" / "train.tsv", [("q1", "p0000")])
    write_qrels(folder / "qrels" / "valid.tsv", [("q2", "p0004"), ("q3", "p0002")])
    return folder
