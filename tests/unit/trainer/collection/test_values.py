"""What a single value is. The expected kinds are what a reader would call these values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank_trainer.collection.schema import Kind, kind_of

EXAMPLES: dict[Kind | None, list[str]] = {
    Kind.WORDS: [
        *("Nike", "Coca-Cola", "Dr. Oetker", "L'Oréal", "Müller", "Procter & Gamble"),
        *("Running shoes", "Home & Garden > Tools", "Home/Kitchen/Knives", "men-shoes", "utils"),
        *("red", "Blau", "赤", "青い", "أحمر", "красный", "शुद्ध लाल", "สีแดง", "빨강", "שחור"),
        *("iPhone 15", "Galaxy S23 Ultra", "Sony WH-1000XM4", "Canon EOS R5", "Windows 11"),
        *("iPhone用ケース2個入り", "حذاء رياضي مقاس 42", "12 Main St, Springfield, IL 62704"),
        "am start -n com.android.settings/.Settings ; am start -a android.intent.action.VIEW",
        "Warm and waterproof. See https://example.com/a and https://example.com/b for more.",
    ],
    Kind.LABELS: ["NIKE", "H&M", "RDSHXL", "mens-running-shoes", "running_shoes"],
    Kind.NUMBERS: [
        *("19,99 €", "$1,299.00", "EUR 12", "1,200円", "1 200 руб.", "١٢٫٥٠ ر.س", "5公斤", "３個"),
        *("12.5 kg", "10 x 20 x 30 cm", "10x20", "12 pcs", "+49 30 123456", "192.168.0.1"),
        *("978-3-16-148410-0", "0-306-40615-X", "4006381333931", "-5", "99%"),
    ],
    Kind.DATES: [
        *("2024-01-05", "2024-01-05T10:00:00Z", "05.01.2024", "1/5/24", "2024-01", "10:30 pm"),
        *("12 March 2024", "Mar 5, 2024", "5. März 2024", "5 de diciembre de 2023", "June 2024"),
        *("Mon, 02 Jan 2006 15:04:05 GMT", "Monday, 2 January 2006", "1er janvier 2024"),
        *("2024年1月5日", "2024년 3월 1일", "٥/١/٢٠٢٤"),
    ],
    Kind.LINKS: ["https://x.de/a?b=c", "www.x.de", "//cdn.x.de/a", "data:image/png;base64,AAA"],
    Kind.EMAILS: ["jane.doe@example.com", "info@müller.de"],
    Kind.FILES: [
        *("img/red-shoe.jpg", "IMG_1234.PNG", "report final.pdf", "archive.tar.gz"),
        *("/var/lib/x", "C:\\x\\y", "../a/b", "example.com", "numpy.linalg", "写真.jpg"),
    ],
    Kind.FLAGS: ["yes", "No", "TRUE", "false"],
    Kind.SHORT: ["en", "de-AT", "USD", "XL", "S/M", "US, DE"],
    Kind.CODES: [
        *("AB-1234", "SKU-0012", "B00XYZ", "#ff00aa", "v1.2.3", "SW1A 1AA", "x11"),
        *("d41d8cd98f00b204e9800998ecf8427e", "550e8400-e29b-41d4-a716-446655440000"),
        "A12 B13 C14",
    ],
    None: ["", " \n", "-", "★★★★☆", "n/a", "NULL"],
}


@pytest.mark.parametrize(
    ("value", "kind"), [(value, kind) for kind, values in EXAMPLES.items() for value in values]
)
def test_a_value_has_the_kind_that_a_reader_sees(value: str, kind: Kind | None) -> None:
    assert kind_of(value) is kind
    assert kind_of(f"  {value}\n") is kind


@given(st.text(max_size=60))
def test_every_text_has_a_kind(text: str) -> None:
    has_letter_or_digit = any(map(str.isalnum, text))
    if not has_letter_or_digit:
        assert kind_of(text) is None
    assert kind_of(text) is kind_of(text + " ")


def test_long_values_take_no_longer_than_their_first_characters() -> None:
    """A pattern that tries every way to split a text would take hours here."""
    for piece in ("a-", "a.", "a ", "1.", "a@", "1 a", "/a", "あ1", "-_"):
        assert kind_of(piece * 200) is kind_of(piece * 200_000)
