//! Selectors of policy-based tunnels.

use ipnet::IpNet;
use wire::esp::Mode;

use super::{In, Validator};
use crate::diagnostic::Code;
use crate::lines::Item;
use crate::model::{Interface, SelectorPair, Tunnel, overlap};

/// Selectors of all tunnels, at most.
const MOST: usize = 16_384;

impl Validator<'_> {
    /// Reports selectors that no packet matches, or that others have been found for before.
    pub(super) fn selectors(&mut self) {
        let policy = self.policy;
        let mut before: Vec<(&Interface, &Tunnel, SelectorPair)> = Vec::new();
        for (index, interface) in policy.interfaces.iter().enumerate() {
            let Some(tunnel) = &interface.esp else { continue };
            let item = Item::Interface(index);
            if self.lines.is_broken(item) || !self.sides(item, tunnel) {
                continue;
            }
            let count = tunnel.local_net.len().saturating_mul(tunnel.remote_net.len());
            if before.len().saturating_add(count) > MOST {
                let message =
                    format!("more than {MOST} selectors: each of local-net with each of remote-net");
                self.wrong(Code::BadSelector, item, "remote-net", message, "write larger prefixes");
                return;
            }
            match tunnel.mode {
                Mode::Tunnel => self.own_links(item, tunnel),
                Mode::Transport => self.other_ends(item, tunnel),
            }
            // What goes around a tunnel may well go into another.
            let around = |of: &Tunnel, one: &SelectorPair, other: &SelectorPair| {
                let has = |pair: &SelectorPair| of.direct.iter().any(|net| net.contains(&pair.remote.net));
                has(one) || has(other)
            };
            let overlaps = tunnel.selectors().find_map(|own| {
                let (first, ..) = before.iter().find(|(_, first, other)| {
                    other.overlaps(&own) && !around(first, other, &own) && !around(tunnel, other, &own)
                })?;
                Some((own, first))
            });
            if let Some((own, first)) = overlaps {
                let message = format!(
                    "packets from {} to {} are those of \"{}\" too, which stands first and has them",
                    own.local.net, own.remote.net, first.name
                );
                let hint = format!("place the tunnel with the smaller prefixes before \"{}\"", first.name);
                self.wrong(Code::SelectorOverlap, item, "remote-net", message, hint);
            }
            before.extend(tunnel.selectors().map(|pair| (interface, &**tunnel, pair)));
        }
    }

    /// Reports sides that do not go together. True if they do.
    fn sides(&mut self, item: Item, tunnel: &Tunnel) -> bool {
        let (key, message, hint) = match (&tunnel.local_net[..], &tunnel.remote_net[..]) {
            ([], []) if tunnel.direct.is_empty() => return tunnel.is_by_policy(),
            ([], []) => (
                "direct",
                "`direct` without selectors".to_owned(),
                "routes say what goes into this tunnel, and what goes around: leave the key out, or add local-net and remote-net",
            ),
            ([], _) => ("remote-net", "`remote-net` without `local-net`".to_owned(), HALF),
            (_, []) => ("local-net", "`local-net` without `remote-net`".to_owned(), HALF),
            (local, remote) => {
                let has_other = |(index, one): (usize, &crate::model::SelectorEnd), others: &[_]| {
                    let is_alone = others.iter().all(|other| SelectorPair::of(*one, *other).is_none());
                    is_alone.then_some((index, one.net))
                };
                let alone = [("local-net", local, remote), ("remote-net", remote, local)]
                    .into_iter()
                    .find_map(|(key, ends, others)| {
                        let found = ends.iter().enumerate().find_map(|end| has_other(end, others));
                        found.map(|(index, net)| (key, index, net))
                    });
                let Some((key, index, net)) = alone else { return true };
                let other = if key == "local-net" { "remote-net" } else { "local-net" };
                let message = format!("nothing of `{other}` is of the IP version and protocol of {net}");
                let hint = format!("add a prefix of its version to `{other}`, or leave this one out");
                self.wrong_in(Code::BadSelector, In { item, key, index }, message, hint);
                return false;
            }
        };
        self.wrong(Code::BadSelector, item, key, message, hint);
        false
    }

    /// Reports selectors of transport mode for other addresses than those of both ends.
    fn other_ends(&mut self, item: Item, tunnel: &Tunnel) {
        let sides = [
            ("local-net", "local", Some(tunnel.local), &tunnel.local_net),
            ("remote-net", "remote", tunnel.remote, &tunnel.remote_net),
        ];
        for (key, of, end, list) in sides {
            let Some(end) = end else { continue };
            for (index, other) in list.iter().enumerate().filter(|(_, other)| other.net != IpNet::from(end)) {
                let message = format!("{} is not {end}, the `{of}` of transport mode", other.net);
                let hint = format!("packets keep their IP header: write \"{end}\", or leave both lists out");
                self.wrong_in(Code::TransportMode, In { item, key, index }, message, hint);
            }
        }
    }

    /// Reports networks of own links whose hosts are on both sides: they would reach neither one another nor the gateway.
    fn own_links(&mut self, item: Item, tunnel: &Tunnel) {
        let policy = self.policy;
        let links = policy.interfaces.iter().filter(|interface| interface.esp.is_none());
        for net in links.flat_map(|interface| &interface.addresses).map(IpNet::trunc) {
            let is_within = |pair: SelectorPair| {
                overlap(pair.local.net, net) && overlap(pair.remote.net, net) && pair.protocol.is_none()
            };
            if tunnel.direct.iter().any(|direct| direct.contains(&net)) || !tunnel.selectors().any(is_within)
            {
                continue;
            }
            let message =
                format!("hosts of {net}, a network of this gateway's, are on both sides of the tunnel");
            let hint =
                format!("add \"{net}\" to `direct`, or they reach neither one another nor the gateway");
            self.wrong(Code::SelectorOverlap, item, "remote-net", message, hint);
        }
    }
}

const HALF: &str = "give both, or neither for a tunnel that routes lead into";
