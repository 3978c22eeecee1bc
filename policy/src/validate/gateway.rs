//! Knobs of the live daemon.

use super::{In, Validator};
use crate::diagnostic::Code;
use crate::lines::Item;
use crate::model::Driver;

impl Validator<'_> {
    pub(super) fn gateway(&mut self) {
        let gateway = &self.policy.gateway;
        if let Some(workers) = gateway.workers.filter(|workers| !(1..=1_024).contains(workers)) {
            let message = format!("`workers` = {workers} is out of range");
            self.wrong(Code::BadLimit, Item::Top, "workers", message, "from 1 to 1024");
        }
        if let Some(metrics) = gateway.metrics.filter(|metrics| !metrics.ip().is_loopback()) {
            let message = format!("{metrics} can be reached from other machines");
            let hint = "metrics are given to this machine alone: write 127.0.0.1:9478 or [::1]:9478";
            self.wrong(Code::NotLoopback, Item::Top, "metrics", message, hint);
        }
        for (index, own) in gateway.drivers.iter().enumerate() {
            let at = In { item: Item::Top, key: "drivers", index };
            if !self.known_interface(at, &own.interface) {
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
}
