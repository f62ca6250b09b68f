"""Files are replaced atomically, also while others write them."""

from pathlib import Path

from fullrank.storage.files import replacing


def test_writers_of_one_file_with_the_same_process_id_do_not_meet(tmp_path: Path) -> None:
    """Containers that share a volume all write as process 1."""
    path = tmp_path / "active.json"
    with replacing(path) as first:
        first.write("first")
        with replacing(path) as second:
            second.write("the second")
        assert path.read_text() == "the second"
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]
