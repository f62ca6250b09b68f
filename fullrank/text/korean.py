"""Korean words without particles and endings: 파일을, 파일의 and 파일에서 are the word 파일.

Korean puts spaces between words but writes particles and the forms of 하다 (to do) and 되다 (to become) onto them. A
part of them depends on whether the syllable before it ends in a consonant, which tells 와이파이 (Wi-Fi) from a word
with the particle 이.
"""

from __future__ import annotations

_AFTER_CONSONANT = "은 을 이 과 이나 이라는 이란 이며 으로 으로부터 으로서 으로써"
_AFTER_VOWEL = "는 를 가 와 나 라는 란 며"
_AFTER_VOWEL_OR_L = "로 로부터 로서 로써"
_AFTER_ANY = (
    "의 에 에서 에게 에게서 까지 부터 처럼 보다 마다 만 도 들 하 하기 하는 하여 하고 하며 하면 "
    "하려면 한 한다 할 함 합니다 해 해서 되는 되어 되지 된 된다 될 됨 됩니다"
)
_LEAST = 2  # syllables of a word that stay
_FIRST, _LAST = "가", "힣"
_L = 8  # the final consonant ㄹ


def _endings() -> dict[str, str]:
    """Return what each ending may follow: "consonant", "vowel", "vowel or ㄹ" or "any"."""
    found = {}
    for text, before in (
        (_AFTER_CONSONANT, "consonant"),
        (_AFTER_VOWEL, "vowel"),
        (_AFTER_VOWEL_OR_L, "vowel or ㄹ"),
        (_AFTER_ANY, "any"),
    ):
        found.update(dict.fromkeys(text.split(), before))
    return found


_ENDINGS = _endings()
_LONGEST = max(map(len, _ENDINGS))


def stem(word: str) -> str:
    """Take particles and endings off a word, the longest first, until none is left.

    Args:
        word: Hangul syllables.

    Returns:
        The rest, of at least two syllables; a shorter word as it is.

    Example:
        >>> stem("디렉터리에서는"), stem("와이파이"), stem("설치합니다")
        ('디렉터리', '와이파이', '설치')
    """
    while True:
        for size in range(min(_LONGEST, len(word) - _LEAST), 0, -1):
            before = _ENDINGS.get(word[-size:])
            if before is not None and _fits(before, word[-size - 1]):
                word = word[:-size]
                break
        else:
            return word


def _fits(before: str, syllable: str) -> bool:
    """Return whether an ending may follow a syllable."""
    if before == "any" or not _FIRST <= syllable <= _LAST:
        return True
    final = (ord(syllable) - ord(_FIRST)) % 28
    if before == "consonant":
        return final != 0
    return final == 0 or (before == "vowel or ㄹ" and final == _L)
