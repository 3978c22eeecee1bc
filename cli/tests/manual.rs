//! Examples of the manual do what they say when they are pasted, in the project's directory: all of those that need no
//! network, no privileges and no minutes.
#![allow(clippy::unwrap_used)]

mod run;

use std::path::Path;
use std::process::Command;

use run::{Room, root, wirerate};
use wire::aal5::Segmentation;
use wire::esp::{Mode, Suite, Udp};
use wire::ethernet::{EtherType, Mac};
use wire::rfc2684::{Encapsulation, Head};
use wire::{Family, LinkKind, build};

/// Lines longer than this are broken on a terminal of the usual width, and a command with them.
const WIDTH: usize = 80;

/// Commands with examples of their own, each pasted by a test below or among [`NOT_PASTED`].
const COMMANDS: [&[&str]; 64] = [
    &[],
    &["check"],
    &["run"],
    &["top"],
    &["status"],
    &["flows", "kill"],
    &["ports"],
    &["rules"],
    &["nat"],
    &["classes"],
    &["queues"],
    &["drops"],
    &["sa", "add"],
    &["sa", "delete"],
    &["sa", "flush"],
    &["set", "show"],
    &["set", "add"],
    &["set", "remove"],
    &["set", "flush"],
    &["set", "faults"],
    &["map", "add"],
    &["map", "remove"],
    &["apply"],
    &["confirm"],
    &["rollback"],
    &["policy", "show"],
    &["policy", "history"],
    &["policy", "save"],
    &["release"],
    &["token", "add"],
    &["token", "list"],
    &["token", "remove"],
    &["capture"],
    &["save"],
    &["load"],
    &["replay"],
    &["explain"],
    &["import"],
    &["generate", "traffic"],
    &["generate", "rules"],
    &["generate", "trace"],
    &["test"],
    &["chip", "run"],
    &["chip", "cipher"],
    &["chip", "search"],
    &["chip", "sweep"],
    &["chip", "optimise"],
    &["chip", "trace"],
    &["chip", "list"],
    &["reproduce"],
    &["estimate"],
    &["bench", "forward"],
    &["bench", "routes"],
    &["bench", "schedule"],
    &["bench", "pace"],
    &["bench", "workers"],
    &["bench", "esp"],
    &["bench", "classify"],
    &["reasons"],
    &["stages"],
    &["completions"],
    &["manual"],
    &["init"],
    &["diff"],
];

/// Reason for not pasting questions to a running gateway.
const LIVE: &str = "it needs a gateway that runs: tests/netns asks those";

/// Beginnings of examples that are not pasted, each with the reason.
const NOT_PASTED: [(&str, &str); 49] = [
    ("wirerate run ", "it needs root, and interfaces of its own"),
    ("wirerate init", "it asks questions"),
    ("wirerate init ", "it is about the machine that it runs on: tests/netns has machines for it"),
    ("wirerate top", LIVE),
    ("wirerate top ", LIVE),
    ("wirerate status", LIVE),
    ("wirerate status ", LIVE),
    ("wirerate flows", LIVE),
    ("wirerate flows ", LIVE),
    ("wirerate ports", LIVE),
    ("wirerate ports ", LIVE),
    ("wirerate rules", LIVE),
    ("wirerate rules ", LIVE),
    ("wirerate nat", LIVE),
    ("wirerate nat ", LIVE),
    ("wirerate classes", LIVE),
    ("wirerate classes ", LIVE),
    ("wirerate queues", LIVE),
    ("wirerate queues ", LIVE),
    ("wirerate drops", LIVE),
    ("wirerate drops ", LIVE),
    ("wirerate sa", LIVE),
    ("wirerate sa ", LIVE),
    ("wirerate set", LIVE),
    ("wirerate set ", LIVE),
    ("wirerate map", LIVE),
    ("wirerate map ", LIVE),
    ("wirerate apply", LIVE),
    ("wirerate apply ", LIVE),
    ("wirerate confirm", LIVE),
    ("wirerate rollback", LIVE),
    ("wirerate policy ", LIVE),
    ("wirerate release", LIVE),
    ("wirerate release ", LIVE),
    ("wirerate token ", "it keeps the users of this machine's gateway, in /etc"),
    ("wirerate explain --live ", LIVE),
    ("wirerate capture ", LIVE),
    ("wirerate save ", LIVE),
    ("wirerate load ", LIVE),
    ("nft ", "it needs root and a rule set"),
    ("iptables-save ", "it needs root and a rule set"),
    ("ip6tables-save ", "it needs root and a rule set"),
    ("tc ", "it needs root and queues"),
    ("wirerate test tests/cases", "all cases are played by a test of their own"),
    ("wirerate bench ", "it measures for a minute, and nothing here may hang on speed"),
    ("wirerate estimate --measure ", "it measures, and nothing here may hang on speed"),
    ("wirerate chip optimise ", "it needs the Python package: python/tests pastes them"),
    ("wirerate reproduce --html ", "all claims take minutes; `./check fidelity` asks for them"),
    ("wirerate reproduce", "the same"),
];

/// Commands that examples call beside wirerate, and pipe into.
const TOOLS: [&str; 3] = ["jq", "tshark", "mkdir"];

/// The commands among the examples of `wirerate WORDS --help`, those that go on in the next line in one piece.
fn examples(words: &[&str]) -> Vec<String> {
    let help = wirerate(&[words, &["--help"]].concat()).exits(0).out;
    let examples = help.split("\nExamples:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let mut commands: Vec<String> = Vec::new();
    for line in examples.lines() {
        assert!(line.chars().count() <= WIDTH, "too wide to be pasted: {line}");
        match commands.last_mut() {
            Some(last) if last.ends_with('\\') => {
                last.push('\n');
                last.push_str(line.trim_start());
            }
            // A heading.
            _ if !line.starts_with(' ') => {
                assert!(line.ends_with(':'), "neither a command nor a heading: {line}")
            }
            _ => commands.push(line.trim_start().to_owned()),
        }
    }
    assert!(commands.iter().any(|command| command.starts_with("wirerate ")), "{commands:?}");
    commands
}

/// Returns the reason for not pasting an example, if there is one.
fn is_not_pasted(command: &str) -> Option<&'static str> {
    let row = NOT_PASTED.iter().find(|(begin, _)| match begin.ends_with(' ') {
        true => command.starts_with(begin),
        false => command == *begin,
    });
    row.map(|(_, why)| *why)
}

/// Pastes the examples of these commands, in a directory that has what the project's has for them.
fn pasted(words: &[&str]) {
    assert!(COMMANDS.contains(&words), "{words:?}");
    let room = Room::new(&format!("manual-{}", words.join("-")));
    for name in ["policies", "policy", "tests"] {
        std::os::unix::fs::symlink(root().join(name), room.0.join(name)).unwrap();
    }
    std::fs::create_dir(room.0.join("docs")).unwrap();
    rule_sets(&room);
    for command in examples(words).iter().filter(|command| is_not_pasted(command).is_none()) {
        paste(&room, command);
    }
}

/// Writes rule sets as other firewalls and ClassBench would.
fn rule_sets(room: &Room) {
    let nft = std::fs::read(root().join("policy/tests/import/home.nft.json")).unwrap();
    room.write("rules.json", nft);
    for name in ["rules.v4", "rules.v6"] {
        let rule = "-A FORWARD -i lan -o wan -p tcp -m tcp --dport 443 -j ACCEPT";
        room.write(name, format!("*filter\n:FORWARD DROP [0:0]\n{rule}\nCOMMIT\n"));
    }
    let queues = std::fs::read(root().join("policy/tests/import/tc/htb.stats.txt")).unwrap();
    room.write("queues.tc", queues);
    room.write("points.toml", points());
    room.write("acl1.rules", "@192.168.0.0/24\t10.0.0.0/8\t0 : 65535\t80 : 80\t0x06/0xFF\n");
}

/// The points of the page on estimates.
fn points() -> String {
    let page = std::fs::read_to_string(root().join("docs/estimate.md")).unwrap();
    let block = parts(&page).into_iter().find_map(|part| match part {
        Part::Policy(text) => Some(text),
        Part::Command(_) => None,
    });
    block.unwrap()
}

/// Runs a command by the shell, at home in the room.
fn paste(room: &Room, command: &str) {
    let tools = TOOLS
        .iter()
        .filter(|tool| command.starts_with(&format!("{tool} ")) || command.contains(&format!("| {tool} ")));
    for tool in tools {
        if !Command::new("sh").args(["-c", &format!("command -v {tool}")]).output().unwrap().status.success()
        {
            eprintln!("SKIPPED: there is no {tool} for {command}");
            return;
        }
    }
    let program = Path::new(env!("CARGO_BIN_EXE_wirerate")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let output = Command::new("sh")
        .args(["-c", command])
        .current_dir(&room.0)
        .env("PATH", path)
        .env("HOME", &room.0)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    // What an import has to note is no fault; what other tools say is theirs.
    let is_quiet = said.lines().all(|line| line.starts_with("note: ")) || !command.starts_with("wirerate ");
    assert!(output.status.success() && is_quiet, "{command}\n{said}");
    let is_silent = command.contains("> ~/") || command.contains(" > ") || command.starts_with("mkdir ");
    assert!(!output.stdout.is_empty() || is_silent, "nothing was printed by {command}");
}

/// The subcommands that the help of `wirerate WORDS` lists.
fn subcommands(words: &[&str]) -> Vec<String> {
    let help = wirerate(&[words, &["--help"]].concat()).exits(0).out;
    let Some(list) = help.split("\nCommands:\n").nth(1) else { return Vec::new() };
    let names = list.lines().take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
    names
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .filter(|name| name != "help")
        .collect()
}

#[test]
fn every_command_has_examples_and_none_is_forgotten() {
    let mut found = vec![Vec::new()];
    let mut open: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(words) = open.pop() {
        let of: Vec<&str> = words.iter().map(String::as_str).collect();
        let inner = subcommands(&of);
        if inner.is_empty() {
            found.push(words.clone());
        }
        open.extend(inner.into_iter().map(|name| [&words[..], &[name]].concat()));
    }
    found.sort();
    let mut listed: Vec<Vec<String>> =
        COMMANDS.iter().map(|words| words.iter().map(|word| (*word).to_owned()).collect()).collect();
    listed.sort();
    assert_eq!(found, listed);
    let all: Vec<String> = COMMANDS.iter().flat_map(|words| examples(words)).collect();
    for (begin, _) in NOT_PASTED {
        assert!(all.iter().any(|command| command.starts_with(begin)), "there is no example {begin}");
    }
}

#[test]
fn examples_of_all_there_is() {
    pasted(&[]);
}

#[test]
fn examples_of_policies() {
    pasted(&["check"]);
    pasted(&["diff"]);
    pasted(&["import"]);
}

#[test]
fn examples_of_captures() {
    pasted(&["generate", "traffic"]);
    pasted(&["replay"]);
    pasted(&["explain"]);
}

#[test]
fn examples_of_rules() {
    pasted(&["generate", "rules"]);
    pasted(&["generate", "trace"]);
    pasted(&["bench", "classify"]);
}

#[test]
fn examples_of_what_is_printed() {
    pasted(&["reasons"]);
    pasted(&["stages"]);
    pasted(&["completions"]);
    pasted(&["manual"]);
    pasted(&["test"]);
}

#[test]
fn examples_of_claims() {
    pasted(&["reproduce"]);
}

#[test]
fn examples_of_runs() {
    pasted(&["chip", "run"]);
}

#[test]
fn examples_of_searches() {
    pasted(&["chip", "search"]);
}

#[test]
fn examples_of_sweeps() {
    pasted(&["chip", "sweep"]);
}

#[test]
fn examples_of_timelines() {
    pasted(&["chip", "trace"]);
}

#[test]
fn examples_of_lists() {
    pasted(&["chip", "list"]);
}

#[test]
fn examples_of_ciphers() {
    pasted(&["chip", "cipher"]);
}

#[test]
fn examples_of_estimates() {
    pasted(&["estimate"]);
}

#[test]
fn the_page_on_estimates_can_be_followed() {
    let page = std::fs::read_to_string(root().join("docs/estimate.md")).unwrap();
    let room = Room::new("manual-estimate-page");
    room.write("points.toml", points());
    let mut commands = 0;
    for part in parts(&page) {
        if let Part::Command(command) = part {
            if is_not_pasted(&command).is_none() {
                commands += 1;
                paste(&room, &command);
            }
        }
    }
    assert!(commands >= 3, "{commands} commands");
}

/// Parts of a page in their order: blocks of TOML, and the commands that are indented.
fn parts(page: &str) -> Vec<Part> {
    let (mut parts, mut fence): (Vec<Part>, Option<(String, String)>) = (Vec::new(), None);
    for line in page.lines() {
        match (&mut fence, line.strip_prefix("```")) {
            (None, Some(kind)) => fence = Some((kind.to_owned(), String::new())),
            (Some(_), Some(_)) => parts
                .extend(fence.take().filter(|(kind, _)| kind == "toml").map(|(_, text)| Part::Policy(text))),
            (Some((_, text)), None) => *text = format!("{text}{line}\n"),
            (None, None) => match (line.strip_prefix("    "), parts.last_mut()) {
                (Some(line), Some(Part::Command(command))) if command.ends_with('\\') => {
                    *command = format!("{command}\n{line}");
                }
                (Some(line), _) => parts.push(Part::Command(line.to_owned())),
                (None, _) => {}
            },
        }
    }
    parts
}

enum Part {
    /// A block of TOML.
    Policy(String),
    Command(String),
}

/// Its policies are sound, each of them without a warning, and its commands do what they say.
#[test]
fn the_page_on_ipsec_can_be_followed() {
    let page = std::fs::read_to_string(root().join("docs/ipsec.md")).unwrap();
    let room = Room::new("manual-ipsec");
    std::os::unix::fs::symlink(root().join("policies"), room.0.join("policies")).unwrap();
    // The table that the page has from elsewhere: the association in of the example.
    let key = "6c61622d6b65792d622d746f2d612d30325a5a5a";
    let sa = r#""IPv4","*","*","0x1002","AES-GCM with 16 octet ICV [RFC4106]","#;
    room.write("esp_sa", format!("{sa}\"0x{key}\",\"NULL\",\"\"\n"));
    let (policies, commands) = follow(&room, &page);
    assert!(policies >= 2 && commands >= 6, "{policies} policies, {commands} commands");
    // What ESP leaves of 1500 bytes.
    for (algorithm, auth, of) in
        [("aes128-gcm", None, "AES-GCM"), ("aes256-cbc", Some("hmac-sha256-128"), "AES-CBC")]
    {
        let suite = Suite::named(algorithm, auth).unwrap();
        let mtu = |family, udp| suite.inner_mtu(1_500, family, udp, Mode::Tunnel).to_string();
        let row = page.lines().find(|line| line.starts_with(&format!("| {of}"))).unwrap();
        let cells: Vec<&str> = row.split('|').map(str::trim).skip(2).take(3).collect();
        let expected = [mtu(Family::V4, Udp::No), mtu(Family::V4, Udp::Yes), mtu(Family::V6, Udp::No)];
        assert_eq!(cells, expected, "{row}");
    }
}

/// Its policy is sound, and its commands do what they say with rules as other firewalls write them.
#[test]
fn the_page_on_imports_can_be_followed() {
    let page = std::fs::read_to_string(root().join("docs/import.md")).unwrap();
    let room = Room::new("manual-import-page");
    rule_sets(&room);
    assert_eq!(follow(&room, &page), (1, 5), "policies and commands");
}

/// Its policy is sound, and its commands do what they say with cells that an Endace card might have captured.
#[test]
fn the_page_on_atm_can_be_followed() {
    let page = std::fs::read_to_string(root().join("docs/atm.md")).unwrap();
    let room = Room::new("manual-atm");
    for name in ["policies", "tests"] {
        std::os::unix::fs::symlink(root().join(name), room.0.join(name)).unwrap();
    }
    let link = build::ethernet(Mac::ZERO, Mac::ZERO);
    let packet =
        link.ipv4([203, 0, 113, 1].into(), [203, 0, 113, 2].into()).udp(53, 5_000).payload(&[7; 100]);
    let head = Head::new(Encapsulation::Llc, LinkKind::Ip, EtherType::IPV4);
    let vc = "8/35".parse().unwrap();
    let mut capture =
        [&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0][..], &[0; 8], &[0, 0, 4, 0, 197, 0, 0, 0]].concat();
    for cell in Segmentation::new(vc, head.bytes(), &packet.to_vec()[14..]).unwrap() {
        let erf = [&[0; 8][..], &[3, 4, 0, 68, 0, 0, 0, 52], &cell[..4], &cell[5..]].concat();
        let length = u32::try_from(erf.len()).unwrap().to_le_bytes();
        capture.extend([&[0; 8][..], &length, &length, &erf].concat());
    }
    room.write("cells.pcap", capture);
    assert_eq!(follow(&room, &page), (4, 4), "policies and commands");
    let (policy, cells) = (room.0.join("policy.toml"), room.0.join("cells.pcap"));
    let dsl = format!("dsl={}", cells.display());
    let json = wirerate(&["replay", &policy.display().to_string(), &dsl, "--json"]).exits(0).json();
    assert_eq!(json["reasons"]["aal5-reassembly"], 2, "{json:#}");
}

/// Its policies are sound, and its command does what it says.
#[test]
fn the_page_on_ppp_can_be_followed() {
    let page = std::fs::read_to_string(root().join("docs/ppp.md")).unwrap();
    let room = Room::new("manual-ppp");
    std::os::unix::fs::symlink(root().join("tests"), room.0.join("tests")).unwrap();
    assert_eq!(follow(&room, &page), (3, 1), "policies and commands");
}

/// Checks the policies of a page, none of which may have a warning, and runs its commands, but for those that are for root. Returns the
/// numbers of both.
fn follow(room: &Room, page: &str) -> (usize, usize) {
    let (mut policies, mut commands) = (0, 0);
    for part in parts(page) {
        match part {
            Part::Policy(text) => {
                policies += 1;
                let policy = room.write("policy.toml", text);
                let json = wirerate(&["check", &policy, "--json"]).exits(0).json();
                assert_eq!((&json["errors"], &json["warnings"]), (&0.into(), &0.into()), "{json:#}");
            }
            Part::Command(command) if is_not_pasted(&command).is_some() || is_for_root(&command) => {}
            Part::Command(command) if command.contains("openssl ") && !has("openssl") => {
                eprintln!("SKIPPED: there is no openssl for {command}");
            }
            Part::Command(command) => {
                commands += 1;
                paste(room, &command);
            }
        }
    }
    (policies, commands)
}

/// True for what changes the machine, or asks its daemons.
fn is_for_root(command: &str) -> bool {
    ["apt-get ", "cc ", "make ", "install ", "cat ", "echo ", "systemctl ", "swanctl "]
        .iter()
        .any(|begin| command.starts_with(begin))
}

fn has(tool: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {tool}")]).output();
    found.is_ok_and(|output| output.status.success())
}

/// Sweeps of the page on fidelity, whose rows have the numbers of the page's table, within the 5 % by which a corrected tally may move them.
#[test]
fn the_remedies_of_the_page_on_fidelity_can_be_tried() {
    let page = std::fs::read_to_string(root().join("docs/fidelity.md")).unwrap();
    let section =
        page.split("\n## Remedies for the IXP1200's SRAM\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let room = Room::new("manual-remedies");
    std::os::unix::fs::symlink(root().join("policies"), room.0.join("policies")).unwrap();
    let mut found = Vec::new();
    for command in section.split("\n    wirerate ").skip(1) {
        paste(&room, &format!("wirerate {} --csv rows.csv > told", command.trim_end()));
        found.extend(remedies(&std::fs::read_to_string(room.0.join("rows.csv")).unwrap()));
    }
    let rows = section.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| SRAM"));
    let rows: Vec<Vec<&str>> =
        rows.map(|row| row.trim_matches('|').split('|').skip(1).map(str::trim).collect()).collect();
    assert_eq!(rows.len(), 13);
    for row in rows {
        assert!(found.iter().any(|found| is_about(found, &row)), "{row:?} is not in {found:?}");
    }
}

/// True if the same memory is busiest, and the numbers are no more than 5 % apart.
fn is_about(found: &[String], row: &[&str]) -> bool {
    found.len() == row.len()
        && found.iter().flat_map(|cell| cell.split(' ')).zip(row.iter().flat_map(|cell| cell.split(' '))).all(
            |(found, told)| match (found.parse::<f64>(), told.parse::<f64>()) {
                (Ok(found), Ok(told)) => (found - told).abs() <= 0.05 * told.max(20.0),
                _ => found == told,
            },
        )
}

/// Cells of the page's table from rows that vary the number of classes second: kpps with each number, and the busiest memory with the most,
/// for each combination of the rest.
fn remedies(csv: &str) -> Vec<Vec<String>> {
    // From the end, since values of parameters may have commas.
    let cells = |line| str::rsplit(line, ',').collect::<Vec<&str>>();
    let names = cells(csv.lines().next().unwrap());
    let column = |name: &str| names.iter().position(|known| *known == name).unwrap();
    let rows: Vec<Vec<&str>> = csv.lines().skip(1).map(cells).collect();
    let figure = |row: &[&str], name: &str| row[column(name)].parse::<f64>().unwrap();
    let each = rows.len() / 3;
    let of = |number: usize| {
        let row = |place: usize| &rows[place * each + number];
        let kpps = (0..3).map(|place| format!("{:.0}", figure(row(place), "dealt_mpps") * 1e3));
        let busy = figure(row(2), "memory_busy") * 100.0;
        kpps.chain([format!("{} {busy:.0} %", row(2)[column("memory")])]).collect()
    };
    (0..each).map(of).collect()
}

/// The page says where its blocks go; its commands, indented, then run them.
#[test]
fn the_page_on_chips_can_be_followed() {
    let page = std::fs::read_to_string(root().join("docs/add/chip.md")).unwrap();
    let room = Room::new("manual-page");
    std::os::unix::fs::symlink(root().join("policies"), room.0.join("policies")).unwrap();
    let mut blocks: Vec<&str> =
        page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    room.write("my-row.toml", blocks.pop().unwrap());
    room.write("my-chip.toml", blocks.join("\n"));
    let running = page.split("## Running it").nth(1).unwrap().replace("\\\n", "");
    let commands: Vec<&str> = running.lines().filter(|line| line.starts_with("    wirerate ")).collect();
    assert!(commands.len() >= 3, "{commands:?}");
    for command in commands {
        paste(&room, command);
    }
}
