//! Rendering of the choice of a WAN.

use dataplane::explain::Visit;
use dataplane::tables::Grounds;
use dataplane::{Reason, Verdict, flag};
use policy::model::{Sticky, WanState, WhenDown};

use super::{Renderer, line};

impl Renderer<'_> {
    /// The WAN that a packet leaves by, and the grounds.
    pub(super) fn wan(&self, visit: &Visit, says: &mut Vec<String>) {
        let wans = &self.tables.wans;
        let after = &visit.after;
        let refused = [Verdict::Answered(Reason::RouteMissing), Verdict::Dropped(Reason::WanDown)];
        if let Some(choice) = visit.wan {
            let Some(wan) = wans.get(choice.wan) else { return };
            self.sets(visit, says);
            let name = self.wan_named(&wan.name);
            let share = || {
                let shares = wans.shares(after.family);
                let of = shares.get(usize::from(choice.wan.0)).copied().unwrap_or(0);
                let percent =
                    (of * 100 + shares.iter().sum::<usize>() / 2) / shares.iter().sum::<usize>().max(1);
                match wans.sticky {
                    Sticky::Connection => {
                        format!("{name}, which takes {percent} % of new flows, is this flow's by hash")
                    }
                    Sticky::Source => {
                        format!("{name}, which takes {percent} % of source addresses, is this one's by hash")
                    }
                }
            };
            says.push(match choice.grounds {
                Grounds::Source => format!("{name} has the packet's source address, of its own interface"),
                Grounds::PolicyRoute(place) => {
                    format!("{} matches: by {name}", self.policy_route(place))
                }
                Grounds::Share => share(),
                Grounds::FellBack(place) => {
                    format!("{} matches, and its WAN is down; {}", self.policy_route(place), share())
                }
            });
            return;
        }
        if refused.iter().any(|verdict| after.fate == verdict.to_fate()) && !wans.is_empty() {
            let is_dropped = after.fate == refused[1].to_fate();
            let opening = visit.opening.as_ref().map(|opening| opening.seen);
            let seen = opening.map(|seen| self.with_sets(seen, visit));
            let route = seen.and_then(|seen| wans.policy_route(&seen)).filter(|_| is_dropped);
            self.sets(visit, says);
            says.push(match route {
                Some(route) if route.when_down == WhenDown::Drop => {
                    let line = line(self.lines.policy_route(&route.name));
                    format!(
                        "policy route `{}`{line} matches, and has its flows dropped while its WAN is down",
                        route.name
                    )
                }
                _ => "no WAN is up that carries it".to_owned(),
            });
            return;
        }
        let is_kept = after.flags & flag::HIT != 0 && after.fate == 0;
        if let Some(wan) = wans.at(after.egress).and_then(|id| wans.get(id)).filter(|_| is_kept) {
            let state = if wan.state == WanState::Down { ", which is down" } else { "" };
            says.push(format!("the flow keeps {}{state}", self.wan_named(&wan.name)));
        }
    }

    fn wan_named(&self, name: &str) -> String {
        format!("WAN `{name}`{}", line(self.lines.wan(name)))
    }

    fn policy_route(&self, place: u16) -> String {
        let name = self.tables.wans.routes.get(usize::from(place)).map_or("?", |route| &route.name);
        format!("policy route `{name}`{}", line(self.lines.policy_route(name)))
    }
}
