//! Rules of the house that no lint knows: files of a size to read in one sitting, `unsafe` only where the design allows
//! it, and a reason on record for each dependency.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

/// Lines in a Rust file, at most.
const LONGEST: usize = 800;

/// Data tables may be longer.
const DATA_TABLES: &[&str] = &["dataplane/src/verdict/reason.rs"];

/// Files that may say `unsafe`: paths, or beginnings of paths. Each block there says why it is sound.
const UNSAFE_ALLOWED: &[&str] = &[
    "wire/src/pool.rs",
    "wire/src/frame.rs",
    "wire/src/loan.rs",
    "wire/src/prefetch.rs",
    "lookup/src/classify/simd",
    "lookup/src/memory.rs",
    "ports/src/sys",
    "ipsecmb/src/",
    // Calls of a machine without an operating system, for its standard library.
    "bench/rv32/stages/src/machine.rs",
    // Network namespaces of the tests' own.
    "ports/tests/lab/",
];

#[test]
fn no_file_is_too_long_to_read() {
    let mut faults = Vec::new();
    for (path, source) in rust_files() {
        let lines = source.lines().count();
        if lines > LONGEST && !DATA_TABLES.contains(&path.as_str()) {
            faults.push(format!("{path} has {lines} lines, {LONGEST} are allowed"));
        }
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn unsafe_stays_where_it_is_allowed() {
    let mut faults = Vec::new();
    for (path, source) in rust_files() {
        if UNSAFE_ALLOWED.iter().any(|allowed| path.starts_with(allowed)) {
            continue;
        }
        faults.extend(
            lines_saying_unsafe(&source).into_iter().map(|line| format!("{path}:{line} says unsafe")),
        );
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn each_dependency_has_its_reason() {
    let root = root();
    let page = fs::read_to_string(root.join("docs/dependencies.md")).expect("docs/dependencies.md");
    let reasons = rows(&page);
    assert!(!reasons.is_empty(), "docs/dependencies.md has no table");

    let workspace = manifest(&root.join("Cargo.toml"));
    let mut used = dependencies(workspace.get("workspace").and_then(Value::as_table).expect("[workspace]"));
    let members = workspace["workspace"]["members"].as_array().expect("members");
    for member in
        members.iter().filter_map(Value::as_str).chain(["fuzz", "bench/rv32/simulator", "bench/rv32/stages"])
    {
        used.extend(dependencies(&manifest(&root.join(member).join("Cargo.toml"))));
    }

    let unexplained: Vec<_> = used.difference(&reasons).collect();
    assert!(unexplained.is_empty(), "no row in docs/dependencies.md for {unexplained:?}");
    let gone: Vec<_> = reasons.difference(&used).collect();
    assert!(gone.is_empty(), "docs/dependencies.md gives reasons for {gone:?}, which nothing depends on");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is above its crates").to_owned()
}

/// Each Rust file of the project: its path from the root, and its text.
fn rust_files() -> Vec<(String, String)> {
    let root = root();
    let mut files = Vec::new();
    let mut directories = vec![root.clone()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("a directory of the project") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
            if path.is_dir() {
                // What cargo builds carries a tag by which back-ups know to pass it by; so do we.
                let built = path.join("CACHEDIR.TAG").exists() || name == "target";
                if !name.starts_with('.') && !built {
                    directories.push(path);
                }
            } else if name.ends_with(".rs") {
                let from_root =
                    path.strip_prefix(&root).expect("below the root").to_string_lossy().into_owned();
                files.push((from_root, fs::read_to_string(&path).expect("a Rust file is UTF-8")));
            }
        }
    }
    assert!(files.len() >= 5, "only {} Rust files found", files.len());
    files.sort();
    files
}

fn manifest(path: &Path) -> Table {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The crates from outside that a manifest, or its `[workspace]`, names: not those that are given by path, nor those
/// taken over from the workspace, which has them in its own table.
fn dependencies(manifest: &Table) -> BTreeSet<String> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let mut found = BTreeSet::new();
    for table in
        targets.into_iter().flat_map(|targets| targets.values().filter_map(Value::as_table)).chain([manifest])
    {
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for (name, wanted) in table.get(kind).and_then(Value::as_table).into_iter().flatten() {
                if wanted.get("path").is_none() && wanted.get("workspace").is_none() {
                    found.insert(wanted.get("package").and_then(Value::as_str).unwrap_or(name).to_owned());
                }
            }
        }
    }
    found
}

/// The names in the first column of the page's table; several may share a row, with commas between.
fn rows(page: &str) -> BTreeSet<String> {
    page.lines()
        .filter_map(|line| line.strip_prefix('|')?.split('|').next())
        .flat_map(|cell| cell.split(','))
        .map(|name| name.trim().trim_matches('`').to_owned())
        .filter(|name| name != "crate" && !name.chars().all(|c| c == '-' || c == ':'))
        .collect()
}

/// The numbers, from 1, of the lines that hold the keyword `unsafe`: not in a comment, a string or a longer word such
/// as the lint `unsafe_code`.
fn lines_saying_unsafe(source: &str) -> Vec<usize> {
    let code = without_comments_and_literals(source);
    let says =
        |line: &str| line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe");
    code.lines().enumerate().filter(|(_, line)| says(line)).map(|(number, _)| number + 1).collect()
}

/// The source with comments, strings and characters blanked, and its line ends kept.
fn without_comments_and_literals(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let after_word = code.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if let (Some(length), false) = (raw_string(rest), after_word) {
            length
        } else if first == '"' {
            string(rest)
        } else if let Some(length) = character(rest) {
            length
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        code.push(' ');
        code.extend(rest[..length].chars().filter(|c| *c == '\n'));
        rest = &rest[length..];
    }
    code
}

/// The length of the block comment that the text begins with; they nest.
fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// The length of the raw string, `r"..."` or `br#"..."#`, that the text begins with, if it does.
fn raw_string(text: &str) -> Option<usize> {
    let opened = text.trim_start_matches(['b', 'c']).strip_prefix('r')?;
    let hashes = opened.len() - opened.trim_start_matches('#').len();
    let body = opened[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let end = body.find(&close).map_or(body.len(), |at| at + close.len());
    Some(text.len() - body.len() + end)
}

/// The length of the string that the text begins with.
fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of the character that the text begins with, if it is one and not a lifetime.
fn character(text: &str) -> Option<usize> {
    let body = text.strip_prefix('\'')?;
    let mut chars = body.char_indices();
    let (_, first) = chars.next()?;
    if first == '\\' {
        // The escaped character itself may be a quote.
        chars.next()?;
        return chars.find(|(_, c)| *c == '\'').map(|(at, _)| at + 2);
    }
    chars.next().filter(|(_, c)| *c == '\'').map(|(at, _)| at + 2)
}

#[test]
fn the_keyword_is_found() {
    let source =
        "fn a() {\n    unsafe { b() }\n}\nunsafe impl Send for X {}\n#[unsafe(no_mangle)]\nfn c() {}\n";
    assert_eq!(lines_saying_unsafe(source), [2, 4, 5]);
}

#[test]
fn the_keyword_is_found_after_what_looks_like_a_string() {
    for before in [
        "'\"'",
        "'\\''",
        "'\\\\'",
        "\"\\\"\"",
        "r#\"\"\"#",
        "b'\"'",
        "<'a>",
        "/* /* */ \" */",
        "r\"\\\"",
        "'é'",
    ] {
        assert_eq!(lines_saying_unsafe(&format!("{before};\nunsafe {{}}\n")), [2], "after {before}");
    }
}

#[test]
fn other_uses_of_the_word_pass() {
    for text in [
        "// unsafe",
        "/// unsafe { }",
        "/* unsafe /* unsafe */ unsafe */",
        "#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]",
        "let a = \"unsafe\";",
        "let a = \"\\\" unsafe\";",
        "let a = r#\"\" unsafe\"#;",
        "let a = br\"unsafe\";",
        "let r = 1; let not_unsafe = r;",
    ] {
        assert_eq!(lines_saying_unsafe(text), [0; 0], "{text}");
    }
}

#[test]
fn dependencies_of_every_kind_are_seen() {
    let manifest: Table = "
        [dependencies]
        plain = '1'
        ours = { path = '../ours' }
        shared.workspace = true
        renamed = { package = 'original', version = '1' }
        [dev-dependencies]
        tested = '1'
        [build-dependencies]
        built = '1'
        [target.'cfg(unix)'.dependencies]
        there = '1'
    "
    .parse()
    .expect("TOML");
    let found: Vec<_> = dependencies(&manifest).into_iter().collect();
    assert_eq!(found, ["built", "original", "plain", "tested", "there"]);
}

#[test]
fn rows_may_hold_several_names() {
    let page = "# T\n\n| crate | for |\n|---|---|\n| a, b | x |\n| `c-d` | y |\n";
    assert_eq!(rows(page).into_iter().collect::<Vec<_>>(), ["a", "b", "c-d"]);
}

/// Scripts that no check runs name packages of the workspace, and of that of bench/rv32, which may be renamed.
#[test]
fn scripts_name_packages_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let manifest: Table = manifest.parse().unwrap();
    let members =
        manifest["workspace"]["members"].as_array().unwrap().iter().map(|member| member.as_str().unwrap());
    let packages: BTreeSet<String> = members
        .chain(["bench/rv32/simulator", "bench/rv32/stages"])
        .map(|member| {
            let text = fs::read_to_string(root.join(member).join("Cargo.toml")).unwrap();
            let member: Table = text.parse().unwrap();
            member["package"]["name"].as_str().unwrap().to_owned()
        })
        .collect();
    let mut files: Vec<PathBuf> = ["check", "setup", "Makefile"].map(|file| root.join(file)).into();
    for folder in ["bench", "demo"] {
        files.extend(fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path()));
    }
    let mut named = 0;
    for file in files.into_iter().filter(|file| file.is_file()) {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        // In a shell `--package NAME`, in Python `"--package", "NAME"`.
        for (place, _) in text.match_indices("--package") {
            let rest = text[place + "--package".len()..].trim_start_matches(['"', ',', ' ']);
            let name: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
            assert!(packages.contains(&name), "{}: there is no package `{name}`", file.display());
            named += 1;
        }
    }
    assert!(named > 5, "only {named} found");
}
