//! The Debian package: its contents, its bytes, and what it does when it is installed, upgraded, downgraded and removed, below a
//! directory. The command in it is the one of these tests, so nothing is compiled.
#![allow(clippy::unwrap_used)]

mod run;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use run::{Room, root};
use serde_json::Value;

/// A moment to be the time of every file.
const EPOCH: &str = "1700000000";

/// True if a tool is not there: the test says so, and ends. In CI they all are.
fn lacks(tools: &[&str]) -> bool {
    let lacking: Vec<&&str> = tools
        .iter()
        .filter(|tool| !shell(&format!("command -v {tool}"), Path::new("/")).status.success())
        .collect();
    if !lacking.is_empty() {
        assert!(std::env::var_os("CI").is_none(), "not installed: {lacking:?} (./setup test)");
        eprintln!("SKIPPED: not installed: {lacking:?} (./setup test)");
    }
    !lacking.is_empty()
}

fn shell(command: &str, directory: &Path) -> Output {
    Command::new("bash")
        .args(["-c", command])
        .current_dir(directory)
        .env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap()))
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[track_caller]
fn succeeds(command: &str, directory: &Path) -> String {
    let output = shell(command, directory);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}\n{said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Builds the package with the command of these tests.
fn package(room: &Room, name: &str, revision: u32, compression: &str) -> PathBuf {
    let output = Command::new(root().join("packaging/package"))
        .args(["--binary", env!("CARGO_BIN_EXE_wirerate"), "--compression", compression])
        .args(["--revision", &revision.to_string(), "--out", &room.path(name)])
        .env("CARGO_TARGET_DIR", room.path(&format!("{name}-target")))
        .env("SOURCE_DATE_EPOCH", EPOCH)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().into()
}

#[test]
fn the_package_has_what_it_should() {
    if lacks(&["dh", "python3"]) {
        return;
    }
    let room = Room::new("package-contents");
    let package = package(&room, "one", 1, "gzip");
    let file = package.display();
    let list = succeeds(&format!("dpkg-deb -c {file}"), &room.0);
    for line in list.lines() {
        let mode = line.split_whitespace().next().unwrap();
        let programs = ["./usr/bin/wirerate", "./usr/share/wirerate/crowdsec/wirerate-bouncer"];
        let is_program = programs.iter().any(|program| line.ends_with(program));
        let expected = match mode.as_bytes()[0] {
            b'd' => "drwxr-xr-x",
            _ if is_program => "-rwxr-xr-x",
            _ => "-rw-r--r--",
        };
        assert!(mode == expected && line.contains(" root/root "), "{line}");
    }
    let control = succeeds(&format!("dpkg-deb -I {file} && dpkg-deb -I {file} conffiles"), &room.0);
    assert!(control.contains(&format!("Version: {}-1\n", env!("CARGO_PKG_VERSION"))), "{control}");
    assert!(
        control.contains("libc6 (>= ") && control.ends_with("\n/etc/wirerate/policy.toml\n"),
        "{control}"
    );

    let tree = room.0.join("tree");
    succeeds(&format!("dpkg-deb -x {file} tree"), &room.0);
    for path in [
        "etc/wirerate/policy.toml",
        "usr/bin/wirerate",
        "usr/lib/systemd/system/wirerate.service",
        "usr/lib/systemd/system/wirerate.slice",
        "usr/share/bash-completion/completions/wirerate",
        "usr/share/zsh/vendor-completions/_wirerate",
        "usr/share/fish/vendor_completions.d/wirerate.fish",
        "usr/share/doc/wirerate/changelog.gz",
        "usr/share/wirerate/monitoring/wirerate.rules.yml",
        "usr/share/wirerate/crowdsec/wirerate-bouncer.yaml",
        "etc/fail2ban/action.d/wirerate.conf",
        "usr/share/doc/wirerate/copyright",
        "usr/share/doc/wirerate/docs/policy.md",
        "usr/share/doc/wirerate/examples/policies/home-office.toml",
        "usr/share/man/man1/wirerate-check.1.gz",
    ] {
        assert!(tree.join(path).is_file(), "{path}");
    }
    let told = succeeds("usr/bin/wirerate -V && usr/bin/wirerate check etc/wirerate/policy.toml", &tree);
    assert!(told.starts_with("wirerate ") && told.contains("is sound"), "{told}");
    // One unit, and only the path of the command is another.
    let unit = fs::read_to_string(tree.join("usr/lib/systemd/system/wirerate.service")).unwrap();
    assert!(unit.contains("\nExecStart=/usr/bin/wirerate run /etc/wirerate/policy.toml\n"));
    let ours = fs::read_to_string(root().join("packaging/wirerate.service")).unwrap();
    assert_eq!(unit, ours.replace("/usr/local/bin", "/usr/bin"));

    bill(&tree);
    pages(&tree);
    completions(&tree);
    if !lacks(&["lintian"]) {
        let told = shell(&format!("lintian --allow-root --fail-on error,warning {file}"), &room.0);
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stdout));
    }
}

/// The bill of materials has what Cargo.lock has, by another reader.
fn bill(tree: &Path) {
    let text = fs::read_to_string(tree.join("usr/share/doc/wirerate/wirerate.cdx.json")).unwrap();
    let bill: Value = serde_json::from_str(&text).unwrap();
    let lock: toml::Table = fs::read_to_string(root().join("Cargo.lock")).unwrap().parse().unwrap();
    let locked: BTreeSet<(&str, &str)> = lock["package"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| (package["name"].as_str().unwrap(), package["version"].as_str().unwrap()))
        .collect();
    let listed: BTreeSet<(&str, &str)> = bill["components"]
        .as_array()
        .unwrap()
        .iter()
        .inspect(|entry| assert!(entry["licenses"][0]["expression"].is_string(), "{entry}"))
        .map(|entry| (entry["name"].as_str().unwrap(), entry["version"].as_str().unwrap()))
        .collect();
    assert!(listed.is_subset(&locked));
    let names: BTreeSet<&str> = listed.iter().map(|(name, _)| *name).collect();
    for linked in ["clap", "ring", "toml", "wirerate-dataplane"] {
        assert!(names.contains(linked), "{linked}");
    }
    for absent in ["proptest", "clap_derive", "windows-sys"] {
        assert!(!names.contains(absent), "{absent}");
    }
}

/// Each command has a page, which groff sets without a warning.
fn pages(tree: &Path) {
    let directory = tree.join("usr/share/man/man1");
    let pages: BTreeSet<String> = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    for command in ["", "-check", "-run", "-policy-save", "-bench-forward"] {
        assert!(pages.contains(&format!("wirerate{command}.1.gz")), "{command}");
    }
    if lacks(&["man"]) {
        return;
    }
    let said = succeeds(
        "for page in *; do MANWIDTH=100 man --warnings=w -E UTF-8 -l \"$page\" 2>&1 >text || exit 1; test -s text || echo \"$page: empty\"; done; rm text",
        &directory,
    );
    assert_eq!(said, "");
    // Headings of examples keep lines of their own.
    let page = succeeds("MANWIDTH=100 man -l wirerate-init.1.gz", &directory);
    assert!(page.lines().any(|line| line.trim() == "Without questions:"), "{page}");
}

/// Bash completes a command and an option.
fn completions(tree: &Path) {
    let script = "usr/share/bash-completion/completions/wirerate";
    let complete = |words: &str, last: usize| {
        succeeds(
            &format!(
                "set -e; source {script}; complete -p wirerate >/dev/null; COMP_WORDS=({words}); COMP_CWORD={last}; \
                 _wirerate wirerate \"${{COMP_WORDS[{last}]}}\" \"${{COMP_WORDS[{}]}}\"; echo \"${{COMPREPLY[@]}}\"",
                last - 1
            ),
            tree,
        )
    };
    assert_eq!(complete("wirerate che", 1), "check\n");
    assert_eq!(complete("wirerate check --over", 2), "--overlaps\n");
}

#[test]
fn the_same_gives_the_same_bytes() {
    if lacks(&["dh", "python3"]) {
        return;
    }
    let room = Room::new("package-bytes");
    let (one, other) = (package(&room, "one", 1, "none"), package(&room, "other", 1, "none"));
    assert_ne!(one, other);
    assert!(fs::read(one).unwrap() == fs::read(other).unwrap());
}

#[test]
fn it_is_installed_upgraded_and_removed() {
    if lacks(&["dh", "python3", "dpkg"]) {
        return;
    }
    if succeeds("id -u", Path::new("/")).trim() != "0" {
        eprintln!("SKIPPED: only root may install");
        return;
    }
    let room = Room::new("package-installed");
    let (old, new) = (package(&room, "out", 1, "none"), package(&room, "out", 2, "none"));
    fs::create_dir_all(room.0.join("root/var/lib/dpkg/updates")).unwrap();
    fs::create_dir_all(room.0.join("root/var/lib/dpkg/info")).unwrap();
    for name in ["status", "available"] {
        room.write(&format!("root/var/lib/dpkg/{name}"), "");
    }
    // Its scripts know by DPKG_ROOT that this is not the machine that runs.
    let dpkg = |before: &str, words: &str| {
        let options = "--force-script-chrootless --force-depends --log=/dev/null";
        shell(&format!("{before} dpkg --root={}/root {options} {words} 2>&1", room.0.display()), &room.0)
    };
    let done = |output: &Output| {
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}");
        said
    };
    let policy = room.0.join("root/etc/wirerate/policy.toml");

    let said = done(&dpkg("", &format!("--install {}", old.display())));
    assert!(said.contains("not started") && said.contains("wirerate init"), "{said}");
    assert!(!room.0.join("root/etc/systemd/system/multi-user.target.wants/wirerate.service").exists());
    assert_eq!(fs::metadata(&policy).unwrap().permissions().mode() & 0o777, 0o644);

    // What the operator wrote stays over an upgrade.
    let mine = "# mine\n[interface.eth0]\nzone = \"wan\"\n";
    fs::write(&policy, mine).unwrap();
    let said = done(&dpkg("", &format!("--install {}", new.display())));
    assert!(!said.contains("not started"), "{said}");
    assert_eq!(fs::read_to_string(&policy).unwrap(), mine);

    let refused = dpkg("", &format!("--install {}", old.display()));
    let said = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert!(!refused.status.success() && said.contains("Nothing has been changed"), "{said}");
    let status = done(&dpkg("", "--status wirerate"));
    assert!(status.contains("Status: install ok installed") && status.contains("-2\n"), "{status}");
    done(&dpkg("WIRERATE_DOWNGRADE=yes", &format!("--install {}", old.display())));
    assert_eq!(fs::read_to_string(&policy).unwrap(), mine);

    done(&dpkg("", "--remove wirerate"));
    assert!(policy.exists() && !room.0.join("root/usr/bin/wirerate").exists());
    let state = room.0.join("root/var/lib/private/wirerate");
    fs::create_dir_all(&state).unwrap();
    let users = policy.with_file_name("page.tokens");
    fs::write(&users, "").unwrap();
    done(&dpkg("", "--purge wirerate"));
    assert!(!policy.exists() && !state.exists() && !users.exists());
}

/// A gateway that runs is restarted by an upgrade, but not into a version that finds its policy wrong.
#[test]
fn an_upgrade_restarts_a_gateway_whose_policy_is_sound() {
    let room = Room::new("package-upgrade");
    let script = fs::read_to_string(root().join("packaging/debian/wirerate.postinst")).unwrap();
    let running = room.0.join("systemd");
    fs::create_dir_all(&running).unwrap();
    let script = script
        .replace("/run/systemd/system", &running.display().to_string())
        .replace("/etc/wirerate/policy.toml", &room.path("policy.toml"));
    room.write("postinst", script);
    fs::create_dir_all(room.0.join("bin")).unwrap();
    for (name, text) in [
        ("systemctl", "[ \"$1\" != is-active ] || [ -e active ]"),
        ("deb-systemd-invoke", "echo \"$@\" >> asked"),
    ] {
        let path = room.0.join("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_wirerate"), room.0.join("bin/wirerate")).unwrap();
    let configured = |before: &str| {
        let _ = fs::remove_file(room.0.join("asked"));
        let command = format!("env -u DPKG_ROOT PATH=\"$PWD/bin:$PATH\" sh postinst configure {before} 2>&1");
        let said = succeeds(&command, &room.0);
        (said, fs::read_to_string(room.0.join("asked")).unwrap_or_default())
    };
    room.write("policy.toml", "[interface.eth0]\nzone = \"wan\"\n");
    // None runs: none is started.
    assert_eq!(configured("0.1.0-1").1, "");
    room.write("active", "");
    assert_eq!(configured("0.1.0-1"), (String::new(), "try-restart wirerate.service\n".to_owned()));
    room.write("policy.toml", "[interface.eth0]\nzome = \"wan\"\n");
    let (said, asked) = configured("0.1.0-1");
    assert!(said.contains("zome") && said.contains("the process of the old version goes on"), "{said}");
    assert_eq!(asked, "");
}

/// The recipe of the image has instructions that there are, and takes what is packaged.
#[test]
fn the_recipe_of_the_image_can_be_read() {
    let text = fs::read_to_string(root().join("packaging/Containerfile")).unwrap();
    let mut instructions: Vec<String> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match instructions.last_mut() {
            Some(last) if last.ends_with('\\') => {
                last.pop();
                last.push_str(line.trim());
            }
            _ => instructions.push(line.to_owned()),
        }
    }
    let words: Vec<&str> = instructions.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(words, ["FROM", "COPY", "RUN", "VOLUME", "ENTRYPOINT", "CMD"]);
    let of = |word: &str| {
        let at = words.iter().position(|other| *other == word).unwrap();
        instructions[at].split_once(' ').unwrap().1
    };
    let entry: Vec<String> = serde_json::from_str(of("ENTRYPOINT")).unwrap();
    let command: Vec<String> = serde_json::from_str(of("CMD")).unwrap();
    let lists = ["wirerate usr/bin\n", "policy.toml etc/wirerate\n"];
    let installed = fs::read_to_string(root().join("packaging/debian/wirerate.install")).unwrap();
    assert!(lists.iter().all(|line| installed.contains(line)));
    assert_eq!(
        (&entry[..], &command[..]),
        (&["/usr/bin/wirerate".to_owned()][..], &["run", "/etc/wirerate/policy.toml"].map(str::to_owned)[..])
    );
    succeeds(&format!("bash -n <<'TEXT'\n{}\nTEXT", of("RUN")), Path::new("/"));
    assert_eq!(of("COPY"), "wirerate_*.deb /tmp/");
}
