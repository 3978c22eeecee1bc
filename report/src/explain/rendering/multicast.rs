//! Rendering of multicast routes and copies.

use std::net::IpAddr;

use dataplane::explain::{CopyEnd, Visit};
use dataplane::multicast::INTERVAL;
use dataplane::tables::MulticastRoute;
use dataplane::{Reason, Verdict};
use tally::NoTally;

use super::{Description, Renderer};

impl Renderer<'_> {
    /// The multicast route of a packet, and the interfaces that it leads to.
    pub(super) fn replicate(&self, visit: &Visit, bytes: &[u8], says: &mut Vec<String>) {
        let description = Description::of(bytes);
        let address = |field| description.field(field).and_then(|text| text.parse::<IpAddr>().ok());
        let (Some(source), Some(group)) = (address("source"), address("destination")) else { return };
        let Some(route) = self.tables.multicast.find(source.into(), group.into(), &mut NoTally) else {
            says.push(match visit.after.fate == Verdict::Delivered.to_fate() {
                true => format!(
                    "no multicast route has {group}: its header is given to Linux, whose multicast router asks its daemon for one, each {} s",
                    INTERVAL.as_secs_f64()
                ),
                false => format!("no multicast route has {group}"),
            });
            return;
        };
        says.push(self.multicast_route(route));
        let fate = Verdict::of_fate(visit.after.fate);
        says.push(match fate {
            Some(Verdict::Dropped(Reason::MulticastInterface)) => {
                format!("it came by {}", self.interface(visit.after.ingress))
            }
            Some(Verdict::Dropped(Reason::MulticastTtl)) => {
                "its time to live is above the threshold of none".to_owned()
            }
            Some(Verdict::Dropped(Reason::SourceSpoofed)) => {
                format!("no route leads back to the source {source} this way")
            }
            Some(_) => "it goes nowhere".to_owned(),
            None => format!(
                "goes on as the copy for {}; the others follow by themselves, from here on",
                self.interface(visit.after.egress)
            ),
        });
    }

    fn multicast_route(&self, route: &MulticastRoute) -> String {
        let source = route.source.map_or_else(String::new, |source| format!(" from the source {source}"));
        let exits: Vec<String> = route
            .exits
            .iter()
            .map(|exit| match exit.threshold {
                1 => self.interface(exit.interface).to_owned(),
                threshold => format!("{} (TTL above {threshold})", self.interface(exit.interface)),
            })
            .collect();
        let exits = if exits.is_empty() { "nowhere".to_owned() } else { exits.join(", ") };
        format!(
            "the multicast route of {}{source} leads from {} to {exits}",
            route.group,
            self.interface(route.from)
        )
    }

    /// Outcome of a further copy.
    pub(in crate::explain) fn copy(&self, copy: &CopyEnd) -> String {
        let rule = self.rule(copy.rule).map_or_else(String::new, |rule| format!(", by {rule}"));
        format!("The copy for {}: {}{rule}", self.interface(copy.egress), copy.verdict)
    }
}
