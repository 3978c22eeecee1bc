//! Reports of the exact analyses of rules to people: `wirerate check` and `wirerate diff`.

#![allow(clippy::unwrap_used)]

use serde_json::Value;

use run::{Room, root, wirerate};

mod run;

const HEAD: &str = r#"
[interface.lan]
zone = "lan"
addresses = ["192.168.1.1/24", "2001:db8:1::1/64"]
[interface.dmz]
zone = "lan"
addresses = ["192.168.2.1/24"]
[interface.wan]
zone = "wan"
addresses = ["203.0.113.2/24", "2001:db8:2::2/64"]
[[route]]
to = "0.0.0.0/0"
via = "203.0.113.1"
"#;

/// The lines of the findings of a code, and the lines of what they point at.
fn found(json: &Value, code: &str) -> Vec<(u64, Vec<u64>)> {
    let all = json["diagnostics"].as_array().unwrap().iter().filter(|one| one["code"] == code);
    all.map(|one| {
        let related = one["related"].as_array().unwrap().iter().map(|one| one["line"].as_u64().unwrap());
        (one["line"].as_u64().unwrap(), related.collect())
    })
    .collect()
}

fn line_of(text: &str, name: &str) -> u64 {
    let wanted = format!("name = \"{name}\"");
    text.lines().position(|line| line == wanted).unwrap() as u64 + 1
}

#[test]
fn check_finds_what_several_rules_hide_together() {
    let room = Room::new("hidden");
    let text = format!(
        "{HEAD}{}",
        r#"
[[rule]]
name = "low"
protocol = "tcp"
dport = "1-1000"
action = "accept"
[[rule]]
name = "aside"
protocol = "udp"
dport = "1-1000"
action = "accept"
[[rule]]
name = "high"
protocol = "tcp"
dport = "1001-5000"
action = "accept"
[[rule]]
name = "hidden"
from = "lan"
protocol = "tcp"
dport = "900-1100"
action = "drop"
[[rule]]
name = "hidden-by-zone"
in = "dmz"
protocol = "udp"
dport = 7
action = "accept"
[[rule]]
name = "not-hidden"
from = "lan"
protocol = "tcp"
dport = "900-5001"
action = "reject"
"#
    );
    let policy = room.write("p.toml", &text);
    let json = wirerate(&["check", &policy, "--json"]).exits(0).json();
    let at = |name| line_of(&text, name);
    assert_eq!(
        found(&json, "shadowed-rule"),
        [(at("hidden"), vec![at("low"), at("high")]), (at("hidden-by-zone"), vec![at("aside")])]
    );
    assert_eq!((&json["open"], &json["errors"]), (&0.into(), &0.into()));
    let told = wirerate(&["check", &policy]).exits(0);
    for part in ["\"low\" (line", "\"high\" (line", "together match all that it does", "such a packet is"] {
        assert!(told.err.contains(part), "no {part} in {}", told.err);
    }
}

#[test]
fn check_finds_classes_that_no_packet_is_of_and_their_queues() {
    let room = Room::new("classes");
    let text = format!(
        "{HEAD}{}",
        r#"
[[class]]
name = "tcp"
protocol = "tcp"
mark = "af11"
[[class]]
name = "high"
protocol = "udp"
pcp = [4, 5, 6, 7]
mark = "ef"
[[class]]
name = "low"
protocol = "udp"
pcp = [0, 1, 2, 3]
dei = false
mark = "cs1"
[[class]]
name = "by-two"
from = "lan"
protocol = ["tcp", "udp"]
dport = 53
pcp = [3, 4]
dei = false
mark = "cs2"
[[class]]
name = "eligible"
protocol = "udp"
dport = 53
mark = "cs3"
[[class]]
name = "by-one"
protocol = "udp"
dport = 54
pcp = 7
[[class]]
name = "everybody"
from = ["lan", "wan"]
mark = "cs4"
# The gateway itself comes from neither.
[[class]]
name = "own"
mark = "cs5"
[[class]]
name = "own-and-others"
pcp = 3
[[class]]
name = "impossible"
in = "lan"
from = "wan"
mark = "cs6"
[[queue]]
name = "root"
on = "wan"
[[queue]]
name = "of-none"
in = "root"
class = ["by-one", "by-two"]
[[queue]]
name = "of-some"
in = "root"
class = ["high", "impossible"]
[[queue]]
name = "rest"
in = "root"
"#
    );
    let policy = room.write("p.toml", &text);
    let json = wirerate(&["check", &policy, "--json"]).exits(0).json();
    let at = |name| line_of(&text, name);
    assert_eq!(
        found(&json, "empty-class"),
        [
            (at("by-two"), vec![at("tcp"), at("high"), at("low")]),
            (at("by-one"), vec![at("high")]),
            (at("own-and-others"), vec![at("own")]),
            (at("impossible"), vec![]),
        ]
    );
    assert_eq!(found(&json, "empty-queue"), [(at("of-none"), vec![])]);
    assert_eq!(found(&json, "class-without-use"), [(at("own-and-others"), vec![])]);
    assert_eq!((&json["open"], &json["errors"]), (&0.into(), &0.into()));
}

#[test]
fn check_finds_what_can_be_left_out_and_what_is_in_conflict() {
    let room = Room::new("redundant");
    let text = format!(
        "{HEAD}{}",
        r#"
[[rule]]
name = "web"
from = "lan"
to = "wan"
protocol = "tcp"
dport = 443
action = "accept"
[[rule]]
name = "no-host"
from = "lan"
source = "192.168.1.66"
to = "wan"
action = "reject"
[[rule]]
name = "all-web"
from = "lan"
to = "wan"
protocol = "tcp"
dport = [80, 443]
action = "accept"
[[rule]]
name = "as-by-default"
from = "wan"
protocol = "tcp"
dport = 22
action = "drop"
[[rule]]
name = "counted"
from = "lan"
to = "wan"
protocol = "udp"
dport = 53
rate = "10/second"
action = "accept"
"#
    );
    let policy = room.write("p.toml", &text);
    let at = |name| line_of(&text, name);
    let json = wirerate(&["check", &policy, "--json"]).exits(0).json();
    // "web" lets the web of 192.168.1.66 through, which "all-web" would not.
    assert_eq!(found(&json, "redundant-rule"), [(at("as-by-default"), vec![])]);
    assert_eq!(found(&json, "overlapping-rules"), []);
    assert_eq!((&json["warnings"], &json["notes"]), (&1.into(), &0.into()));
    let json = wirerate(&["check", &policy, "--json", "--overlaps"]).exits(0).json();
    assert_eq!(
        found(&json, "overlapping-rules"),
        [
            (at("no-host"), vec![at("web")]),
            (at("all-web"), vec![at("no-host")]),
            (at("counted"), vec![at("no-host")])
        ]
    );
    assert_eq!(json["notes"], 3);
}

/// Returns the decider on a packet by `explain`: the rule, or none.
fn explained(policy: &str, packet: &str) -> Value {
    let json = wirerate(&["explain", policy, packet, "--json"]).exits(0).json();
    let filtered = json["stages"]
        .as_array()
        .unwrap()
        .iter()
        .any(|stage| stage["stage"] == "filter" && stage["took"] == true);
    assert!(filtered, "{packet} does not come before the rules of {policy}");
    json["rule"]["name"].clone()
}

#[test]
fn diff_names_regions_and_explain_agrees() {
    let room = Room::new("diff");
    let rules = |text: &str| format!("{HEAD}[default]\n\"lan > wan\" = \"accept\"\n{text}");
    let old = room.write(
        "old.toml",
        rules(
            r#"
[[rule]]
name = "no-mail"
from = "lan"
to = "wan"
protocol = "tcp"
dport = 25
action = "reject"
[[rule]]
name = "ssh"
from = "wan"
to = "self"
protocol = "tcp"
dport = 22
action = "accept"
[[rule]]
name = "ping"
protocol = "icmp"
icmp = "echo-request"
action = "accept"
"#,
        ),
    );
    let new = room.write(
        "new.toml",
        rules(
            r#"
[[rule]]
name = "no-mail"
from = "lan"
to = "wan"
protocol = "tcp"
dport = [25, 465]
action = "reject"
[[rule]]
name = "ping"
protocol = "icmp"
icmp = "echo-request"
action = "accept"
[[rule]]
name = "ssh"
from = "wan"
to = "self"
source = "198.51.100.0/24"
protocol = "tcp"
dport = 22
log = true
action = "accept"
[limit]
flows = 100
"#,
        ),
    );
    let json = wirerate(&["diff", &old, &new, "--json"]).exits(1).json();
    assert_eq!((&json["outcome"], &json["complete"]), (&"different".into(), &true.into()));
    assert_eq!(json["interfaces"], serde_json::json!(["lan", "dmz", "wan"]));
    assert_eq!(json["not_compared"], serde_json::json!(["limits (change)"]));
    let regions = json["regions"].as_array().unwrap();
    let told: Vec<(Value, Value, Value)> = regions
        .iter()
        .map(|one| (one["packets"].clone(), one["old"]["rule"].clone(), one["new"]["rule"].clone()))
        .collect();
    let ssh = |more: Value| {
        let mut packets = serde_json::json!({ "from": ["wan"], "to": ["self"] });
        packets.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        packets
    };
    assert_eq!(
        told,
        [
            (
                ssh(
                    serde_json::json!({ "protocol": ["tcp"], "source": ["198.51.100.0/24"], "dport": ["22"] })
                ),
                "ssh".into(),
                "ssh".into()
            ),
            (
                ssh(serde_json::json!({
                    "protocol": ["tcp"],
                    "source": ["0.0.0.0-198.51.99.255", "198.51.101.0-255.255.255.255"],
                    "dport": ["22"],
                })),
                "ssh".into(),
                Value::Null
            ),
            (
                ssh(serde_json::json!({ "family": ["ipv6"], "protocol": ["tcp"], "dport": ["22"] })),
                "ssh".into(),
                Value::Null
            ),
            (
                serde_json::json!({ "from": ["lan"], "to": ["wan"], "protocol": ["tcp"], "dport": ["465"] }),
                Value::Null,
                "no-mail".into()
            ),
        ]
    );
    for region in regions {
        assert_eq!(region["tried"], true, "{region}");
        let example = region["example"].as_str().unwrap();
        assert_eq!(explained(&old, example), region["old"]["rule"], "{example}");
        assert_eq!(explained(&new, example), region["new"]["rule"], "{example}");
    }
    let text = wirerate(&["diff", &old, &new, "--regions", "1"]).exits(1).out;
    for part in
        ["4 regions of packets change their fate", "1. from wan; to self;", "and 3 more", "Not compared"]
    {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
}

#[test]
fn diff_proves_that_nothing_changes() {
    let home = root().join("policies/home-office.toml").display().to_string();
    let run = wirerate(&["diff", &home, &home]).exits(0);
    assert!(run.out.contains("no packet changes its fate"), "{}", run.out);

    // Rules that do not overlap may change places, one may be two, and a set may be written out.
    let room = Room::new("same");
    let one = room.write(
        "one.toml",
        format!(
            "{HEAD}{}",
            r#"
[set]
hosts = ["192.168.1.0-192.168.1.255"]
[[rule]]
name = "a"
from = "lan"
source = "@hosts"
protocol = "tcp"
dport = "1-100"
action = "accept"
[[rule]]
name = "b"
from = "wan"
protocol = "udp"
dport = 53
action = "accept"
"#
        ),
    );
    let other = room.write(
        "other.toml",
        format!(
            "{HEAD}{}",
            r#"
[[rule]]
name = "b"
from = "wan"
protocol = "udp"
dport = 53
action = "accept"
[[rule]]
name = "a-low"
from = "lan"
source = "192.168.1.0/24"
protocol = "tcp"
dport = "1-60"
action = "accept"
[[rule]]
name = "a-high"
from = "lan"
source = "192.168.1.0/24"
protocol = "tcp"
dport = "50-100"
action = "accept"
"#
        ),
    );
    let json = wirerate(&["diff", &one, &other, "--json"]).exits(0).json();
    assert_eq!((&json["outcome"], &json["found"]), (&"same".into(), &0.into()));
}

#[test]
fn diff_of_what_is_not_there_or_wrong_says_so() {
    let room = Room::new("diff-wrong");
    let home = root().join("policies/home-office.toml").display().to_string();
    wirerate(&["diff", &home, "no/such.toml"]).exits(3);
    let wrong = room.write("wrong.toml", "[[rule]]\nname = \"a\"\naction = \"dorp\"\n");
    wirerate(&["diff", &wrong, &home]).exits(1);
    wirerate(&["diff", &home]).exits(2);
    let elsewhere =
        room.write("elsewhere.toml", "[interface.x]\nzone = \"x\"\naddresses = [\"192.0.2.1/24\"]\n");
    let run = wirerate(&["diff", &home, &elsewhere]).exits(1);
    assert!(run.out.contains("no interface in common"), "{}", run.out);
}

#[test]
fn diff_shows_packets_that_change_their_class() {
    let room = Room::new("diff-classes");
    let voice = "[[class]]\nname = \"voice\"\nprotocol = \"udp\"\ndport = 5060\nmark = \"ef\"\n";
    let rest = "[[class]]\nname = \"rest\"\nfrom = \"lan\"\nmark = \"cs1\"\n";
    let old = room.write("old.toml", format!("{HEAD}{voice}{rest}"));
    let moved = voice.replace("5060", "5061");
    let new = room.write("new.toml", format!("{HEAD}{moved}{rest}"));
    let json = wirerate(&["diff", &old, &new, "--json"]).exits(0).json();
    let classes = &json["classes"];
    assert_eq!((&json["outcome"], &classes["complete"]), (&"same".into(), &true.into()));
    let mut told: Vec<(String, String, String)> = classes["regions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["packets"]["dport"].to_string(), one["old"].to_string(), one["new"].to_string()))
        .collect();
    told.sort();
    told.dedup();
    let told: Vec<(&str, &str, &str)> =
        told.iter().map(|(a, b, c)| (a.as_str(), b.as_str(), c.as_str())).collect();
    assert_eq!(
        told,
        [
            (r#"["5060"]"#, r#""voice""#, r#""rest""#),
            (r#"["5060"]"#, r#""voice""#, "null"),
            (r#"["5061"]"#, r#""rest""#, r#""voice""#),
            (r#"["5061"]"#, "null", r#""voice""#),
        ]
    );
    let told = wirerate(&["diff", &old, &new]).exits(0);
    assert!(told.out.contains("change their traffic class"), "{}", told.out);

    // A priority alone; the same classes in another order that no packet notices.
    let tagged = rest.replace("from", "pcp = 5\nfrom");
    let with = room.write("with.toml", format!("{HEAD}{voice}{tagged}"));
    let json = wirerate(&["diff", &old, &with, "--json"]).exits(0).json();
    let regions = json["classes"]["regions"].as_array().unwrap();
    assert!(!regions.is_empty());
    for one in regions {
        assert_eq!((&one["old"], &one["new"]), (&"rest".into(), &Value::Null));
        assert_eq!(one["pcp"], serde_json::json!(["0", "1", "2", "3", "4", "6", "7"]));
    }
    let mail = "[[class]]\nname = \"mail\"\nprotocol = \"tcp\"\ndport = 25\nmark = \"cs1\"\n";
    let one = room.write("one.toml", format!("{HEAD}{voice}{mail}"));
    let other = room.write("other.toml", format!("{HEAD}{mail}{voice}"));
    let json = wirerate(&["diff", &one, &other, "--json"]).exits(0).json();
    assert_eq!((&json["classes"]["found"], &json["classes"]["complete"]), (&0.into(), &true.into()));
}
