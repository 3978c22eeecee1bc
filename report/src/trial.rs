//! Trying packets on a policy, to be sure that `explain` says what an analysis does.

use analysis::{AddressRange, Decider, Places};
use dataplane::replay::Way;
use dataplane::tables::{NO_MAC, SourceMacs};
use dataplane::{Replay, Tables};
use policy::Policy;
use policy::model::FragmentLimits;
use wire::capture::link::NOBODY;
use wire::{LinkKind, Meta, Nanos};

use crate::packet_syntax;

/// A policy, ready for packets.
pub(crate) struct Trial {
    replay: Replay,
    tries: u32,
}

/// Time of the first packet; the others come a second apart, so that no rate keeps one from its rule.
const MOMENT: Nanos = Nanos::from_secs(1_700_000_000);

/// Flows and the like that there is memory for: a packet each.
const FEW: u32 = 4096;

impl Trial {
    /// Returns a trial of a policy's tables; `None` if they cannot be tried here.
    pub(crate) fn new(mut tables: Tables) -> Option<Trial> {
        let limits = &mut tables.limits;
        limits.flows = limits.flows.min(FEW);
        limits.queue = limits.queue.min(16);
        limits.fragments = FragmentLimits { datagrams: 1, held: 1, ..limits.fragments };
        let replay = Replay::new(tables, MOMENT, Way::Run).ok()?;
        Some(Trial { replay, tries: 0 })
    }

    /// Returns the decider on a packet in words; `None` if it does not come before the rules at all.
    pub(crate) fn decides(&mut self, packet: &str) -> Option<Decider> {
        let received = packet_syntax::read(packet, &self.replay.tables).ok()?;
        self.tries += 1;
        let at = Nanos::from_secs(1_700_000_000 + u64::from(self.tries));
        let account = self.replay.explain(received.ingress, at, self.tries, &received.bytes, &mut ());
        let visit = account.visits.iter().find(|visit| visit.stage == "filter")?;
        Some(if visit.after.rule == Meta::NO_RULE {
            Decider::Default
        } else {
            Decider::Rule(visit.after.rule)
        })
    }
}

/// Returns the addresses of the policy's interfaces, by their places among `names`.
/// Packets of an interface with Ethernet come from an address that nobody has, as those in words do.
pub(crate) fn places(policy: &Policy, names: &[String], macs: Option<&SourceMacs>) -> Places {
    let networks = names
        .iter()
        .map(|name| {
            let interface = policy.interface(name);
            let nets = interface.into_iter().flat_map(|interface| &interface.addresses);
            nets.map(|net| AddressRange { first: net.network(), last: net.broadcast() }).collect()
        })
        .collect();
    let all = policy.interfaces.iter().flat_map(|interface| &interface.addresses);
    let own = all.map(|net| AddressRange::single(net.addr())).collect();
    let sender = |name: &String| match (macs, policy.interface(name)) {
        (Some(macs), Some(interface)) if interface.link == LinkKind::Ethernet => macs.class(NOBODY.to_bits()),
        _ => NO_MAC,
    };
    Places { networks, own, senders: names.iter().map(sender).collect() }
}
