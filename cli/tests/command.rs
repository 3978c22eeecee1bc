//! The commands that play nothing: check, explain, import, reasons, completions, and help.

mod run;

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};

use run::{Room, home_office, root, wirerate};

#[test]
fn check_says_whether_a_policy_is_sound() {
    let sound = wirerate(&["check", &home_office()]).exits(0);
    assert!(sound.out.contains("is sound"), "{}", sound.out);
    let room = Room::new("check");
    let wrong = room.write(
        "wrong.toml",
        "[interface.lan]\nzone = \"lan\"\nadresses = [\"192.168.1.1/24\"]\n\n[[rule]]\nname = \"a\"\naction = \"acept\"\n",
    );
    let run = wirerate(&["check", &wrong]).exits(1);
    assert!(run.out.is_empty());
    // Both at once, each with its line, the nearest word and the text.
    for part in ["adresses", "addresses", "acept", "accept", "wrong.toml:3:", "wrong.toml:7:", "has 2 errors"]
    {
        assert!(run.err.contains(part), "no {part} in\n{}", run.err);
    }
    let json = wirerate(&["check", &wrong, "--json"]).exits(1).json();
    assert_eq!((&json["errors"], &json["warnings"]), (&2.into(), &0.into()));
    assert_eq!(json["diagnostics"][0]["line"], 3);
    assert_eq!(json["diagnostics"][1]["line"], 7);
    assert_eq!(json["file"], wrong);
    let json = wirerate(&["check", &home_office(), "--json"]).exits(0).json();
    assert_eq!(json["errors"], 0);
}

#[test]
fn of_very_many_faults_the_first_are_shown_errors_before_warnings() {
    let room = Room::new("faults");
    let office = fs::read_to_string(home_office()).expect("an example");
    // By the routes that address is on the other side: at least a warning each. The error comes last.
    let many: String = (0..120)
        .map(|number| {
            format!(
                "[[rule]]\nname = \"w{number}\"\nfrom = \"lan\"\nto = \"wan\"\ndestination = \"192.168.1.7\"\naction = \"drop\"\n"
            )
        })
        .collect();
    let policy =
        room.write("faults.toml", format!("{office}\n{many}[[rule]]\nname = \"e\"\naction = \"dorp\"\n"));
    let run = wirerate(&["check", &policy]).exits(1);
    assert!(run.err.contains("unknown word \"dorp\""), "{}", run.err);
    assert_eq!(run.err.matches("\n  help: ").count(), 20);
    let json = wirerate(&["check", &policy, "--json"]).exits(1).json();
    let all = json["diagnostics"].as_array().map_or(0, Vec::len);
    assert!(all > 120, "{all}");
    assert!(run.err.contains(&format!("and {} more, not shown", all - 20)), "{}", run.err);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let run = wirerate(&["check", "no/such.toml"]).exits(3);
    assert!(run.err.contains("no/such.toml") && run.err.contains("help:"), "{}", run.err);
    let run = wirerate(&["import", "nft", "no/such.json"]).exits(3);
    assert!(run.err.contains("no/such.json"), "{}", run.err);
}

#[test]
fn a_wrong_command_line_is_told_from_a_wrong_policy() {
    for words in [
        &["check"][..],
        &["replay", &home_office()],
        &["paly"],
        &[],
        &["check", "--jsno", "x"],
        &["import", "ipfw", "x"],
        &["explain", &home_office(), "lan tcp 1.2.3.4:1 to 5.6.7.8:9"],
        &["explain", &home_office(), "dmz tcp 1.2.3.4:1 > 5.6.7.8:9"],
        &["reasons", "bad-mood"],
    ] {
        let run = wirerate(words).exits(2);
        assert!(!run.err.is_empty() && run.out.is_empty(), "{words:?}");
    }
}

#[test]
fn explain_tells_rule_line_and_translation() {
    let policy = home_office();
    let run = wirerate(&["explain", &policy, "lan tcp 192.168.1.10:50000 > 198.51.100.7:443 syn"]).exits(0);
    for part in ["house", "default for \"lan > wan\" is accept", "203.0.113.2", "203.0.113.1", "instructions"]
    {
        assert!(run.out.contains(part), "no {part} in\n{}", run.out);
    }
    assert!(run.out.contains("\nforwarded\n"), "{}", run.out);
    let words = "lan tcp 192.168.1.10:50000 > 198.51.100.7:25 syn";
    let json = wirerate(&["explain", &policy, words, "--json"]).exits(0).json();
    assert_eq!(json["verdict"], "answered");
    assert_eq!(json["reason"]["name"], "rule-reject");
    assert_eq!(json["rule"]["name"], "no-direct-mail");
    let text = fs::read_to_string(&policy).expect("the policy");
    let line = text.lines().position(|line| line == "name = \"no-direct-mail\"").expect("the rule") + 1;
    let told = json["rule"]["line"].as_u64().expect("a line") as usize;
    assert!(told.abs_diff(line) <= 1, "line {told}, and the name is on {line}");
    assert_eq!(json["sent"][0]["interface"], "lan");
    assert_eq!(json["sent"][0]["packet"]["flags"], "ack,rst");
    let stages: Vec<&str> = json["stages"]
        .as_array()
        .expect("stages")
        .iter()
        .filter_map(|stage| stage["stage"].as_str())
        .collect();
    assert_eq!(
        stages,
        [
            "parse",
            "reassemble",
            "terminate",
            "decap",
            "track",
            "replicate",
            "dnat",
            "route",
            "filter",
            "classify",
            "police",
            "mark",
            "snat",
            "rewrite",
            "answer",
            "encap",
            "fragment",
            "queue"
        ]
    );
    assert!(json["stages"][0]["cost"]["instructions"].as_u64().expect("a count") > 0);
}

/// A VLAN is an interface of its own, whoever carries it, as in the files of `replay --out`.
#[test]
fn explain_names_the_vlan_that_a_packet_leaves_by() {
    let packet = "guest tcp 192.168.20.5:1 > 192.168.1.20:22 syn";
    let told = wirerate(&["explain", &home_office(), packet]).exits(0).out;
    assert!(told.contains("Out by guest: "), "{told}");
    // A stage before the last one that took it had nothing to do.
    assert!(told.contains("\nfragment  nothing to do\n"), "{told}");
    let json = wirerate(&["explain", &home_office(), packet, "--json"]).exits(0).json();
    assert_eq!(json["sent"][0]["interface"], "guest");
}

#[test]
fn explain_points_at_the_word_it_does_not_know() {
    let words = "lan tcp 192.168.1.10:50000 > 198.51.100.7:443 sny";
    let run = wirerate(&["explain", &home_office(), words]).exits(2);
    let lines: Vec<&str> = run.err.lines().collect();
    let column = lines.iter().find_map(|line| line.find("^^^")).expect("a mark");
    assert!(lines.iter().any(|line| line.get(column..) == Some("sny")), "{}", run.err);
}

#[test]
fn import_prints_a_policy_and_lists_what_is_missing() {
    let room = Room::new("import-missing");
    let router = fs::read_to_string(root().join("policy/tests/import/router.v4")).unwrap();
    let source = room.write("router.v4", router.replace("--to-ports 3128", "--to-ports 3128-3130"));
    let run = wirerate(&["import", "iptables", &source]).exits(1);
    assert!(run.out.contains("[[rule]]"));
    assert!(run.err.contains("router.v4:10: a destination is translated"), "{}", run.err);
    let source = root().join("policy/tests/import/home.nft.json").display().to_string();
    let run = wirerate(&["import", "nft", &source]).exits(0);
    assert!(run.out.contains("[[rule]]") && run.err.contains("0 not translated"), "{}", run.err);
    let run = wirerate(&["import", "nft", &home_office()]).exits(3);
    assert!(run.out.is_empty() && run.err.contains("home-office.toml"), "{}", run.err);
}

#[test]
fn queues_of_tc_are_read_from_several_files_as_from_one() {
    let room = Room::new("import-tc");
    let tree =
        room.write("tree", "qdisc htb 1: dev eth0 root refcnt 2 r2q 10 default 0x2 direct_packets_stat 0");
    let classes = room.write(
        "classes",
        "class htb 1:1 root rate 10Mbit ceil 10Mbit burst 1600b cburst 1600b\n\
         class htb 1:2 parent 1:1 prio 0 rate 8Mbit ceil 10Mbit burst 1600b cburst 1600b\n\
         class htb 1:3 parent 1:1 prio 0 rate 2Mbit ceil 10Mbit burst 1600b cburst 1600b\n",
    );
    let run = wirerate(&["import", "tc", &tree, &classes]).exits(1);
    assert!(run.out.contains("guarantee = \"8 Mbit/s\""), "{}", run.out);
    assert!(run.err.contains("classes:3: no filter that could be translated leads to it"), "{}", run.err);
    assert!(run.err.contains("3 translated, 0 implied, 1 not translated"), "{}", run.err);
    wirerate(&["import", "nft", &tree, &classes]).exits(2);
}

#[test]
fn the_manual_of_reasons_is_the_one_in_docs() {
    let page = fs::read_to_string(root().join("docs/reasons.md")).expect("docs/reasons.md");
    let printed = wirerate(&["reasons", "--markdown"]).exits(0).out;
    assert!(printed == page, "docs/reasons.md is out of date: wirerate reasons --markdown > docs/reasons.md");
    let json = wirerate(&["reasons", "--json"]).exits(0).json();
    let listed = json.as_array().expect("an array");
    assert_eq!(listed.len(), dataplane::Reason::COUNT);
    assert!(listed.iter().all(|entry| entry["name"].is_string() && entry["remedy"].is_string()));
    assert!(wirerate(&["reasons", "rule-drop"]).exits(0).out.starts_with("rule-drop\n"));
}

#[test]
fn every_command_has_a_manual_with_exit_codes() {
    for command in [
        &["check"][..],
        &["diff"],
        &["replay"],
        &["explain"],
        &["import"],
        &["test"],
        &["estimate"],
        &["bench", "forward"],
        &["bench", "routes"],
        &["bench", "classify"],
        &["generate", "traffic"],
        &["generate", "rules"],
        &["generate", "trace"],
        &["reasons"],
        &["completions"],
        &["manual"],
        &["init"],
    ] {
        let words: Vec<&str> = command.iter().copied().chain(["--help"]).collect();
        let run = wirerate(&words).exits(0);
        for part in ["Examples:", "Exit codes:", "wirerate "] {
            assert!(run.out.contains(part), "{command:?} --help has no {part}");
        }
        let widest = run.out.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        assert!(widest <= 120, "{command:?} --help is {widest} wide");
    }
}

#[test]
fn shells_are_given_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let run = wirerate(&["completions", shell]).exits(0);
        assert!(run.out.contains("replay"), "{shell}");
    }
}

#[test]
fn colours_come_only_when_wanted() {
    assert!(!wirerate(&["reasons"]).out.contains('\x1b'));
    assert!(wirerate(&["reasons", "--color", "always"]).out.contains('\x1b'));
}

#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_wirerate"))
        .args(["reasons", "--markdown"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    drop(child.stdout.take());
    let mut complaint = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut complaint).expect("UTF-8");
    let status = child.wait().expect("an end");
    assert_eq!((status.code(), complaint.as_str()), (Some(0), ""));
}

/// One line by the short option; by the long one, the libraries of ESP too, with the version of each that has one.
#[test]
fn versions_are_told() {
    let short = wirerate(&["-V"]).exits(0);
    assert_eq!(short.out, format!("wirerate {}\n", env!("CARGO_PKG_VERSION")));
    let long = wirerate(&["--version"]).exits(0);
    let libraries = long.out.strip_prefix(&short.out).and_then(|rest| rest.strip_prefix("ESP: "));
    let libraries: Vec<&str> = libraries.expect("a line of ESP's libraries").trim_end().split(", ").collect();
    let lock: toml::Table =
        fs::read_to_string(root().join("Cargo.lock")).expect("a file").parse().expect("TOML");
    let packages = lock["package"].as_array().expect("packages");
    let ring = packages.iter().find(|package| package["name"].as_str() == Some("ring")).expect("ring");
    let version = ring["version"].as_str().expect("a version");
    let told = libraries.iter().find_map(|library| library.strip_prefix("ring ")).expect("ring is told");
    assert!(version.starts_with(&format!("{told}.")), "{told} is not {version}");
    assert!(libraries.contains(&"RustCrypto"), "{}", long.out);
    let told = libraries.iter().position(|library| library.starts_with("ipsec-mb "));
    assert_eq!(told, cfg!(feature = "ipsec-mb").then_some(0), "{}", long.out);
}
