//! Indices of interfaces, by which records name them, as Linux and SNMP do; and numbers of source translations.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use dataplane::tables::Tables;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};
use wire::PortId;

/// Tables that were followed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Followed {
    /// Tables of before.
    AsBefore,
    /// Other tables: indices and names may be others, too.
    Anew,
}

/// Indices of the interfaces of tables, as they were when they were last asked for.
#[derive(Default)]
pub(super) struct Interfaces {
    tables: Option<Arc<Tables>>,
    indices: Vec<u32>,
}

impl Interfaces {
    /// Follows other tables.
    pub(super) fn follow(&mut self, tables: &Arc<Tables>) -> Followed {
        if self.tables.as_ref().is_some_and(|own| Arc::ptr_eq(own, tables)) {
            return Followed::AsBefore;
        }
        self.tables = Some(tables.clone());
        self.ask();
        Followed::Anew
    }

    /// Asks Linux for all indices again.
    pub(super) fn ask(&mut self) {
        let any: Option<OwnedFd> = socket(AddressFamily::INET, SocketType::DGRAM, None).ok();
        let (Some(tables), Some(any)) = (&self.tables, any) else { return };
        let index = |name: &str| name_to_index(&any, name).unwrap_or(0);
        self.indices = tables.interfaces.iter().map(|interface| index(&interface.name)).collect();
    }

    /// Index of an interface; 0 of the gateway itself, and of what Linux has no interface for.
    pub(super) fn index(&self, interface: Option<PortId>) -> u32 {
        interface.and_then(|id| self.indices.get(usize::from(id.0))).copied().unwrap_or(0)
    }

    /// Numbers of source translations, which stay across a reload, with their names.
    pub(super) fn pools(&self) -> impl Iterator<Item = (u32, &str)> {
        let tables = self.tables.iter().flat_map(|tables| &tables.nat.sources);
        tables.map(|source| (source.number, source.name.as_str()))
    }

    /// Indices with their names.
    pub(super) fn names(&self) -> impl Iterator<Item = (u32, &str)> {
        let tables = self.tables.iter().flat_map(|tables| &tables.interfaces);
        let named =
            self.indices.iter().zip(tables).map(|(index, interface)| (*index, interface.name.as_str()));
        named.filter(|(index, _)| *index != 0)
    }
}
