//! `wirerate explain` on WANs, by the commands of docs/wan.md.

use run::{Room, root, wirerate};

mod run;

/// The commands of the page, each with words that its output must have.
const SAID: [(&str, &[&str]); 2] = [
    (
        "lan tcp 192.168.1.10:50000 > 9.9.9.9:443",
        &["the default route of the WANs is the best for 9.9.9.9", "% of new flows, is this flow's by hash"],
    ),
    (
        "lan udp 192.168.1.70:5060 > 9.9.9.9:5060",
        &["policy route `voice`", "by WAN `cable`", "leaves by cab0"],
    ),
];

#[test]
fn explain_says_which_wan_and_why() {
    let page = std::fs::read_to_string(root().join("docs/wan.md")).unwrap();
    let policy = root().join("policies/two-wans.toml").display().to_string();
    for (packet, words) in SAID {
        assert!(
            page.contains(&format!("    wirerate explain policies/two-wans.toml '{packet}'\n")),
            "{packet}"
        );
        let said = wirerate(&["explain", &policy, packet]).exits(0).out;
        for word in words {
            assert!(said.contains(word), "no `{word}` in:\n{said}");
        }
    }
}

/// Every table of the page, after the interfaces that they name, is part of a sound policy.
#[test]
fn the_policies_of_the_page_are_sound() {
    let page = std::fs::read_to_string(root().join("docs/wan.md")).unwrap();
    let links = "[interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/24\"]\n\
                 [interface.fib0]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\n\
                 [interface.cab0]\nzone = \"wan\"\naddresses = [\"198.51.100.2/24\"]\n\
                 [interface.lte0]\nzone = \"wan\"\naddresses = [\"192.0.2.2/24\"]\n";
    let parts: Vec<&str> =
        page.split("```toml\n").skip(1).filter_map(|part| part.split("```").next()).collect();
    assert_eq!(parts.len(), 6);
    // Keys of the top come before all tables.
    let (tables, top): (Vec<&str>, Vec<&str>) = parts.into_iter().partition(|part| part.starts_with('['));
    let text = top.concat() + links + &tables.concat();
    let policy = Room::new("wan-page").write("policy.toml", text);
    let json = wirerate(&["check", &policy, "--json"]).exits(0).json();
    assert_eq!((&json["errors"], &json["warnings"]), (&0.into(), &0.into()), "{json:#}");
}
