//! A policy, a capture made for it, and a witness of all that becomes of its packets.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use dataplane::replay::Witness;
use dataplane::{Reason, Tables, Verdict};
use policy::Policy;
use replay::{Captures, Named, Readdress, Window};
use wire::capture::{PcapngWriter, Record};
use wire::{Frame, Nanos, PortId};

use crate::scene::packet::{BYTES, Packets};
use crate::scene::{Arrival, Gateway, START, policy as policies};

/// Events of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Answers have identifications of their own, which count the answers: without bytes.
    Sent(PortId, Nanos, Option<Verdict>, Vec<u8>),
    Ended(Verdict),
    Refused(Reason),
}

/// Events of all packets, by their numbers.
#[derive(Default)]
pub(crate) struct Story(pub(crate) BTreeMap<u32, Vec<Event>>);

impl Story {
    fn note(&mut self, number: u32, event: Event) {
        self.0.entry(number).or_default().push(event);
    }
}

impl Witness for Story {
    fn sent(&mut self, port: PortId, at: Nanos, frame: &Frame, verdict: Option<Verdict>) {
        let bytes = if matches!(verdict, Some(Verdict::Answered(_))) { &[] } else { frame.bytes() };
        self.note(frame.meta.number, Event::Sent(port, at, verdict, bytes.to_vec()));
    }

    fn ended(&mut self, frame: &Frame, verdict: Verdict) {
        self.note(frame.meta.number, Event::Ended(verdict));
    }

    fn refused(&mut self, number: u32, _: PortId, reason: Reason) {
        self.note(number, Event::Refused(reason));
    }
}

/// A policy, its tables, and a capture.
pub(crate) struct Trial {
    pub(crate) policy: Policy,
    pub(crate) capture: PathBuf,
    /// Packets that are played.
    pub(crate) window: Window,
}

impl Trial {
    /// A policy, and a capture of what arrives, in a file of that name.
    pub(crate) fn new(text: &str, arrivals: &[Arrival], name: &str) -> Trial {
        let policy = policy::check(text, "split.toml").policy.expect("a policy without errors");
        let capture =
            std::env::temp_dir().join(format!("wirerate-split-{}-{name}.pcapng", std::process::id()));
        let trial = Trial { policy, capture, window: Window::default() };
        trial.write(arrivals);
        trial
    }

    pub(crate) fn tables(&self) -> Tables {
        Tables::compile(&self.policy, 1).expect("tables")
    }

    /// The capture, from its beginning or that of the window.
    pub(crate) fn captures(&self, tables: &Tables) -> Captures {
        let named = [Named { interface: None, path: self.capture.clone() }];
        let mut captures = Captures::open(&named, tables, Readdress::Inferred).expect("a capture");
        captures.select(self.window, tables).expect("a packet in the window");
        captures
    }

    /// Writes what arrives into one capture, whose interfaces are called as those of the policy.
    fn write(&self, arrivals: &[Arrival]) {
        let mut writer = PcapngWriter::create(&self.capture).unwrap();
        for interface in &self.policy.interfaces {
            writer.interface(&interface.name).unwrap();
        }
        let mut latest = Nanos(0);
        for Arrival { port, at, bytes, .. } in arrivals {
            // Ticks of flows end after 17 years.
            latest = latest.max(*at).min(START + Nanos::from_secs(300_000_000));
            // What the gateway itself would send comes from outside: replays have no such packets.
            let interface = Some(usize::from(port.0)).filter(|place| *place < self.policy.interfaces.len());
            let record = Record { interface: interface.unwrap_or(0), ..Record::new(latest, bytes) };
            writer.write(&record).unwrap();
        }
        writer.finish().unwrap();
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.capture);
    }
}

/// Packets made of bytes, with the answers of a gateway that has this policy.
pub(crate) fn arrivals(scene: &policies::Scene, packets: &[[u8; BYTES]]) -> Vec<Arrival> {
    let mut gateway = Gateway::new(&scene.text, Default::default());
    let mut world = Packets::of(scene);
    let mut arrivals = Vec::new();
    for bytes in packets.chunks(4) {
        let made: Vec<Arrival> = bytes.iter().map(|bytes| world.next(bytes)).collect();
        gateway.receive(&made);
        world.learn(&gateway.out(usize::MAX));
        arrivals.extend(made);
    }
    arrivals
}
