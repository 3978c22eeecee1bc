//! Whether a policy makes sense: names that mean something, addresses where they can be, rules that can match.
//!
//! Every check reports all that it finds. Things of which something could not be read are passed over, and so
//! are conclusions from them, so that one mistake is not reported twice.

use std::collections::HashSet;
use std::sync::Arc;

use crate::diagnostic::{Code, Diagnostic};
use crate::lines::{Item, Lines};
use crate::model::{Mode, Policy};

use reach::Reach;
pub use reach::interface_of;
use space::{Space, Spaces};

mod cover;
mod gateway;
mod interface;
mod limit;
mod name;
mod nat;
mod pool;
mod reach;
mod route;
mod rule;
mod shape;
mod space;

/// Says what is wrong with `policy`, and what is without effect or unwise. `lines` says where things stand;
/// `Lines::default()` for a policy that came from no text.
pub fn validate(policy: &Policy, lines: &Lines) -> Vec<Diagnostic> {
    let known = !lines.any_broken(Item::Interface(0)) && !lines.any_broken(Item::Route(0));
    let own = Arc::new(reach::own_addresses(policy));
    let mut validator = Validator {
        policy,
        lines,
        zones: policy.zones().into_iter().collect(),
        interfaces: policy.interfaces.iter().map(|interface| interface.name.as_str()).collect(),
        spaces: Spaces::of(&policy.sets),
        reach: (known && !policy.interfaces.is_empty()).then(|| Reach::of(policy, &own)),
        own,
        diagnostics: Vec::new(),
    };
    validator.names();
    validator.interfaces();
    validator.routes();
    validator.defaults();
    validator.rules();
    validator.nats();
    validator.pools();
    validator.shadowed_nats();
    validator.limits();
    validator.timeouts();
    validator.rule_timeouts();
    validator.gateway();
    validator.diagnostics
}

/// What the checks share.
struct Validator<'a> {
    policy: &'a Policy,
    lines: &'a Lines,
    zones: HashSet<&'a str>,
    interfaces: HashSet<&'a str>,
    spaces: Spaces<'a>,
    /// The gateway's own addresses.
    own: Arc<Space>,
    /// Where addresses are; `None` if that is not known.
    reach: Option<Reach<'a>>,
    diagnostics: Vec<Diagnostic>,
}

impl Validator<'_> {
    fn report(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    /// Reports what is wrong with the value of a thing's key.
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

    /// Reports what is wrong with an item of the list that is the value of a thing's key.
    fn wrong_in(&mut self, code: Code, at: In<'_>, message: String, hint: impl Into<String>) {
        let place = self.lines.place_in(at.item, at.key, at.index);
        self.report(Diagnostic::new(code, message).hint(hint).at(place));
    }

    fn is_stateless(&self) -> bool {
        self.policy.mode == Mode::Stateless
    }
}

/// An item of the list that is the value of a thing's key.
#[derive(Clone, Copy)]
struct In<'a> {
    item: Item,
    key: &'a str,
    index: usize,
}
