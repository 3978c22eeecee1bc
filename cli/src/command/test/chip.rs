//! The modelled chips as hosts that cases are played on.

use std::collections::VecDeque;
use std::sync::LazyLock;

use cases::host::{Batching, Host, Input, Player, Record};
use chip::builtin::{CHIPS, MAPPINGS, named};
use chip::description::{self, Chip};
use chip::host::{Entry, Onlooker, Traffic};
use chip::mapping::{self, Mapping};
use chip::run;
use dataplane::nat::Endpoint;
use dataplane::port_mapping::{Holder, Label, PortMapping, PortRefusal, PortRequest};
use dataplane::replay::{ReloadError, ReplayError, Way, Witness};
use dataplane::set::{SetChange, SetOutcome};
use dataplane::{Reason, Replay, Shard, Tables, Verdict};
use wire::{Frame, Nanos, PortId};

/// The chips that come with the program, each with a mapping.
pub(crate) const HOSTS: &[Host] = &[
    Host {
        name: "chip ixp1200",
        batching: Batching::Frame,
        start: |tables, now| modelled("ixp1200-pool", tables, now),
    },
    Host {
        name: "chip ixp1200, split",
        batching: Batching::Case,
        start: |tables, now| modelled("ixp1200-split", tables, now),
    },
    Host {
        name: "chip ixp1200, tunnel",
        batching: Batching::Frame,
        start: |tables, now| modelled("ixp1200-tunnel", tables, now),
    },
    Host {
        name: "chip ixp1240",
        batching: Batching::Case,
        start: |tables, now| modelled("ixp1240-split", tables, now),
    },
    Host {
        name: "chip ixp1240, ATM",
        batching: Batching::Frame,
        start: |tables, now| modelled("ixp1240-atm", tables, now),
    },
    Host {
        name: "chip ixp2400",
        batching: Batching::Case,
        start: |tables, now| modelled("ixp2400-pool", tables, now),
    },
    Host {
        name: "chip ixp2800",
        batching: Batching::Frame,
        start: |tables, now| modelled("ixp2800-pool", tables, now),
    },
    Host {
        name: "chip ixp2325",
        batching: Batching::Case,
        start: |tables, now| modelled("ixp2325-pool", tables, now),
    },
    Host {
        name: "chip pro3",
        batching: Batching::Frame,
        start: |tables, now| modelled("pro3-pool", tables, now),
    },
    Host {
        name: "chip pro3, shaped",
        batching: Batching::Case,
        start: |tables, now| modelled("pro3-shaped", tables, now),
    },
    Host {
        name: "chip rena",
        batching: Batching::Case,
        start: |tables, now| modelled("rena-pool", tables, now),
    },
    Host {
        name: "chip pc1",
        batching: Batching::Frame,
        start: |tables, now| modelled("pc1-pool", tables, now),
    },
    Host {
        name: "chip pc2",
        batching: Batching::Case,
        start: |tables, now| modelled("pc2-pool", tables, now),
    },
    Host {
        name: "chip pc3",
        batching: Batching::Case,
        start: |tables, now| modelled("pc3-pool", tables, now),
    },
    Host {
        name: "chip pc4",
        batching: Batching::Frame,
        start: |tables, now| modelled("pc4-pool", tables, now),
    },
    Host {
        name: "chip mips32",
        batching: Batching::Case,
        start: |tables, now| modelled("mips32-pool", tables, now),
    },
    Host {
        name: "chip cn3120",
        batching: Batching::Frame,
        start: |tables, now| modelled("cn3120-pool", tables, now),
    },
    Host {
        name: "chip nfp-4000",
        batching: Batching::Case,
        start: |tables, now| modelled("nfp-4000-pool", tables, now),
    },
    Host {
        name: "chip pspin",
        batching: Batching::Frame,
        start: |tables, now| modelled("pspin-pool", tables, now),
    },
    Host {
        name: "chip bluefield3-dpa",
        batching: Batching::Case,
        start: |tables, now| modelled("bluefield3-dpa-pool", tables, now),
    },
    Host {
        name: "chip tetra",
        batching: Batching::Case,
        start: |tables, now| modelled("tetra-pool", tables, now),
    },
];

/// The mappings that come with the program, each with its chip; read once for all cases.
static DESCRIBED: LazyLock<Vec<Described>> = LazyLock::new(|| {
    let described = |name: &'static str, text: &str| {
        let chip = mapping::chip_of(text)?;
        let chip = description::parse(named(CHIPS, &chip)?, &chip).chip?;
        let mapping = mapping::parse(text, name, &chip).mapping?;
        Some(Described { name, chip, mapping })
    };
    MAPPINGS.iter().filter_map(|shipped| described(shipped.name, shipped.text)).collect()
});

/// A chip and what runs on it.
struct Described {
    name: &'static str,
    chip: Chip,
    mapping: Mapping,
}

/// The chip that the mapping of that name is for.
fn modelled(name: &str, tables: Tables, now: Nanos) -> Result<Box<dyn Player>, ReplayError> {
    Ok(Box::new(Modelled {
        described: DESCRIBED.iter().find(|described| described.name == name),
        replay: Replay::new(tables, now, Way::Step)?,
        recorder: Recorder::default(),
        coming: Coming(VecDeque::new()),
        fault: None,
    }))
}

/// A chip at work. Its state lasts from flush to flush; its clock and its engines begin anew.
struct Modelled {
    described: Option<&'static Described>,
    replay: Replay,
    recorder: Recorder,
    coming: Coming,
    fault: Option<String>,
}

/// Frames that came since the last flush.
struct Coming(VecDeque<Input>);

impl Traffic for Coming {
    fn peek(&mut self) -> Option<Nanos> {
        self.0.front().map(|input| input.at)
    }

    fn next(&mut self, bytes: &mut Vec<u8>) -> Option<Entry> {
        let input = self.0.pop_front()?;
        bytes.extend_from_slice(&input.bytes);
        Some(Entry::new(input.at, input.port, bytes.len()))
    }
}

/// Recorder of the events on a chip. A lost frame has no fate, and thereby differs from the frame on other hosts.
#[derive(Default)]
struct Recorder(Record);

impl Witness for Recorder {
    fn sent(&mut self, port: PortId, at: Nanos, frame: &Frame, verdict: Option<Verdict>) {
        self.0.sent(port, at, frame, verdict);
    }

    fn ended(&mut self, frame: &Frame, verdict: Verdict) {
        self.0.ended(frame, verdict);
    }

    fn refused(&mut self, number: u32, port: PortId, reason: Reason) {
        self.0.refused(number, port, reason);
    }
}

impl Onlooker for Recorder {}

impl Modelled {
    /// Plays all that came.
    fn play(&mut self) {
        let Some(first) = self.coming.0.front().map(|input| input.number) else { return };
        let Some(Described { chip, mapping, .. }) = self.described else {
            self.fault = Some("its description is wrong".to_owned());
            return;
        };
        let Modelled { replay, recorder, coming, fault, .. } = self;
        if let Err(error) = run::play(chip, mapping, replay, coming, first, recorder) {
            *fault = Some(error.to_string());
        }
    }
}

impl Player for Modelled {
    fn receive(&mut self, input: &Input) {
        let Input { number, port, at, ref bytes } = *input;
        self.coming.0.push_back(Input { number, port, at, bytes: bytes.clone() });
    }

    fn flush(&mut self) {
        self.play();
        self.replay.flush(&mut self.recorder);
    }

    fn advance(&mut self, at: Nanos) {
        self.play();
        self.replay.advance(at, &mut self.recorder);
    }

    fn finish(&mut self) {
        self.play();
        self.replay.finish(&mut self.recorder);
    }

    fn clear(&mut self) {
        self.replay.shard.clear_flows();
    }

    fn change_set(&mut self, change: &SetChange, at: Nanos) -> SetOutcome {
        self.replay.shard.change_set(&self.replay.tables, change, at)
    }

    fn map_port(&mut self, request: &PortRequest, at: Nanos) -> Result<PortMapping, PortRefusal> {
        self.replay.shard.map_port(&self.replay.tables, request, at)
    }

    fn unmap_port(&mut self, inside: &Endpoint, at: Nanos) -> Result<u32, PortRefusal> {
        self.replay.shard.unmap_port(inside, &Holder::operator(Label::default()), at)
    }

    fn reload(&mut self, tables: Tables, at: Nanos) -> Result<(), ReloadError> {
        self.recorder.0.turn += 1;
        self.replay.reload(tables, at, &mut self.recorder)
    }

    fn record(&self) -> &Record {
        &self.recorder.0
    }

    fn tables(&self) -> &Tables {
        &self.replay.tables
    }

    fn shard(&self) -> &Shard {
        &self.replay.shard
    }

    fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::{CHIPS, HOSTS};

    #[test]
    fn every_shipped_chip_plays_the_cases() {
        for shipped in CHIPS {
            let name = format!("chip {}", shipped.name);
            assert!(HOSTS.iter().any(|host| host.name == name), "{name}");
        }
    }
}
