//! Settings of the live daemon.

use config::{Entry, Part, in_order, wrong_type};

use super::{Keys, Table};
use crate::model::{Gateway, PortDriver};
use crate::value::address::SOCKET_ADDRESS;
use crate::value::time::{DURATION, RATE};
use crate::value::{COLLECTOR, Form, LOG_OUTPUT, NUMBER16, NUMBER32, PATH, STRING, SYNC_PEER, XFRM, key};
use crate::word;

/// Keys of `[gateway]`.
pub(super) fn gateway(keys: &mut Keys<'_, '_>, gateway: &mut Gateway) {
    keys.optional("workers", NUMBER16, &mut gateway.workers);
    keys.key("driver", word::DRIVER, &mut gateway.driver);
    keys.key("offload", word::OFFLOAD, &mut gateway.offload);
    keys.key("fast-path", word::FAST_PATH, &mut gateway.fast_path);
    keys.optional("metrics", SOCKET_ADDRESS, &mut gateway.metrics);
    keys.optional("metrics-certificate", PATH, &mut gateway.metrics_access.certificate);
    keys.optional("metrics-key", PATH, &mut gateway.metrics_access.key);
    keys.optional("metrics-token", PATH, &mut gateway.metrics_access.token);
    keys.optional("page", SOCKET_ADDRESS, &mut gateway.page);
    keys.optional("page-tokens", PATH, &mut gateway.page_access.tokens);
    keys.optional("page-certificate", PATH, &mut gateway.page_access.certificate);
    keys.optional("page-key", PATH, &mut gateway.page_access.key);
    keys.list("page-names", STRING, &mut gateway.page_access.names);
    keys.list("page-origins", STRING, &mut gateway.page_access.origins);
    keys.list("log", LOG_OUTPUT, &mut gateway.log.outputs);
    keys.optional_list("log-events", word::LOG_EVENT, &mut gateway.log.events);
    keys.optional("log-rate", RATE, &mut gateway.log.rate);
    keys.optional("log-rate-total", RATE, &mut gateway.log.total);
    keys.optional("ipfix", COLLECTOR, &mut gateway.ipfix.collector);
    keys.optional_list("ipfix-records", word::IPFIX_RECORD, &mut gateway.ipfix.records);
    keys.optional("ipfix-active-timeout", DURATION, &mut gateway.ipfix.active_timeout);
    keys.optional("ipfix-template-refresh", DURATION, &mut gateway.ipfix.template_refresh);
    keys.optional("ipfix-domain", NUMBER32, &mut gateway.ipfix.domain);
    keys.optional("sync", SYNC_PEER, &mut gateway.sync.peer);
    keys.optional("sync-certificate", PATH, &mut gateway.sync.certificate);
    keys.optional("sync-key", PATH, &mut gateway.sync.key);
    keys.optional("sync-ca", PATH, &mut gateway.sync.ca);
    keys.key("sync-owner", word::SYNC_OWNER, &mut gateway.sync.owner);
    keys.optional("drop-record", NUMBER16, &mut gateway.drop_record);
    keys.optional("xfrm", XFRM, &mut gateway.xfrm);
    keys.key("on-exit", word::ON_EXIT, &mut gateway.on_exit);
    match keys {
        Keys::Read(table) => gateway.drivers = read_drivers(table),
        Keys::Print(out) => {
            out.header("[gateway.drivers]");
            for own in &gateway.drivers {
                out.line(&key(&own.interface), &word::DRIVER.print(&own.driver));
            }
        }
    }
}

/// Reads `drivers`: interfaces with their drivers.
fn read_drivers(table: &mut Table<'_>) -> Vec<PortDriver> {
    let mut read = Vec::new();
    let Some(found) = table.raw("drivers") else { return read };
    let Some(drivers) = found.get_ref().as_table() else {
        let wanted = "a table of interfaces and their drivers";
        table.broken(wrong_type(wanted, found.get_ref()), found.span());
        return read;
    };
    let mut parts = Vec::new();
    for (name, driver) in in_order(drivers) {
        match word::DRIVER.read(driver.get_ref()) {
            Ok(driver) => {
                parts.push(Part { key: "drivers", item: Some(read.len()), span: name.span() });
                read.push(PortDriver { interface: name.get_ref().clone().into_owned(), driver });
            }
            Err(complaint) => table.broken(complaint, driver.span()),
        }
    }
    table.absorb(Entry { parts, ..Entry::default() });
    read
}
