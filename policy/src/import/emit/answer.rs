//! Answers: packets of established connections, which bypass the rules here.
//!
//! A source that drops packets before it accepts those of established connections drops the answers among them, too, so the
//! connection never gets anywhere. Here such a connection is refused: the rule is repeated in front of the others, with its
//! direction reversed. A rule that cannot be reversed is listed as incomplete.

use super::Emit;
use crate::import::IpVersion;
use crate::import::chain::{Entry, Listing, Verdict, What};
use crate::import::cond::{Cond, ESTABLISHED, NEW, RELATED, STATES};
use crate::import::note::{NoteKind, Why};
use crate::import::range::ByteSet;
use crate::model::{Protocol, TcpFlagsMatch};

/// Path of a listing's packets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// To the gateway, whose answers traverse other hooks.
    Inside,
    /// Through the gateway, as the answers do.
    Through,
}

/// A rule that drops packets of established connections, with its direction reversed.
enum Turned {
    /// Condition for the connections whose answers match.
    To(Box<Cond>),
    /// No reversal needed: the rule matches the first packet of a connection, or none of a connection.
    Needless,
    /// No reversal possible: the matching packets are not seen here.
    Lost,
}

impl Emit {
    /// Notes the packets of established connections that the source drops, and returns the rules for connections whose answers
    /// it drops.
    pub(super) fn established(&mut self, listing: &Listing, way: Way) -> Vec<Entry> {
        let mut open = [IpVersion::V4, IpVersion::V6].map(|version| self.found.silent != Some(version));
        let mut passed: Vec<&Entry> = Vec::new();
        let mut turned = Vec::new();
        for entry in &listing.entries {
            let What::Do(verdict) = &entry.what else { continue };
            let (v4, v6) = entry.cond.families();
            let meets = open[0] && v4 || open[1] && v6;
            if entry.cond.states & ESTABLISHED == 0 || !meets {
                continue;
            }
            let drops = matches!(verdict, Verdict::Drop | Verdict::Reject(_));
            let wide = entry.limit.is_none() && entry.cond.is_wide();
            // A drop of established packets only is missing, and listed as such.
            if drops && entry.cond.states & NEW != 0 {
                if wide {
                    self.note(None, NoteKind::EstablishedPass);
                } else if entry.limit.is_none() {
                    turned.extend(self.before_established(entry, &passed, way));
                }
            }
            if *verdict == Verdict::Accept && !wide {
                passed.push(entry);
            }
            if wide && (drops || *verdict == Verdict::Accept) {
                open = [open[0] && !v4, open[1] && !v6];
            }
        }
        if listing.drops && open != [false, false] {
            self.note(None, NoteKind::EstablishedPass);
        }
        turned
    }

    /// Returns the rule for connections whose answers the rule of `entry` drops.
    fn before_established(&mut self, entry: &Entry, passed: &[&Entry], way: Way) -> Option<Entry> {
        // States of packets that no earlier rule has accepted.
        let mut left = entry.cond.states & (ESTABLISHED | RELATED);
        for Entry { cond: other, .. } in passed.iter().filter(|other| other.limit.is_none()) {
            self.tire(other);
            let part = Cond { states: left & other.states, ..entry.cond.clone() };
            if self.patience > 0 && part.is_within(other) {
                left &= !other.states;
            }
        }
        if left == 0 {
            return None;
        }
        let of = match turn(&entry.cond, way) {
            // What is for the gateway before its translation is known by another address.
            Turned::To(_) if way == Way::Through && self.is_hidden(entry) => Turned::Lost,
            Turned::To(cond) if way == Way::Through => {
                // Some of the answers are let through before.
                let pass = passed.iter().any(|other| {
                    self.tire(&other.cond);
                    self.patience == 0 || other.cond.meets(&entry.cond)
                });
                if pass { Turned::Lost } else { Turned::To(cond) }
            }
            other => other,
        };
        match of {
            Turned::To(_) if way == Way::Inside => {
                self.note(self.origin(entry), NoteKind::BeforeEstablished);
                None
            }
            Turned::To(cond) => {
                if has_errors_of_others(&entry.cond) {
                    self.miss(entry.rule, Why::State);
                }
                self.note(self.origin(entry), NoteKind::AnswersRefused);
                let what = What::Do(Verdict::Drop);
                Some(Entry { cond: *cond, what, log: false, ..entry.clone() })
            }
            Turned::Needless => None,
            Turned::Lost => {
                self.miss(entry.rule, Why::State);
                None
            }
        }
    }

    /// True if the rule sees answers before their destination translation is reversed.
    fn is_hidden(&self, entry: &Entry) -> bool {
        let early = entry.rule.is_some_and(|rule| self.early.contains(&rule));
        early && entry.cond.is_aimed() && !self.found.postrouting.is_empty()
    }
}

/// Reverses a condition: returns the condition for connections whose answers match `cond`.
fn turn(cond: &Cond, way: Way) -> Turned {
    let flagged = cond.flags.filter(|flags| flags.mask != 0);
    match flagged {
        Some(flags) if is_later(flags) => return Turned::Lost,
        // What tracking drops whatever the rules say, or what opens a connection.
        Some(_) => return Turned::Needless,
        None if !ByteSet::CODE_POINTS.is_within(cond.dscp) => return Turned::Lost,
        None => {}
    }
    let mut icmp_types = cond.icmp_types;
    if !icmp_types.is_all() {
        icmp_types = ByteSet::NONE;
        let v6 = cond.protocols.contains(58);
        let pairs: &[(u8, u8)] = if v6 { &[(128, 129)] } else { &[(8, 0), (13, 14), (15, 16), (17, 18)] };
        for &(query, answer) in pairs {
            if cond.icmp_types.contains(answer) {
                icmp_types.insert(query);
            }
        }
        if icmp_types.is_empty() {
            // Queries begin connections; errors belong to others.
            return if way == Way::Through && has_errors(cond, v6) { Turned::Lost } else { Turned::Needless };
        }
    }
    // A connection's first packet does not show who its answers come from.
    if cond.source_macs.is_some() && way == Way::Through {
        return Turned::Lost;
    }
    Turned::To(Box::new(Cond {
        inward: cond.outward.clone(),
        outward: cond.inward.clone(),
        source_macs: None,
        source: cond.destination.clone(),
        destination: cond.source.clone(),
        members: cond.members.turned(),
        to_gateway: false,
        protocols: cond.protocols,
        sports: cond.dports.clone(),
        dports: cond.sports.clone(),
        icmp_types,
        icmp_codes: ByteSet::ALL,
        flags: None,
        dscp: cond.dscp,
        states: STATES,
        // Of the connection, whichever way.
        dnat: cond.dnat,
    }))
}

fn has_errors(cond: &Cond, v6: bool) -> bool {
    let errors: &[u8] = if v6 { &[1, 2, 3, 4] } else { &[3, 4, 11, 12] };
    errors.iter().any(|&kind| cond.icmp_types.contains(kind))
}

/// True if a protocol condition matches ICMP errors about connections of other protocols, but not those connections.
fn has_errors_of_others(cond: &Cond) -> bool {
    let (v4, v6) = cond.families();
    let is_asked = |of_family, icmp| of_family && cond.protocols.contains(icmp);
    !cond.protocols.is_all()
        && cond.icmp_types.is_all()
        && (is_asked(v4, Protocol::ICMP.0) || is_asked(v6, Protocol::ICMPV6.0))
}

/// True if a later segment of a connection may have flags that match.
fn is_later(flags: TcpFlagsMatch) -> bool {
    const FIN: u8 = 1;
    const SYN: u8 = 2;
    const RST: u8 = 4;
    const ACK: u8 = 16;
    (0..=u8::MAX).any(|found| {
        let sound = match found & (SYN | RST | FIN) {
            0 | SYN | FIN => found & ACK != 0,
            RST => true,
            _ => false,
        };
        sound && found & flags.mask == flags.value
    })
}
