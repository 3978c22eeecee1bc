//! Settings of the live daemon.

use std::collections::HashMap;
use std::net::Ipv6Addr;

use wire::Nanos;

use super::{In, Validator};
use crate::diagnostic::{Code, Diagnostic};
use crate::lines::Item;
use crate::model::{
    Collector, Driver, Gateway, Ipfix, MetricsAccess, PageAccess, Scope, Sync, SyncOwner, vni,
};

impl Validator<'_> {
    pub(super) fn gateway(&mut self) {
        let gateway = &self.policy.gateway;
        if let Some(workers) = gateway.workers.filter(|workers| !(1..=1_024).contains(workers)) {
            let message = format!("`workers` = {workers} is out of range");
            self.wrong(Code::BadLimit, Item::Top, "workers", message, "from 1 to 1024");
        }
        let most = Gateway::MOST_DROP_RECORD;
        if let Some(packets) = gateway.drop_record.filter(|packets| *packets > most) {
            let message = format!("`drop-record` = {packets} is out of range");
            let hint = format!("from 0, for none, to {most}");
            self.wrong(Code::BadLimit, Item::Top, "drop-record", message, hint);
        }
        self.metrics();
        self.page();
        self.ipfix();
        self.sync();
        for (key, rate) in [("log-rate", gateway.log.rate), ("log-rate-total", gateway.log.total)] {
            if rate.is_some_and(|rate| rate.scope == Scope::Source) {
                let message = format!("`{key}` has no sources to tell apart");
                self.wrong(Code::BadRate, Item::Top, key, message, "leave `per source` out");
            }
        }
        for (index, own) in gateway.drivers.iter().enumerate() {
            let at = In { item: Item::Top, key: "drivers", index };
            if !self.known_interface(at, &own.interface) {
                continue;
            }
            if self.policy.interface(&own.interface).is_some_and(|known| known.esp.is_some()) {
                let message = format!("\"{}\" has no driver: it is a tunnel", own.interface);
                let hint = "its packets come and go by the interface that leads to the peer: name that";
                self.wrong_in(Code::DriverOfVlan, at, message, hint);
                continue;
            }
            let parent = self.policy.interface(&own.interface).and_then(|known| known.parent.as_ref());
            if let Some(parent) = parent {
                let message = format!("\"{}\" has no driver of its own", own.interface);
                let hint = format!("its frames come and go by \"{parent}\": name that");
                self.wrong_in(Code::DriverOfVlan, at, message, hint);
            }
            if matches!(own.driver, Driver::Xdp | Driver::Tap) && self.is_bare(&own.interface) {
                let message = format!("\"{}\" cannot have this driver", own.interface);
                let hint = "packets without an Ethernet header come and go by \"packet\" alone";
                self.wrong_in(Code::NeedsEthernet, at, message, hint);
            }
        }
    }

    fn ipfix(&mut self) {
        let Ipfix { collector, records, active_timeout, template_refresh, domain } =
            &self.policy.gateway.ipfix;
        let Some(collector) = collector else {
            // One that could not be read has been told of.
            let is_broken = self.lines.is_broken(Item::Top);
            for (key, is_there) in [
                ("ipfix-records", records.is_some()),
                ("ipfix-active-timeout", active_timeout.is_some()),
                ("ipfix-template-refresh", template_refresh.is_some()),
                ("ipfix-domain", domain.is_some()),
            ] {
                if is_there && !is_broken {
                    let message = format!("`{key}` has no meaning without `ipfix`");
                    let hint = "say where records go: ipfix = \"udp:192.0.2.1:4739\"";
                    self.wrong(config::Code::MisplacedKey, Item::Top, key, message, hint);
                }
            }
            return;
        };
        let second = Nanos::from_secs(1);
        for (key, time, most) in [
            ("ipfix-active-timeout", active_timeout, Nanos::from_secs(3_600)),
            ("ipfix-template-refresh", template_refresh, Nanos::from_secs(86_400)),
        ] {
            if time.is_some_and(|time| time < second || time > most) {
                let message = format!("`{key}` is out of range");
                let hint = format!("from 1 second to {} hours", most.0 / Nanos::from_secs(3_600).0);
                self.wrong(Code::BadLimit, Item::Top, key, message, hint);
            }
        }
        if matches!(collector, Collector::Tcp(_)) && template_refresh.is_some() {
            let message = "`ipfix-template-refresh` has no effect over TCP".to_owned();
            let hint = "a connection begins with the templates: leave it out";
            self.wrong(config::Code::MisplacedKey, Item::Top, "ipfix-template-refresh", message, hint);
        }
        if self.is_stateless() {
            let message = "a stateless policy has no flows to export".to_owned();
            let hint = "leave `ipfix` out, or `mode = \"stateless\"`";
            self.wrong(Code::NeedsStateful, Item::Top, "ipfix", message, hint);
        }
    }

    fn sync(&mut self) {
        let Sync { peer, certificate, key, ca, owner } = &self.policy.gateway.sync;
        let parts = [("sync-certificate", certificate), ("sync-key", key), ("sync-ca", ca)]
            .map(|(key, path)| (key, path.is_some()));
        let is_divided = *owner == SyncOwner::Hash;
        // One that could not be read has been told of.
        let is_broken = self.lines.is_broken(Item::Top);
        if peer.is_none() {
            let all = parts.into_iter().chain([("sync-owner", is_divided)]);
            for (key, _) in all.filter(|(_, is_there)| *is_there && !is_broken) {
                let message = format!("`{key}` has no meaning without `sync`");
                let hint = "say where the peer is: sync = \"connect:192.0.2.1:9480\"";
                self.wrong(config::Code::MisplacedKey, Item::Top, key, message, hint);
            }
            return;
        }
        for (key, _) in parts.into_iter().filter(|(_, is_there)| !is_there && !is_broken) {
            let message = format!("nobody can tell this gateway from others: `{key}` is missing");
            let hint = "name a certificate, its key, and the authority of the peer's: `sync-certificate`, `sync-key`, `sync-ca`";
            self.wrong(config::Code::MissingKey, Item::Top, "sync", message, hint);
        }
        if self.is_stateless() {
            let message = "a stateless policy has no flows to synchronise".to_owned();
            let hint = "leave `sync` out, or `mode = \"stateless\"`";
            self.wrong(Code::NeedsStateful, Item::Top, "sync", message, hint);
        }
        if is_divided {
            self.identifiers();
        }
    }

    /// Frames handed over say their interface by a number, made of its name.
    fn identifiers(&mut self) {
        let mut seen: HashMap<u32, usize> = HashMap::new();
        for (index, interface) in self.policy.interfaces.iter().enumerate() {
            let vni = vni(&interface.name);
            let Some(first) = seen.insert(vni, index) else { continue };
            let other = &self.policy.interfaces[first].name;
            let message =
                format!("\"{}\" has the VXLAN network identifier of \"{other}\", {vni}", interface.name);
            let diagnostic = Diagnostic::new(Code::SameVni, message)
                .hint("rename one: with `sync-owner`, frames handed over say their interface by a number made of its name")
                .at(self.lines.place_of(Item::Interface(index), "zone"))
                .and("the first", self.lines.place_of(Item::Interface(first), "zone"));
            self.report(diagnostic);
        }
    }

    fn metrics(&mut self) {
        let gateway = &self.policy.gateway;
        let MetricsAccess { certificate, key, token } = &gateway.metrics_access;
        self.pair("metrics-certificate", "metrics-key", certificate.is_some(), key.is_some());
        let Some(metrics) = gateway.metrics else {
            for (name, path) in
                [("metrics-certificate", certificate), ("metrics-key", key), ("metrics-token", token)]
            {
                if path.is_some() {
                    let message = format!("`{name}` has no meaning without `metrics`");
                    let hint = "say where metrics are given: metrics = \"127.0.0.1:9478\"";
                    self.wrong(config::Code::MisplacedKey, Item::Top, name, message, hint);
                }
            }
            return;
        };
        if !metrics.ip().is_loopback() && certificate.is_none() && token.is_none() {
            let message = format!("{metrics} can be reached from other machines");
            let hint = "for this machine alone write 127.0.0.1:9478 or [::1]:9478; for others, say who may ask: \
                        `metrics-token`, or `metrics-certificate` and `metrics-key`";
            self.wrong(Code::NotLoopback, Item::Top, "metrics", message, hint);
        }
    }

    fn page(&mut self) {
        let gateway = &self.policy.gateway;
        let PageAccess { tokens, certificate, key, names, origins } = &gateway.page_access;
        self.pair("page-certificate", "page-key", certificate.is_some(), key.is_some());
        let Some(page) = gateway.page else {
            for (name, is_there) in [
                ("page-tokens", tokens.is_some()),
                ("page-certificate", certificate.is_some()),
                ("page-key", key.is_some()),
                ("page-names", !names.is_empty()),
                ("page-origins", !origins.is_empty()),
            ] {
                if is_there {
                    let message = format!("`{name}` has no meaning without `page`");
                    let hint = "say where the page is: page = \"127.0.0.1:9479\"";
                    self.wrong(config::Code::MisplacedKey, Item::Top, name, message, hint);
                }
            }
            return;
        };
        if tokens.is_none() {
            let hint = "name the file of its users, page-tokens = \"/etc/wirerate/page.tokens\", and make one: \
                        `wirerate token add NAME --role change`";
            let message = "nobody can log in to the page: `page-tokens` is missing".to_owned();
            self.wrong(config::Code::MissingKey, Item::Top, "page", message, hint);
        }
        if !page.ip().is_loopback() && certificate.is_none() {
            let message =
                format!("{page} can be reached from other machines, and tokens would go in the clear");
            let hint = "for this machine alone write 127.0.0.1:9479 or [::1]:9479 (and reach it by `ssh -L \
                        9479:127.0.0.1:9479`); for others, TLS: `page-certificate` and `page-key`";
            self.wrong(Code::NotLoopback, Item::Top, "page", message, hint);
        }
        for (index, name) in names.iter().enumerate() {
            let is_host = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
            if name.is_empty() || !name.bytes().all(is_host) {
                let message = format!("\"{name}\" is no host name");
                let hint = "a name as in the address bar, without scheme and port: \"gateway.example.net\"";
                self.wrong_in(
                    Code::BadHostName,
                    In { item: Item::Top, key: "page-names", index },
                    message,
                    hint,
                );
            }
        }
        for (index, origin) in origins.iter().enumerate() {
            let Err(fault) = check_origin(origin) else { continue };
            let message = format!("\"{origin}\" is no origin of a proxy: {fault}");
            let hint = "as the browser has it for the page, scheme, name and port alone: \"https://edge.example.net\"";
            self.wrong_in(
                Code::BadHostName,
                In { item: Item::Top, key: "page-origins", index },
                message,
                hint,
            );
        }
    }

    /// Refuses one key of two that belong together.
    fn pair(&mut self, one: &'static str, other: &'static str, has_one: bool, has_other: bool) {
        if has_one != has_other {
            let (present, absent) = if has_one { (one, other) } else { (other, one) };
            let message = format!("`{present}` is of no use without `{absent}`");
            let hint = format!("name `{absent}`, too");
            self.wrong(config::Code::MissingKey, Item::Top, present, message, hint);
        }
    }
}

/// Checks an origin (RFC 6454, section 6.2) that browsers send for a site with TLS.
fn check_origin(origin: &str) -> Result<(), &'static str> {
    let host = origin.strip_prefix("https://").ok_or("it begins with https://, as tokens go by it")?;
    let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) if address.parse::<Ipv6Addr>().is_ok() => (None, port.strip_prefix(':')),
        Some(_) => return Err("there is no IPv6 address in the brackets"),
        None => host.split_once(':').map_or((Some(host), None), |(name, port)| (Some(name), Some(port))),
    };
    let is_rest = host.ends_with(']') || port.is_some() || name.is_some();
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if !is_rest || name.is_some_and(|name| name.is_empty() || !name.bytes().all(is_host)) {
        return Err("after the scheme there is a name or an address, and a port at most");
    }
    match port.map(|port| (port, port.parse::<u16>())) {
        None => Ok(()),
        Some((_, Ok(443))) => Err("browsers leave the port 443 out"),
        Some((text, Ok(port))) if port != 0 && text == port.to_string() => Ok(()),
        Some(_) => Err("the port is a number from 1 to 65535"),
    }
}
