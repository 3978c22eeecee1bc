//! Rules and translations of nftables, carried over into the zones of the answers.
//!
//! The importer gives each interface a zone of its own; here they become `wan` and `lan`. A rule about interfaces that the policy does not
//! have is left out, and listed. Chains that let pass what no rule decides do not make the policy do so: what the answers do not
//! open stays shut.

use policy::Policy;
use policy::import::{self, ImportError};
use policy::model::{
    ANY_ZONE, Action, AddressItem, AddressRange, Addresses, Conditions, Nat, NatAction, OTHER_ZONE,
    PortRange, Rule, SELF_ZONE,
};

use super::answer::Answers;

/// Rules and translations carried over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    /// Sets, translations and rules, as text of a policy.
    pub(crate) text: String,
    /// Rules that are not in the policy, or not in whole, each with the reason.
    pub(crate) left_out: Vec<String>,
    /// Assumptions of the import.
    pub(crate) notes: Vec<String>,
    /// True if a chain drops what no rule lets through the machine.
    pub(crate) filters_forwarding: bool,
    /// True if a chain drops what no rule lets to the machine itself.
    pub(crate) filters_input: bool,
    /// True if sources are translated on the way to the internet.
    pub(crate) translates_sources: bool,
    names: Vec<String>,
    nats: Vec<String>,
}

impl Carried {
    /// `name`, or one like it that no rule carried over has.
    pub(crate) fn unused_rule(&self, name: &str) -> String {
        unused(name, &self.names)
    }

    /// `name`, or one like it that no translation carried over has.
    pub(crate) fn unused_nat(&self, name: &str) -> String {
        unused(name, &self.nats)
    }
}

fn unused(name: &str, taken: &[String]) -> String {
    let mut found = name.to_owned();
    while taken.contains(&found) {
        found.push_str("-init");
    }
    found
}

/// Carries over what `nft -j list ruleset` printed.
pub(crate) fn carry(ruleset: &[u8], answers: &Answers) -> Result<Carried, ImportError> {
    let Some(importer) = import::find("nft") else { return Ok(Carried::default()) };
    let imported = importer.import(ruleset, None)?;
    let mut carried = Carried::default();
    if imported.count.rules == 0 {
        return Ok(carried);
    }
    let policy = imported.policy;
    let drops = |to: &str| {
        policy
            .defaults
            .iter()
            .any(|default| default.from == ANY_ZONE && default.to == to && default.action != Action::Accept)
    };
    let opens = |way| policy.rules.iter().any(|rule| is_for_all(rule, way) && rule.action == Action::Accept);
    carried.filters_forwarding = drops(ANY_ZONE) && !opens(Way::Through);
    carried.filters_input = drops(SELF_ZONE) && !opens(Way::In);
    carried.left_out = imported.untranslated.iter().map(ToString::to_string).collect();
    carried.notes = imported
        .notes
        .iter()
        .filter(|note| {
            !matches!(note.kind, import::NoteKind::Zones | import::NoteKind::FillInAddresses { .. })
        })
        .map(ToString::to_string)
        .collect();
    let zones = Zones { answers };
    let mut kept = Policy { sets: policy.sets, dynamic_sets: policy.dynamic_sets, ..Policy::default() };
    for mut nat in policy.nats {
        if zones.rename(&mut nat.from) && zones.rename(&mut nat.to) {
            carried.translates_sources |= matches!(
                nat.action,
                NatAction::Masquerade { .. }
                    | NatAction::Source { .. }
                    | NatAction::OneToOne { .. }
                    | NatAction::Npt { .. }
            );
            kept.nats.push(nat);
        } else {
            carried.left_out.push(format!("translation {}: interfaces that are not here", nat.name));
        }
    }
    for mut rule in policy.rules {
        let way = [Way::In, Way::Through].into_iter().find(|way| is_for_all(&rule, *way));
        let filters = match way {
            Some(Way::In) => carried.filters_input,
            Some(Way::Through) => carried.filters_forwarding,
            None => true,
        };
        if !filters {
            if !OF_CHAINS.iter().any(|name| rule.name.starts_with(name)) && rule.action == Action::Accept {
                carried.left_out.push(format!("rule {}: it accepts everything", rule.name));
            }
            continue;
        }
        let conditions = &mut rule.conditions;
        if zones.rename(&mut conditions.from) && zones.rename(&mut conditions.to) {
            kept.rules.push(rule);
        } else {
            carried.left_out.push(format!("rule {}: interfaces that are not here", rule.name));
        }
    }
    // Linux let through what it had translated.
    if !carried.filters_forwarding && !answers.lan.is_empty() {
        let opened: Vec<Rule> = kept.nats.iter().filter_map(opening).collect();
        kept.rules.extend(opened);
    }
    if !carried.filters_input {
        let opened: Vec<Rule> = kept.nats.iter().filter_map(opening_to_self).collect();
        kept.rules.extend(opened);
    }
    carried.names = kept.rules.iter().map(|rule| rule.name.clone()).collect();
    carried.nats = kept.nats.iter().map(|nat| nat.name.clone()).collect();
    carried.text = kept.to_string();
    Ok(carried)
}

/// Names that the importer gives to what chains do with the rest.
const OF_CHAINS: [&str; 2] = ["input-policy", "forward-policy"];

/// Way of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// To the machine itself.
    In,
    /// Through it.
    Through,
}

/// True if a rule is for all packets of a way, of one IP version at least.
fn is_for_all(rule: &Rule, way: Way) -> bool {
    let to = if way == Way::In { vec![SELF_ZONE.to_owned()] } else { Vec::new() };
    let family = rule.conditions.family;
    rule.conditions == Conditions { to, family, ..Conditions::default() }
}

struct Zones<'a> {
    answers: &'a Answers,
}

impl Zones<'_> {
    /// Renames zones; false where none of several is left, so that the condition could not hold.
    fn rename(&self, zones: &mut Vec<String>) -> bool {
        let before = std::mem::take(zones);
        for zone in &before {
            let name = match zone.as_str() {
                SELF_ZONE | OTHER_ZONE => zone.as_str(),
                interface if self.answers.wan.iter().any(|name| name == interface) => "wan",
                interface if self.answers.lan.iter().any(|name| name == interface) => "lan",
                _ => continue,
            };
            if !zones.iter().any(|there| there == name) {
                zones.push(name.to_owned());
            }
        }
        before.is_empty() || !zones.is_empty()
    }
}

/// Rule that accepts what a redirect leads to the machine itself.
fn opening_to_self(nat: &Nat) -> Option<Rule> {
    let NatAction::Redirect { ports, to_port } = &nat.action else { return None };
    let dports = to_port.map_or_else(|| ports.clone(), |port| vec![PortRange::single(port)]);
    Some(Rule {
        name: format!("{}-in", nat.name),
        conditions: Conditions {
            from: nat.from.clone(),
            to: vec![SELF_ZONE.to_owned()],
            source: nat.source.clone(),
            protocols: nat.protocols.clone(),
            dports,
            ..Conditions::default()
        },
        action: Action::Accept,
        ..Rule::default()
    })
}

/// Rule that accepts what a port forward translates.
fn opening(nat: &Nat) -> Option<Rule> {
    let NatAction::Forward { ports, target, target_port, .. } = &nat.action else { return None };
    let dports = match (target_port, &ports[..]) {
        (None, ports) => ports.to_vec(),
        (Some(first), [range]) => {
            vec![PortRange { first: *first, last: first.saturating_add(range.last - range.first) }]
        }
        // Several ranges follow one another from the first port on; the rule leaves ports out.
        (Some(_), _) => Vec::new(),
    };
    let range = AddressRange { first: *target, last: *target };
    Some(Rule {
        name: format!("{}-in", nat.name),
        conditions: Conditions {
            from: nat.from.clone(),
            to: vec!["lan".to_owned()],
            destination: Addresses { items: vec![AddressItem::Range(range)], except: false },
            protocols: nat.protocols.clone(),
            dports,
            ..Conditions::default()
        },
        action: Action::Accept,
        ..Rule::default()
    })
}
