//! Keys of tunnels: read from files where that is asked for, and in nothing that the command says or writes.
#![allow(clippy::unwrap_used)]

mod run;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use run::{Room, Run, root, wirerate};

/// A site whose keys are in files, beginning with bytes that nothing else has.
fn site(room: &Room) -> (String, Vec<String>) {
    let mut text = fs::read_to_string(root().join("tests/cases/esp/site.toml")).unwrap();
    let mut keys = Vec::new();
    while let Some(at) = text.find("\nkey = \"") {
        let begin = at + "\nkey = \"".len();
        let end = begin + text[begin..].find('"').unwrap();
        let key = format!("c0ffee{}", &text[begin + 6..end]);
        let file = room.write(&format!("key{}", keys.len()), format!("{key}\n"));
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        text.replace_range(at + 1..end, &format!("key-file = \"key{}", keys.len()));
        keys.push(key);
    }
    assert!(keys.len() >= 4);
    (room.write("policy.toml", text), keys)
}

fn has_no_key(run: &Run, keys: &[String]) {
    for said in [&run.out, &run.err] {
        let said = said.to_lowercase();
        assert!(keys.iter().all(|key| !said.contains(key)), "{said}");
    }
}

#[test]
fn keys_in_files_are_read_by_a_flag_alone_and_never_told() {
    let room = Room::new("secret");
    let (policy, keys) = site(&room);
    let packet = "lan udp 10.1.0.5:7 > 10.2.0.9:8";
    let refused = wirerate(&["explain", &policy, packet]).exits(1);
    assert!(refused.err.contains("--static-keys"), "{}", refused.err);
    let explained = wirerate(&["explain", &policy, packet, "--static-keys", "--json"]).exits(0);
    let other = room.write("other.toml", fs::read_to_string(&policy).unwrap().replace("0x1000", "0x1234"));
    for run in [
        refused,
        explained,
        wirerate(&["explain", &policy, packet, "--static-keys"]).exits(0),
        wirerate(&["check", &policy, "--json"]),
        wirerate(&["check", &policy]),
        wirerate(&["stages", &policy]).exits(0),
        wirerate(&["diff", &policy, &other, "--json"]),
        wirerate(&["diff", &policy, &other]),
    ] {
        has_no_key(&run, &keys);
    }
    // A file that others may read is not taken.
    fs::set_permissions(room.path("key0"), Permissions::from_mode(0o644)).unwrap();
    let refused = wirerate(&["explain", &policy, packet, "--static-keys"]).exits(3);
    assert!(refused.err.contains("key0") && refused.err.contains("chmod 600"), "{}", refused.err);
    has_no_key(&refused, &keys);
}
