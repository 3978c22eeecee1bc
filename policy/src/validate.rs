//! Semantic checks of policies: known names, reachable addresses, rules that can match.
//!
//! Every check reports all its findings. Items of which a part could not be read are passed over, as are conclusions from
//! them, so that one mistake is not reported twice.

use std::collections::HashSet;
use std::sync::Arc;

use crate::diagnostic::{Code, Diagnostic};
use crate::lines::{Item, Lines};
use crate::model::{Mode, Policy};

pub(crate) use reach::hop_interface;
pub use reach::interface_of;

use reach::Reach;
use space::{Space, Spaces};

mod atm;
mod check;
mod class;
mod clat;
mod cover;
mod dynamic_set;
mod gateway;
mod interface;
mod limit;
mod multicast;
mod name;
mod nat;
mod pool;
mod port_mapping;
mod ppp;
mod queue;
mod reach;
mod route;
mod rule;
mod selector;
mod shape;
mod space;
mod tunnel;
mod vrf;
mod wan;

/// Reports errors in `policy`, and parts without effect or unwise. `lines` has the positions of items; `Lines::default()`
/// for a policy that came from no text.
pub fn validate(policy: &Policy, lines: &Lines) -> Vec<Diagnostic> {
    let known = !lines.any_broken(Item::Interface(0)) && !lines.any_broken(Item::Route(0));
    let known = known && !lines.any_broken(Item::Wan(0));
    let own = Arc::new(reach::own_addresses(policy, None));
    let mut validator = Validator {
        policy,
        lines,
        zones: policy.zones().into_iter().collect(),
        interfaces: policy.interfaces.iter().map(|interface| interface.name.as_str()).collect(),
        spaces: Spaces::of(&policy.sets, &policy.dynamic_sets),
        reach: (known && !policy.interfaces.is_empty()).then(|| Reach::of(policy)),
        own,
        diagnostics: Vec::new(),
    };
    validator.names();
    validator.interfaces();
    validator.vrfs();
    validator.cross_connects();
    validator.tunnels();
    validator.routes();
    validator.wans();
    validator.policy_routes();
    validator.multicast_routes();
    validator.dynamic_sets();
    validator.defaults();
    validator.rules();
    validator.classes();
    validator.meters();
    validator.queues();
    validator.nats();
    validator.pools();
    validator.shadowed_nats();
    validator.limits();
    validator.timeouts();
    validator.rule_timeouts();
    validator.gateway();
    validator.diagnostics
}

/// State shared by the checks.
struct Validator<'a> {
    policy: &'a Policy,
    lines: &'a Lines,
    zones: HashSet<&'a str>,
    interfaces: HashSet<&'a str>,
    spaces: Spaces<'a>,
    /// The gateway's own addresses in the default VRF.
    own: Arc<Space>,
    /// Reachable addresses of each zone; `None` if unknown.
    reach: Option<Reach<'a>>,
    diagnostics: Vec<Diagnostic>,
}

impl Validator<'_> {
    fn report(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    /// Reports an error in the value of an item's key.
    fn wrong(
        &mut self,
        code: impl Into<Code>,
        item: Item,
        key: &str,
        message: String,
        hint: impl Into<String>,
    ) {
        let place = self.lines.place_of(item, key);
        self.report(Diagnostic::new(code, message).hint(hint).at(place));
    }

    /// Reports an error in one element of the list at an item's key.
    fn wrong_in(&mut self, code: Code, at: In<'_>, message: String, hint: impl Into<String>) {
        let place = self.lines.place_in(at.item, at.key, at.index);
        self.report(Diagnostic::new(code, message).hint(hint).at(place));
    }

    fn is_stateless(&self) -> bool {
        self.policy.mode == Mode::Stateless
    }
}

/// One element of the list at an item's key.
#[derive(Clone, Copy)]
struct In<'a> {
    item: Item,
    key: &'a str,
    index: usize,
}
