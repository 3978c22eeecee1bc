//! Imports of what the real tools print after loading a rule set. Needs root, network namespaces and the tools.

use std::process::Command;

use super::{account, find};

fn print(script: &str) -> Option<Vec<u8>> {
    let output = Command::new("unshare").args(["-n", "sh", "-ec", script]).output().ok()?;
    if !output.status.success() {
        eprintln!("SKIPPED: {}", String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or("no tool"));
        return None;
    }
    Some(output.stdout)
}

#[test]
fn nft() {
    for file in [
        "home.nft",
        "everything.nft",
        "mac.nft",
        "dynamic.nft",
        "knock.nft",
        "map.nft",
        "icmp-chains.nft",
        "argument.nft",
        "netmap.nft",
        "arch.nft",
    ] {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/import");
        let Some(printed) = print(&format!("nft -f '{folder}/{file}'; nft -j list ruleset")) else { return };
        let stored = std::fs::read(format!("{folder}/{file}.json")).unwrap();
        let importer = find("nft").unwrap();
        let (now, then) = (importer.import(&printed, None).unwrap(), importer.import(&stored, None).unwrap());
        account(&now);
        assert_eq!(now.policy.rules.len(), then.policy.rules.len(), "{file}");
        assert_eq!(now.count, then.count, "{file}");
    }
}

#[test]
fn iptables_save() {
    for file in ["docker.v4", "router.v4"] {
        let path = format!("{}/tests/import/{file}", env!("CARGO_MANIFEST_DIR"));
        let Some(printed) = print(&format!("iptables-restore '{path}'; iptables-save")) else { return };
        let stored = std::fs::read(path).unwrap();
        let importer = find("iptables").unwrap();
        let (now, then) = (importer.import(&printed, None).unwrap(), importer.import(&stored, None).unwrap());
        account(&now);
        assert_eq!(now.policy.rules, then.policy.rules, "{file}");
        assert_eq!(now.policy.nats, then.policy.nats, "{file}");
    }
}

/// Scripts, and what the kernel lists after them, text and JSON: the same policy, in which nothing is missing.
#[test]
fn tc() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/import");
    let import = |source: &[u8]| {
        let import = find("tc").unwrap().import(source, None).unwrap();
        account(&import);
        assert_eq!(import.untranslated, [], "{}", String::from_utf8_lossy(source));
        import.policy
    };
    // Text has sizes in units, JSON what the kernel's ticks make of them.
    let rounded = |mut policy: crate::model::Policy| {
        for queue in &mut policy.queues {
            for bytes in [&mut queue.burst, &mut queue.limit_bytes].into_iter().flatten() {
                bytes.0 = (bytes.0 + 512) / 1_024;
            }
        }
        policy
    };
    // What is redirected goes nowhere.
    let links = "ip link add eth0 type veth peer name eth1; ip link add ifb0 type veth peer name ifb1; \
                 ip link set eth0 up; ip link set ifb0 up";
    for script in ["htb.sh", "ingress.sh"] {
        let path = format!("{folder}/tc/{script}");
        let expected = import(&std::fs::read(&path).unwrap());
        for options in ["", "-d", "-s -d", "-j", "-j -d"] {
            let list = format!(
                "for d in eth0 ifb0; do for show in qdisc class filter; do \
                 echo tc $show show dev $d; tc {options} $show show dev $d; done; done; \
                 echo tc filter show dev eth0 ingress; tc {options} filter show dev eth0 ingress"
            );
            // Errors of the script's own first line, which deletes, are none.
            let Some(printed) = print(&format!("{links}; eval \"$(sed /del/d '{path}')\"; {list}")) else {
                return;
            };
            assert_eq!(rounded(import(&printed)), rounded(expected.clone()), "{script} {options}");
        }
    }
}
