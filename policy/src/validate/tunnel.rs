//! Tunnels: their ends, the routes to the peers and into the tunnels, and security associations.

use std::collections::HashMap;

use ipnet::IpNet;
use wire::esp::{Direction, Esn, LEAST_SPI, Mode, Standing, Udp};
use wire::ipv6;

use super::interface::unusable;
use super::{In, Validator};
use crate::diagnostic::{Code, Diagnostic};
use crate::lines::Item;
use crate::model::{
    Binding, Follow, FragmentWhen, Interface, KeySource, Legacy, Lifetime, Policy, RouteTarget, StaticSa,
    Tunnel, WindowSize,
};
use crate::tunnel::{LEAST_MTU, interfaces_to, mtu};

impl<'a> Validator<'a> {
    pub(super) fn tunnels(&mut self) {
        let policy = self.policy;
        // What could not be read is missing from everything that is concluded below.
        let is_known = !self.lines.any_broken(Item::Interface(0)) && !self.lines.any_broken(Item::Route(0));
        for (index, interface) in policy.interfaces.iter().enumerate() {
            let Some(tunnel) = &interface.esp else { continue };
            let item = Item::Interface(index);
            if tunnel.remote.is_none() && !self.lines.is_broken(item) {
                self.any_peer(item, tunnel);
            }
            if is_known && self.ends(item, tunnel) {
                self.way_to_peer(item, interface, tunnel);
                if !tunnel.is_by_policy() {
                    self.way_into(item, interface);
                }
                self.room(index, interface, tunnel);
            }
            if tunnel.mode == Mode::Transport {
                self.networks_behind(item, interface);
            }
            self.window(item, tunnel);
            self.fragments(item, tunnel);
            self.sas(item, interface, tunnel);
            self.key_source(item, tunnel);
        }
        self.bindings();
        self.selectors();
        self.spis();
        self.keys_used_twice();
    }

    /// Reports ends that no tunnel can have. Returns true if there are none.
    fn ends(&mut self, item: Item, tunnel: &Tunnel) -> bool {
        let Tunnel { local, remote, .. } = tunnel;
        // Without an address of the peer none can be wrong.
        let remote = remote.as_ref();
        let links = || self.policy.interfaces.iter().filter(|interface| interface.esp.is_none());
        let own: Vec<_> = links().flat_map(|interface| &interface.addresses).map(IpNet::addr).collect();
        let (key, message, hint) = if !own.contains(local) {
            let message = format!("{local} is no address of a link of this gateway");
            let listed: Vec<String> = own.iter().map(ToString::to_string).collect();
            let hint = match listed[..] {
                [] => "give the interface that leads to the peer an address".to_owned(),
                _ => format!("`local` is one of: {}", listed.join(", ")),
            };
            ("local", message, hint)
        } else if let Some(remote) = remote.filter(|remote| local.is_ipv4() != remote.is_ipv4()) {
            let message = format!("{local} and {remote} are of different IP versions");
            ("remote", message, "give the peer's address of the version of `local`".to_owned())
        } else if let Some(remote) = remote.filter(|remote| self.own.contains(**remote)) {
            let message = format!("the peer {remote} is the gateway itself");
            ("remote", message, "give the address of the gateway at the other end".to_owned())
        } else if let Some((remote, why)) =
            remote.and_then(|remote| Some((remote, unusable(IpNet::from(*remote))?)))
        {
            let message = format!("{remote} cannot be a peer: it is {why}");
            ("remote", message, "give the address of the gateway at the other end".to_owned())
        } else {
            return true;
        };
        self.wrong(Code::TunnelEnds, item, key, message, hint);
        false
    }

    /// Reports keys that do not go with a peer whose address is not known before.
    fn any_peer(&mut self, item: Item, tunnel: &Tunnel) {
        if tunnel.mode == Mode::Transport {
            let message = "the peer's address is in the header of each packet of transport mode".to_owned();
            let hint = "give the peer's address, or write mode = \"tunnel\"";
            self.wrong(Code::TransportMode, item, "remote", message, hint);
        }
        if tunnel.keys == KeySource::Policy && tunnel.follow == Follow::No {
            let message = "a peer without an address is not followed to where it is".to_owned();
            let hint = "leave `follow` out, or give the peer's address";
            self.wrong(Code::TunnelEnds, item, "follow", message, hint);
        }
        if tunnel.keys == KeySource::Ike && matches!(tunnel.binding(), Binding::Ends(..)) {
            let message = "security associations with any peer would be the tunnel's".to_owned();
            let hint = "give it an `if-id` or a `reqid`, as the IKE daemon's configuration has it";
            self.wrong(Code::TunnelKeys, item, "remote", message, hint);
        }
    }

    /// Reports a peer that no route leads to, or one that leads through a tunnel.
    fn way_to_peer(&mut self, item: Item, interface: &Interface, tunnel: &Tunnel) {
        let Some(remote) = tunnel.remote else { return };
        let ways = interfaces_to(self.policy, remote);
        let into = ways.iter().map(|way| &self.policy.interfaces[*way]).find(|way| way.esp.is_some());
        if let Some(into) = into {
            let message = format!(
                "the route to {remote}, the peer of \"{}\", leads into the tunnel \"{}\"",
                interface.name, into.name
            );
            let hint = format!("add a route to {remote} by an interface that is no tunnel");
            self.wrong(Code::TunnelLoop, item, "remote", message, hint);
        } else if ways.is_empty() {
            let message = format!("no route leads to {remote}, the peer of \"{}\"", interface.name);
            self.wrong(Code::TunnelUnrouted, item, "remote", message, format!("add a [[route]] to {remote}"));
        }
    }

    /// Reports a tunnel that no packet is routed into.
    fn way_into(&mut self, item: Item, interface: &Interface) {
        if interface.addresses.is_empty() && self.routes_into(&interface.name).next().is_none() {
            let name = &interface.name;
            let message = format!("no route leads into the tunnel \"{name}\"");
            let hint = format!("add a [[route]] with interface = \"{name}\", or local-net and remote-net");
            self.report(Diagnostic::new(Code::UnusedTunnel, message).hint(hint).at(self.lines.place(item)));
        }
    }

    /// Reports networks behind a tunnel that has none: its packets are those between both ends.
    fn networks_behind(&mut self, item: Item, interface: &Interface) {
        let name = &interface.name;
        let hint = "packets between `local` and `remote` are protected without; for networks write mode = \"tunnel\"";
        if !interface.addresses.is_empty() {
            let message = format!("addresses of \"{name}\", whose packets have those of its ends");
            self.wrong(Code::TransportMode, item, "addresses", message, hint);
        }
        for (index, _) in
            self.policy.routes.iter().enumerate().filter(|(_, route)| leads(&route.target, name))
        {
            let message = format!("a route into \"{name}\", which is in transport mode");
            self.wrong(Code::TransportMode, Item::Route(index), "interface", message, hint);
        }
    }

    /// Destinations of the routes into a tunnel.
    fn routes_into<'n>(&'n self, name: &'n str) -> impl Iterator<Item = IpNet> + 'n {
        self.policy
            .routes
            .iter()
            .filter(move |route| leads(&route.target, name))
            .map(|route| route.destination)
    }

    /// Reports outer packets that would have to be fragmented across IPv6.
    fn fragments(&mut self, item: Item, tunnel: &Tunnel) {
        if tunnel.fragment == FragmentWhen::After && tunnel.local.is_ipv6() {
            let message = "outer packets cannot be fragmented across IPv6".to_owned();
            let hint = "write fragment = \"before\", or leave it out";
            self.wrong(Code::TunnelFragments, item, "fragment", message, hint);
        }
    }

    /// Reports a tunnel that has too little room for the packets that are routed into it.
    fn room(&mut self, index: usize, interface: &Interface, tunnel: &Tunnel) {
        let left = mtu(self.policy, index, tunnel);
        let selected = tunnel.selectors().map(|pair| pair.remote.net);
        let routed = self.routes_into(&interface.name).chain(interface.addresses.iter().copied());
        let (least, why) = match routed.chain(selected).any(|net| net.addr().is_ipv6()) {
            true => (ipv6::LEAST_MTU, "IPv6 needs 1280"),
            false => (LEAST_MTU, "IPv4 needs 68"),
        };
        // The interface's own bound is checked as that of any interface.
        if left < least && interface.mtu >= least {
            let name = &interface.name;
            let message = format!("\"{name}\" carries packets of {left} bytes at most, and {why}");
            let peer = tunnel.remote.map_or_else(|| "the peer".to_owned(), |remote| remote.to_string());
            let hint = format!("raise the MTU of the interface that leads to {peer}");
            let item = Item::Interface(index);
            self.report(Diagnostic::new(Code::TunnelMtu, message).hint(hint).at(self.lines.place(item)));
        }
    }

    /// Reports a window against replay that is none, or cannot be.
    fn window(&mut self, item: Item, tunnel: &Tunnel) {
        let (least, most) = (WindowSize::LEAST, WindowSize::MOST);
        match tunnel.window {
            WindowSize::Numbers(numbers) if !(least..=most).contains(&numbers) => {
                let message = format!("a window of {numbers} packets");
                self.wrong(Code::BadWindow, item, "window", message, format!("from {least} to {most}"));
            }
            WindowSize::Numbers(_) => {}
            WindowSize::Off => {
                let message = "packets are taken any number of times".to_owned();
                let hint = "give the window's size: packets that come late need a larger one";
                self.wrong(Code::WindowOff, item, "window", message, hint);
                let inward = tunnel.sas.iter().enumerate().filter(|(_, sa)| sa.direction == Direction::In);
                for (index, _) in inward.filter(|(_, sa)| sa.esn == Esn::On) {
                    let message = "extended numbers without a window".to_owned();
                    let hint =
                        "the window tells the upper half of a number, which is not sent: give its size";
                    self.wrong_in(Code::BadWindow, In { item, key: "esn", index }, message, hint);
                }
            }
        }
    }

    fn sas(&mut self, item: Item, interface: &Interface, tunnel: &Tunnel) {
        let name = &interface.name;
        for (index, sa) in tunnel.sas.iter().enumerate() {
            if sa.spi < LEAST_SPI {
                let message = format!("the SPI {} is reserved", sa.spi);
                let hint = format!("from {LEAST_SPI} to {}", u32::MAX);
                self.wrong_in(Code::BadSpi, In { item, key: "spi", index }, message, hint);
            }
            self.strength(item, index, tunnel, sa);
            self.key_lengths(item, index, sa);
            self.lifetimes(item, index, sa);
        }
        if self.lines.is_broken(item) || tunnel.keys == KeySource::Ike {
            return;
        }
        let [out, inward] = [Direction::Out, Direction::In].map(|direction| tunnel.sas(direction).count());
        let (message, hint) = match (out, inward) {
            (1, 1..) => return,
            (0, 0) => (format!("the tunnel \"{name}\" has no security association"), ONE_EACH),
            (0, _) => (format!("the tunnel \"{name}\" has no security association out"), ONE_EACH),
            (_, 0) => (format!("the tunnel \"{name}\" has no security association in"), ONE_EACH),
            (many, _) => {
                let message = format!("the tunnel \"{name}\" has {many} security associations out");
                (message, "all packets leave by one: leave the others out")
            }
        };
        self.report(Diagnostic::new(Code::TunnelSas, message).hint(hint).at(self.lines.place(item)));
    }

    /// Reports keys of the file that have no meaning beside others, and security associations that nothing gives.
    fn key_source(&mut self, item: Item, tunnel: &Tunnel) {
        let daemon = "the IKE daemon gives the security associations".to_owned();
        let numbers = [("reqid", tunnel.reqid), ("if-id", tunnel.if_id)];
        if tunnel.keys == KeySource::Policy {
            for (key, _) in numbers.iter().filter(|(_, number)| number.is_some()) {
                let message = format!("`{key}` is of no meaning where no IKE daemon gives keys");
                self.wrong(Code::TunnelKeys, item, key, message, "add keys = \"ike\", or leave it out");
            }
            return;
        }
        for (key, _) in numbers.iter().filter(|(_, number)| *number == Some(0)) {
            let hint = "any other number: the daemon's configuration has it, too";
            self.wrong(Code::TunnelKeys, item, key, format!("`{key}` is 0, which stands for none"), hint);
        }
        for index in 0..tunnel.sas.len() {
            let hint = "leave it out, or keys = \"ike\"";
            self.wrong_in(Code::TunnelKeys, In { item, key: "spi", index }, daemon.clone(), hint);
        }
        if tunnel.udp == Udp::Yes {
            let message = "the IKE daemon finds out whether packets go in UDP".to_owned();
            self.wrong(Code::TunnelKeys, item, "udp", message, "leave it out; strongSwan has `encap`");
        }
        if self.policy.gateway.xfrm.is_none() {
            let hint =
                "add xfrm = \"/run/wirerate/xfrm\" to [gateway], or xfrm = \"linux\" where Linux has ESP";
            self.wrong(Code::TunnelKeys, item, "keys", format!("{daemon}, and has no socket"), hint);
        }
    }

    /// Reports tunnels that the security associations of another tunnel would be for as well.
    fn bindings(&mut self) {
        let mut seen: HashMap<Binding, Item> = HashMap::new();
        for (index, interface) in self.policy.interfaces.iter().enumerate() {
            let Some(tunnel) = interface.esp.as_ref().filter(|tunnel| tunnel.keys == KeySource::Ike) else {
                continue;
            };
            let item = Item::Interface(index);
            if let Some(first) = seen.insert(tunnel.binding(), item) {
                let message = "security associations would be for two tunnels";
                let diagnostic = Diagnostic::new(Code::TunnelKeys, message)
                    .hint("give each an `if-id` or a `reqid` of its own, as the IKE daemon's configuration has it")
                    .at(self.lines.place_of(item, "keys"))
                    .and("the first", self.lines.place_of(first, "keys"));
                self.diagnostics.push(diagnostic);
            }
        }
    }

    /// Reports an algorithm that no longer protects (RFC 8221).
    fn strength(&mut self, item: Item, index: usize, tunnel: &Tunnel, sa: &StaticSa) {
        if sa.suite.standing == Standing::Current {
            return;
        }
        let message = format!("{} no longer protects", sa.suite.name());
        let (code, hint) = match tunnel.legacy {
            Legacy::Refused => (
                Code::LegacyAlgorithm,
                "use \"aes128-gcm\"; or say legacy = true for the tunnel, in a laboratory",
            ),
            Legacy::Allowed => (Code::WeakAlgorithm, "use \"aes128-gcm\" wherever something is at stake"),
        };
        self.wrong_in(code, In { item, key: "algorithm", index }, message, hint);
    }

    /// Reports lifetimes of nothing, and soft ones past the hard one.
    fn lifetimes(&mut self, item: Item, index: usize, sa: &StaticSa) {
        let bounds = |of: Lifetime| [of.bytes, of.packets, of.time.map(|time| time.0)];
        for (key, lifetime) in [("soft", sa.soft), ("hard", sa.hard)] {
            if bounds(lifetime).contains(&Some(0)) {
                let message = format!("a {key} lifetime of nothing");
                let hint = "leave the bound out where there is none";
                self.wrong_in(Code::BadLifetime, In { item, key, index }, message, hint);
            }
        }
        let names = ["bytes", "packets", "time"].into_iter();
        let both = names.zip(bounds(sa.soft).into_iter().zip(bounds(sa.hard)));
        for (name, (soft, hard)) in both {
            if hard.is_some_and(|hard| soft.is_some_and(|soft| soft > hard)) {
                let message = format!("the soft lifetime in `{name}` is past the hard one");
                let hint = "soft is when a new security association is due, hard is its end";
                self.wrong_in(Code::BadLifetime, In { item, key: "soft", index }, message, hint);
            }
        }
    }

    /// Reports keys that are not as long as their algorithm wants.
    fn key_lengths(&mut self, item: Item, index: usize, sa: &StaticSa) {
        let suite = sa.suite;
        let parts = match suite.salt {
            0 => String::new(),
            salt => format!(", {} of key and {salt} of salt", suite.key),
        };
        let wanted = usize::from(suite.key) + usize::from(suite.salt);
        let auth = suite.name().auth().unwrap_or_default();
        let files = &sa.files;
        for (key, name, parts, wanted, secret, file) in [
            ("key", suite.name().algorithm(), parts.as_str(), wanted, &sa.key, &files.key),
            ("auth-key", auth, "", usize::from(suite.auth_key), &sa.auth_key, &files.auth_key),
        ] {
            // The length of one in a file is checked when it is read.
            if secret.len() != wanted && file.is_none() {
                let message =
                    format!("{name} takes a key of {wanted} bytes{parts}, and here are {}", secret.len());
                let hint = format!("write {} hexadecimal digits", 2 * wanted);
                self.wrong_in(Code::BadKey, In { item, key, index }, message, hint);
            }
        }
    }

    /// Reports indices that two inbound security associations have.
    fn spis(&mut self) {
        let mut seen: HashMap<u32, (Item, usize)> = HashMap::new();
        for (item, index, sa) in self.all_sas().filter(|(.., sa)| sa.direction == Direction::In) {
            if let Some((first, at)) = seen.insert(sa.spi, (item, index)) {
                let message = format!("the SPI {:#x} is there twice among those in", sa.spi);
                let diagnostic = Diagnostic::new(Code::BadSpi, message)
                    .hint(
                        "packets that come in are told apart by it: give each its own, and the peer the same",
                    )
                    .at(self.lines.place_in(item, "spi", index))
                    .and("the first", self.lines.place_in(first, "spi", at));
                self.diagnostics.push(diagnostic);
            }
        }
        // Those out of tunnels to any peer have no address to be told apart by.
        let mut seen: HashMap<u32, (Item, usize)> = HashMap::new();
        for (item, index, sa) in self.all_sas().filter(|(.., sa)| sa.direction == Direction::Out) {
            let Item::Interface(place) = item else { continue };
            let tunnel = self.policy.interfaces.get(place).and_then(|interface| interface.esp.as_ref());
            if tunnel.is_none_or(|tunnel| tunnel.remote.is_some()) {
                continue;
            }
            if let Some((first, at)) = seen.insert(sa.spi, (item, index)) {
                let message = format!("the SPI {:#x} is there twice among those out to any peer", sa.spi);
                let diagnostic = Diagnostic::new(Code::BadSpi, message)
                    .hint("without an address they are told apart by it: give each its own, and the peer the same")
                    .at(self.lines.place_in(item, "spi", index))
                    .and("the first", self.lines.place_in(first, "spi", at));
                self.diagnostics.push(diagnostic);
            }
        }
    }

    /// Reports keys that two security associations have: of a counter mode, numbers would be used twice under one key (RFC 4106,
    /// section 3.1). Of text in clear the key is that of the integrity algorithm.
    fn keys_used_twice(&mut self) {
        let mut seen: HashMap<&[u8], (Item, usize, &str)> = HashMap::new();
        for (item, index, sa) in self.all_sas() {
            // Those in files are compared when they are read.
            let (key, secret, file) = match (sa.suite.key, &sa.files) {
                (0, files) if files.auth_key.is_some() => ("auth-key-file", &sa.auth_key, &files.auth_key),
                (0, files) => ("auth-key", &sa.auth_key, &files.auth_key),
                (_, files) if files.key.is_some() => ("key-file", &sa.key, &files.key),
                (_, files) => ("key", &sa.key, &files.key),
            };
            let own = file.as_ref().map_or(secret.expose(), |file| file.as_os_str().as_encoded_bytes());
            if let Some((first, at, of)) = seen.insert(own, (item, index, key)) {
                let diagnostic = Diagnostic::new(Code::SameKey, "two security associations have one key")
                    .hint("what is sent under one nonce twice can be read: give each direction a key of its own")
                    .at(self.lines.place_in(item, key, index))
                    .and("the first", self.lines.place_in(first, of, at));
                self.diagnostics.push(diagnostic);
            }
        }
    }

    /// All security associations, each with its interface and its place there.
    fn all_sas(&self) -> impl Iterator<Item = (Item, usize, &'a StaticSa)> + use<'a> {
        let policy: &'a Policy = self.policy;
        let interfaces = policy.interfaces.iter().enumerate();
        interfaces.filter_map(|(index, interface)| Some((index, interface.esp.as_ref()?))).flat_map(
            |(index, tunnel)| {
                let sas = tunnel.sas.iter().enumerate();
                sas.map(move |(place, sa)| (Item::Interface(index), place, sa))
            },
        )
    }
}

/// True for a target by an interface of that name.
fn leads(target: &RouteTarget, name: &str) -> bool {
    match target {
        RouteTarget::Via(hops) => hops.iter().any(|hop| hop.interface.as_deref() == Some(name)),
        RouteTarget::Blackhole | RouteTarget::Unreachable => false,
    }
}

/// Hint for a tunnel without a security association of a direction.
const ONE_EACH: &str =
    "add an [[interface.NAME.esp.sa]] with direction = \"in\" and one with direction = \"out\"";
