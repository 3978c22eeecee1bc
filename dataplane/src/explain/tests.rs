use wire::traffic::{Office, Settings, Side};
use wire::{Frame, PortId};

use crate::counter::Counters;
use crate::replay::{Replay, Way, Witness};
use crate::tables::Tables;
use crate::verdict::Verdict;

const POLICY: &str = r#"
[interface.lan]
zone = "lan"
addresses = ["192.168.1.1/24", "2001:db8:1::1/64"]
[interface.wan]
zone = "wan"
addresses = ["203.0.113.10/24", "2001:db8:ffff::2/64"]
[default]
"lan > wan" = "accept"
"lan > self" = "accept"
[[route]]
to = "0.0.0.0/0"
via = "203.0.113.1"
[[route]]
to = "::/0"
via = "2001:db8:ffff::1"
[[nat]]
name = "out"
kind = "masquerade"
from = "lan"
to = "wan"
source = "192.168.1.0/24"
"#;

/// All that is told, and the world that answers what leaves.
struct World {
    office: Office,
    told: Vec<(Option<PortId>, Option<Verdict>, Vec<u8>)>,
}

impl Witness for World {
    fn sent(&mut self, port: PortId, frame: &Frame, verdict: Option<Verdict>) {
        let side = if port == PortId(0) { Side::Lan } else { Side::Wan };
        self.office.arrived(side, frame.meta.received, frame.bytes());
        self.told.push((Some(port), verdict, frame.bytes().to_vec()));
    }

    fn ended(&mut self, frame: &Frame, verdict: Verdict) {
        self.told.push((None, Some(verdict), frame.bytes().to_vec()));
    }
}

/// A few seconds of an office behind the gateway. `take` takes in one packet and may look at it.
fn play(
    mut take: impl FnMut(&mut Replay, PortId, u32, &wire::traffic::Packet, &mut World),
) -> (World, Counters) {
    let checked = policy::check(POLICY, "test.toml");
    let tables = Tables::compile(&checked.policy.expect("a sound policy"), 1).expect("tables");
    let settings = Settings { duration: wire::Nanos::from_secs(3), ..Settings::default() };
    let mut replay = Replay::new(tables, settings.start, Way::Run).expect("memory");
    let mut world = World { office: Office::new(settings), told: Vec::new() };
    let mut number = 0;
    while let Some(packet) = world.office.next() {
        let port = PortId(if packet.side == Side::Lan { 0 } else { 1 });
        take(&mut replay, port, number, &packet, &mut world);
        number += 1;
    }
    assert!(number > 1000, "{number} packets are too few to say much");
    (world, replay.shard.counters)
}

#[test]
fn what_is_explained_is_what_happens() {
    let (plain, counted) = play(|replay, port, number, packet, world| {
        replay.receive(port, packet.at, number, &packet.bytes, world);
        replay.flush(world);
    });
    let (explained, counted_too) = play(|replay, port, number, packet, world| {
        let before = world.told.len();
        let account = replay.explain(port, packet.at, number, &packet.bytes, world);
        let last = account.visits.last().expect("it was taken in");
        // A frame that waits has left the stages; all others have their fate from the last stage.
        assert_eq!(Verdict::of_fate(last.after.fate), Some(account.verdict));
        assert_eq!(account.visits[0].stage, "parse");
        assert!(account.visits[0].cost.executed_total() > 0);
        let sent = world.told[before..].iter().filter(|(port, ..)| port.is_some()).count();
        assert_eq!(account.sent.len(), sent);
    });
    assert_eq!(plain.told.len(), explained.told.len());
    for (place, (one, other)) in plain.told.iter().zip(&explained.told).enumerate() {
        assert!(one == other, "frame {place} differs");
    }
    assert_eq!(format!("{counted:?}"), format!("{counted_too:?}"));
}
