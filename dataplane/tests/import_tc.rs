//! Queues of Linux, imported: the rates that HTB promises are those of the departures.
//!
//! The expected rates are what Linux 6.18 sends of three UDP floods through these classes on a veth: 3000, 5600 and 1400 kbit/s.

use std::collections::BTreeMap;

use dataplane::replay::{Way, Witness};
use dataplane::{Replay, Tables, Verdict};
use policy::import;
use wire::build;
use wire::ethernet::Mac;
use wire::{Frame, Nanos, PortId};

const START: u64 = 1_700_000_000_000_000_000;
const SECOND: u64 = 1_000_000_000;

/// An uplink of 10 Mbit/s: classes by destination port.
const SCRIPT: &str = "\
tc qdisc add dev wan root handle 1: htb default 30
tc class add dev wan parent 1: classid 1:1 htb rate 10mbit
tc class add dev wan parent 1:1 classid 1:10 htb rate 2mbit ceil 3mbit prio 0
tc class add dev wan parent 1:1 classid 1:20 htb rate 4mbit ceil 10mbit prio 1
tc class add dev wan parent 1:1 classid 1:30 htb rate 1mbit ceil 10mbit prio 1
tc filter add dev wan parent 1: protocol ip prio 1 u32 match ip dport 10 0xffff flowid 1:10
tc filter add dev wan parent 1: protocol ip prio 1 u32 match ip dport 20 0xffff flowid 1:20
";

/// The interface that scripts do not name.
const LAN: PortId = PortId(1);

/// Bytes of frames sent by destination port, within the measured time.
#[derive(Default)]
struct Sent {
    bytes: BTreeMap<u16, u64>,
    from: u64,
    to: u64,
}

impl Witness for Sent {
    fn sent(&mut self, _: PortId, at: Nanos, frame: &Frame, _: Option<Verdict>) {
        let bytes = frame.bytes();
        let port = u16::from_be_bytes([bytes[36], bytes[37]]);
        if (self.from..self.to).contains(&(at.0 - START)) {
            *self.bytes.entry(port).or_default() += bytes.len() as u64;
        }
    }

    fn ended(&mut self, _: &Frame, _: Verdict) {}
}

fn tables(script: &str) -> Tables {
    let importer = import::find("tc").expect("it is registered");
    let imported = importer.import(script.as_bytes(), None).expect("commands of tc");
    assert_eq!(imported.untranslated, []);
    // What tc says nothing of.
    let text = imported
        .policy
        .to_string()
        .replace("zone = \"wan\"\n", "zone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\n");
    let text = format!(
        "{text}\n[interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/24\"]\n[default]\n\"lan > wan\" = \"accept\"\n"
    );
    let checked = policy::check(&text, "imported.toml");
    let policy = checked.policy.unwrap_or_else(|| panic!("{:?}\n{text}", checked.diagnostics));
    Tables::compile(&policy, 1).expect("tables")
}

/// Rates by destination port, in kbit/s as tc counts them, from the first second to the third, of ports that have more to send
/// than there is room for.
fn rates(script: &str, ports: &[u16]) -> BTreeMap<u16, u64> {
    let mut replay = Replay::new(tables(script), Nanos(START), Way::Run).expect("memory");
    let mut sent = Sent { from: SECOND, to: 3 * SECOND, ..Sent::default() };
    let mut number = 0;
    // Of each port 1,000 bytes every half millisecond: 16 Mbit/s.
    for slot in 0..6_000 {
        for port in ports {
            let bytes = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0x57, 0x52, 0, 0, 0]))
                .ipv4([192, 168, 1, 10].into(), [203, 0, 113, 9].into())
                .udp(5_000, *port)
                .payload(&[0; 1_000 - 42])
                .to_vec();
            assert_eq!(bytes.len(), 1_000);
            replay.receive(LAN, Nanos(START + slot * SECOND / 2_000), number, &bytes, &mut sent);
            number += 1;
        }
    }
    replay.finish(&mut sent);
    sent.bytes.into_iter().map(|(port, bytes)| (port, bytes * 8 / 2 / 1_000)).collect()
}

fn near(rate: u64, expected: u64) {
    assert!(rate.abs_diff(expected) * 100 <= expected, "{rate} kbit/s rather than {expected}");
}

#[test]
fn every_class_has_what_it_is_promised() {
    let rates = rates(SCRIPT, &[10, 20, 30]);
    // The first has its ceiling, for it borrows first; what is left beyond 4 and 1 is shared by quantum, 4 to 1.
    near(rates[&10], 3_000);
    near(rates[&20], 4_000 + 2_000 * 4 / 5);
    near(rates[&30], 1_000 + 2_000 / 5);
}

/// Of 20 Mbit/s an inner class has three quarters of what is lent, the sum of its quanta. Linux sends 4990, 9989 and 5000 kbit/s.
#[test]
fn inner_classes_share_by_all_that_is_in_them() {
    let script = "\
tc qdisc add dev wan root handle 1: htb default 30
tc class add dev wan parent 1: classid 1:1 htb rate 20mbit
tc class add dev wan parent 1:1 classid 1:2 htb rate 6mbit ceil 20mbit
tc class add dev wan parent 1:2 classid 1:21 htb rate 2mbit ceil 20mbit
tc class add dev wan parent 1:2 classid 1:22 htb rate 4mbit ceil 20mbit
tc class add dev wan parent 1:1 classid 1:30 htb rate 2mbit ceil 20mbit
tc filter add dev wan parent 1: protocol ip prio 1 u32 match ip dport 21 0xffff flowid 1:21
tc filter add dev wan parent 1: protocol ip prio 1 u32 match ip dport 22 0xffff flowid 1:22
";
    let rates = rates(script, &[21, 22, 30]);
    near(rates[&21], 5_000);
    near(rates[&22], 10_000);
    near(rates[&30], 5_000);
}

#[test]
fn what_nobody_uses_is_lent_up_to_the_ceiling() {
    near(rates(SCRIPT, &[10])[&10], 3_000);
    near(rates(SCRIPT, &[20])[&20], 10_000);
    let both = rates(SCRIPT, &[10, 30]);
    near(both[&10], 3_000);
    near(both[&30], 7_000);
}

#[test]
fn without_a_default_the_rest_is_sent_at_once() {
    let without: String = SCRIPT
        .lines()
        .filter(|line| !line.contains("classid 1:30"))
        .map(|line| format!("{line}\n"))
        .collect();
    let rates = rates(&without.replace(" default 30", ""), &[20, 40]);
    near(rates[&40], 16_000);
    near(rates[&20], 10_000);
}
