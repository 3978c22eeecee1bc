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
    for file in ["home.nft", "everything.nft", "mac.nft"] {
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
