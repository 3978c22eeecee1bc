//! Settings of the live daemon.

use std::path::PathBuf;

use config::{Entry, Part, in_order, wrong_type};

use super::{Table, log, value};
use crate::model::{Gateway, MetricsAccess, PortDriver};
use crate::word;

/// Reads `[gateway]`.
pub(super) fn read(mut table: Table<'_, '_, '_>) -> (Gateway, Entry) {
    let mut gateway = Gateway {
        workers: table.take("workers", value::number16),
        driver: table.take("driver", |value| value::one_of(value, word::DRIVER)).unwrap_or_default(),
        drivers: Vec::new(),
        offload: table.take("offload", |value| value::one_of(value, word::OFFLOAD)).unwrap_or_default(),
        metrics: table.take("metrics", value::socket_address),
        metrics_access: MetricsAccess {
            certificate: table.take("metrics-certificate", value::owned).map(PathBuf::from),
            key: table.take("metrics-key", value::owned).map(PathBuf::from),
            token: table.take("metrics-token", value::owned).map(PathBuf::from),
        },
        log: log::read(&mut table),
        on_exit: table.take("on-exit", |value| value::one_of(value, word::ON_EXIT)).unwrap_or_default(),
    };
    let mut parts = Vec::new();
    if let Some(drivers) = table.raw("drivers") {
        let Some(table_of_drivers) = drivers.get_ref().as_table() else {
            let wanted = "a table of interfaces and their drivers";
            table.broken(wrong_type(wanted, drivers.get_ref()), drivers.span());
            return (gateway, table.finish());
        };
        for (name, driver) in in_order(table_of_drivers) {
            match value::one_of(driver.get_ref(), word::DRIVER) {
                Ok(driver) => {
                    parts.push(Part { key: "drivers", item: Some(gateway.drivers.len()), span: name.span() });
                    let interface = name.get_ref().clone().into_owned();
                    gateway.drivers.push(PortDriver { interface, driver });
                }
                Err(complaint) => table.broken(complaint, driver.span()),
            }
        }
    }
    let mut entry = table.finish();
    entry.parts.append(&mut parts);
    (gateway, entry)
}
