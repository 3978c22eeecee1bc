"""Captures as arguments, with the interfaces that their packets come in by."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Union

Path = Union[str, "os.PathLike[str]"]
Captures = Union[Path, Iterable[Path], Mapping[str, Union[Path, Iterable[Path]]]]


def named(captures: Captures) -> Iterator[tuple[str | None, str]]:
    """Pairs of interface and path."""
    if isinstance(captures, Mapping):
        for interface, paths in captures.items():
            if not isinstance(interface, str):
                raise TypeError(f"an interface is a {type(interface).__name__}, not a str")
            for path in _paths(paths):
                yield interface, path
    else:
        for path in _paths(captures):
            yield None, path


def _paths(paths: Path | Iterable[Path]) -> Iterator[str]:
    for path in [paths] if isinstance(paths, (str, bytes, os.PathLike)) else paths:
        yield file(path)


def file(path: Path) -> str:
    """The path of a capture as text."""
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(f"a capture is a {type(text).__name__}, not a path")
    return text
