"""Results as Parquet files, on any file system that fsspec knows: each is there whole, or not at all."""

from __future__ import annotations

import hashlib
import io
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .errors import ReadError, TableError

if TYPE_CHECKING:
    import pyarrow as pa


class Parts:
    """A directory of results.

    Parameters
    ----------
    out : str
        Its path or URL: ``results``, ``s3://bucket/results``, ``memory://results``.
    columns : pyarrow.Schema
        Columns of the rows.
    """

    def __init__(self, out: str, columns: pa.Schema) -> None:
        try:
            import fsspec
        except ImportError:
            raise ImportError("results are written by fsspec: pip install fsspec") from None
        self.out = out
        self.columns = columns
        try:
            self._files, self._path = fsspec.core.url_to_fs(out)
            self._files.makedirs(self._path, exist_ok=True)
        except (ValueError, ImportError) as error:
            raise ReadError(f"{out}: {error}") from None

    def read(self, wanted: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
        """Rows that are there, of those that are wanted or all, by their hashes.

        Raises
        ------
        TableError
            A file is no table of these columns.
        """
        import pyarrow as pa
        import pyarrow.parquet

        kept = None if wanted is None else set(wanted)
        rows: dict[str, dict[str, Any]] = {}
        self._files.invalidate_cache()
        for path in sorted(self._files.ls(self._path, detail=False)):
            name = path.rsplit("/", 1)[-1]
            if name.startswith(".") or not name.endswith(".parquet"):
                continue
            try:
                table = pa.parquet.read_table(pa.BufferReader(self._files.cat_file(path)))
            except (pa.ArrowInvalid, OSError) as error:
                raise TableError(f"{name} in {self.out} is no table in Parquet: {error}") from None
            if not table.schema.equals(self.columns):
                raise TableError(f"{name} in {self.out} {_difference(table.schema, self.columns)}: give another directory")
            rows.update((row["hash"], row) for row in table.to_pylist() if kept is None or row["hash"] in kept)
        return rows

    def write(self, rows: list[dict[str, Any]]) -> None:
        """Write rows as a file, which is named by their hashes."""
        import pyarrow as pa
        import pyarrow.parquet

        table, file = pa.Table.from_pylist(rows, schema=self.columns), io.BytesIO()
        pa.parquet.write_table(table, file)
        name = hashlib.sha256("".join(sorted(row["hash"] for row in rows)).encode()).hexdigest()[:32]
        whole = f"{self._path}/{name}.parquet"
        # What is put into a store of objects is there at once; a file grows.
        if "file" in (self._files.protocol if isinstance(self._files.protocol, (tuple, list)) else [self._files.protocol]):
            growing = f"{self._path}/.{name}-{uuid.uuid4().hex}"
            self._files.pipe_file(growing, file.getvalue())
            self._files.mv(growing, whole)
        else:
            self._files.pipe_file(whole, file.getvalue())


def _difference(found: pa.Schema, expected: pa.Schema) -> str:
    missing = [name for name in expected.names if name not in found.names]
    more = [name for name in found.names if name not in expected.names]
    if missing:
        return f"has no column {missing[0]}"
    if more:
        return f"has a column {more[0]} that these results have not"
    for name in expected.names:
        if found.field(name).type != expected.field(name).type:
            return f"has {name} as {found.field(name).type}, where these results have {expected.field(name).type}"
    return "has its columns in another order"
