//! Settings of the live daemon.

use super::{In, Validator};
use crate::diagnostic::Code;
use crate::lines::Item;
use crate::model::{Driver, Gateway, MetricsAccess, Scope};

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

    fn metrics(&mut self) {
        let gateway = &self.policy.gateway;
        let MetricsAccess { certificate, key, token } = &gateway.metrics_access;
        for (present, absent, here, lacking) in [
            ("metrics-certificate", "metrics-key", certificate, key),
            ("metrics-key", "metrics-certificate", key, certificate),
        ] {
            if here.is_some() && lacking.is_none() {
                let message = format!("`{present}` is of no use without `{absent}`");
                self.wrong(
                    config::Code::MissingKey,
                    Item::Top,
                    present,
                    message,
                    format!("name `{absent}`, too"),
                );
            }
        }
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
}
