#!/usr/bin/env python3
"""Does in a copy of the project what docs/add/stage.md says: writes its file and its case, and puts its lines where they belong."""

import pathlib
import re
import sys


def main():
    page, copy = pathlib.Path(sys.argv[1]).read_text(), pathlib.Path(sys.argv[2])
    file, module, entry = re.findall(r"```rust\n(.*?)```", page, re.S)
    (mapped,) = re.findall(r"```toml\n(.*?)```", page, re.S)
    (case,) = re.findall(r"```case\n(.*?)```", page, re.S)
    stage = copy / "dataplane/src/stage.rs"
    pipeline = copy / "dataplane/src/pipeline.rs"
    (copy / "dataplane/src/stage/bleach.rs").write_text(file)
    (copy / "tests/cases/bleach.case").write_text(case)
    insert(stage, module, "pub mod answer;\n")
    insert(pipeline, entry, "Entry::of::<Rewrite>(),\n")
    replace(copy / "chip/chips/mappings/rena-pool.toml", 'stages = "rewrite"\n', mapped)


def insert(path, line, behind):
    """Puts a line behind another one, of which there must be one."""
    replace(path, behind, behind + line)


def replace(path, line, by):
    """Replaces a line, of which there must be one."""
    text = path.read_text()
    if text.count(line) != 1:
        sys.exit(f"{path}: {line.strip()!r} is there {text.count(line)} times")
    path.write_text(text.replace(line, by))


main()
