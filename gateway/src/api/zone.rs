//! `GET /zones`: the zones of the policy in force, and for each two the default and the rules about them.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use policy::Policy;
use policy::model::{Action, OTHER_ZONE, Rule, SELF_ZONE};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Answer, Desk, failed, trouble};
use crate::request::Request;
use crate::view::action;

/// Zones and what may pass between them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ZoneMap {
    /// Zones: those of interfaces, `self`, and `other` where the policy names it.
    pub zones: Vec<ZoneView>,
    /// Pairs of zones between which something may pass, or about which there is a rule.
    pub pairs: Vec<PairView>,
}

/// A zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ZoneView {
    /// Name.
    pub name: String,
    /// Interfaces; none of `self` and `other`.
    pub interfaces: Vec<String>,
}

/// Connections from one zone to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PairView {
    /// Zone of origin.
    pub from: String,
    /// Zone of destination.
    pub to: String,
    /// Action for connections that no rule decides: `accept`, `drop` or `reject`.
    pub default: String,
    /// First rules about the pair, in their order.
    pub rules: Vec<PairRule>,
    /// Number of all rules about the pair.
    pub rules_total: usize,
}

/// A rule about a pair of zones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PairRule {
    /// Name.
    pub name: String,
    /// `accept`, `drop` or `reject`.
    pub action: String,
}

/// Rules listed of a pair, at most.
const MOST: usize = 50;

/// Pairs times rules, at most: the work of a map.
const MOST_WORK: usize = 4_000_000;

pub(super) async fn zones(State(desk): State<Desk>) -> Answer<Json<ZoneMap>> {
    let policy = desk.ask(Request::Policy).await?;
    let map = tokio::task::spawn_blocking(move || map_of(&policy)).await;
    let map = map.map_err(|_| failed("the zones could not be listed"))?;
    map.map(Json).ok_or_else(|| {
        let error = "the policy has too many zones and rules for a map";
        trouble(StatusCode::UNPROCESSABLE_ENTITY, error, "`wirerate explain` says what becomes of a packet")
    })
}

fn map_of(policy: &Policy) -> Option<ZoneMap> {
    let mut names: Vec<&str> = policy.zones();
    if policy.admits_other() {
        names.push(OTHER_ZONE);
    }
    names.push(SELF_ZONE);
    let zones = names.iter().map(|zone| ZoneView {
        name: (*zone).to_owned(),
        interfaces: policy
            .interfaces
            .iter()
            .filter(|interface| interface.zone == *zone)
            .map(|interface| interface.name.clone())
            .collect(),
    });
    let zones = zones.collect();
    if names.len() * names.len() * policy.rules.len().max(1) > MOST_WORK {
        return None;
    }
    let mut pairs = Vec::new();
    // Packets of the gateway itself meet no rules, and those that Linux forwards leave by interfaces of the policy.
    for from in names.iter().filter(|zone| **zone != SELF_ZONE) {
        for to in names.iter().filter(|zone| **zone != OTHER_ZONE) {
            let about: Vec<&Rule> =
                policy.rules.iter().filter(|rule| is_about(rule, from, to, policy)).collect();
            let default = policy.default_action(from, to);
            if about.is_empty() && default == Action::Drop {
                continue;
            }
            pairs.push(PairView {
                from: (*from).to_owned(),
                to: (*to).to_owned(),
                default: action(default).to_owned(),
                rules: about
                    .iter()
                    .take(MOST)
                    .map(|rule| PairRule { name: rule.name.clone(), action: action(rule.action).to_owned() })
                    .collect(),
                rules_total: about.len(),
            });
        }
    }
    Some(ZoneMap { zones, pairs })
}

/// True if a rule may match packets from one zone to another, by its zones and interfaces.
fn is_about(rule: &Rule, from: &str, to: &str, policy: &Policy) -> bool {
    let zone_of = |name: &String| policy.interface(name).map(|interface| interface.zone.as_str());
    let has = |zones: &[String], interfaces: &[String], zone: &str| {
        (zones.is_empty() || zones.iter().any(|named| named == zone))
            && (interfaces.is_empty() || interfaces.iter().any(|name| zone_of(name) == Some(zone)))
    };
    let conditions = &rule.conditions;
    // A rule without `from` is not about packets that Linux forwards.
    let is_left_out = from == OTHER_ZONE && conditions.from.is_empty();
    !is_left_out
        && has(&conditions.from, &conditions.in_interfaces, from)
        && has(&conditions.to, &conditions.out_interfaces, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_has_its_rules_and_its_default() {
        let text = "[interface.a]\nzone = \"lan\"\naddresses = [\"192.0.2.1/25\"]\n[interface.b]\nzone = \"wan\"\n\
                    addresses = [\"192.0.2.129/25\"]\n[default]\n\"lan > wan\" = \"accept\"\n\
                    [[rule]]\nname = \"ssh\"\nfrom = \"lan\"\nto = \"self\"\nprotocol = \"tcp\"\ndport = 22\naction = \"accept\"\n\
                    [[rule]]\nname = \"no-mail\"\nprotocol = \"tcp\"\ndport = 25\naction = \"reject\"\n";
        let policy = policy::parse(text, "policy").policy.unwrap();
        let map = map_of(&policy).unwrap();
        let names: Vec<&str> = map.zones.iter().map(|zone| zone.name.as_str()).collect();
        assert_eq!(names, ["lan", "wan", "self"]);
        let pair = |from: &str, to: &str| {
            let pair = map.pairs.iter().find(|pair| (&*pair.from, &*pair.to) == (from, to)).unwrap();
            let rules: Vec<&str> = pair.rules.iter().map(|rule| rule.name.as_str()).collect();
            (pair.default.clone(), rules)
        };
        assert_eq!(pair("lan", "wan"), ("accept".to_owned(), vec!["no-mail"]));
        assert_eq!(pair("lan", "self"), ("drop".to_owned(), vec!["ssh", "no-mail"]));
        assert_eq!(pair("wan", "lan"), ("drop".to_owned(), vec!["no-mail"]));
        assert!(map.pairs.iter().all(|pair| pair.from != "self"));
    }
}
