//! Names of zones and interfaces, and the places that they stand for.

use policy::Policy;
use policy::model::{OTHER_ZONE, SELF_ZONE};
use wire::PortId;

use crate::tables::{CompileError, MAX_ZONES, OTHER, SELF};

/// Places of named things.
pub(super) struct Names {
    pub(super) zones: Vec<String>,
    interfaces: Vec<String>,
    zone_of: Vec<u8>,
    /// The place of the zone of interfaces that are not the policy's, where it is named.
    pub(super) other: Option<u8>,
}

impl Names {
    pub(super) fn new(policy: &Policy) -> Result<Names, CompileError> {
        if policy.interfaces.len() >= usize::from(OTHER.0) {
            return Err(CompileError::TooManyInterfaces(policy.interfaces.len()));
        }
        let mut zones = vec![SELF_ZONE.to_owned()];
        zones.extend(policy.zones().into_iter().filter(|zone| *zone != SELF_ZONE).map(str::to_owned));
        let other = policy.admits_other().then(|| {
            zones.push(OTHER_ZONE.to_owned());
            (zones.len() - 1) as u8
        });
        if zones.len() > MAX_ZONES {
            return Err(CompileError::TooManyZones(zones.len()));
        }
        let place = |name: &str| zones.iter().position(|zone| zone == name).unwrap_or(0) as u8;
        let zone_of = policy.interfaces.iter().map(|interface| place(&interface.zone)).collect();
        let interfaces = policy.interfaces.iter().map(|interface| interface.name.clone()).collect();
        Ok(Names { zones, interfaces, zone_of, other })
    }

    /// The zone of the interface at a place.
    pub(super) fn zone_of(&self, interface: usize) -> u8 {
        self.zone_of.get(interface).copied().unwrap_or(SELF)
    }

    /// A bit for each zone; all of them for an empty list.
    pub(super) fn zone_mask(&self, zones: &[String]) -> Result<u64, CompileError> {
        if zones.is_empty() {
            return Ok(u64::MAX);
        }
        zones.iter().try_fold(0, |mask, name| {
            let place = self.zones.iter().position(|zone| zone == name);
            Ok(mask | 1 << place.ok_or_else(|| CompileError::UnknownZone(name.clone()))?)
        })
    }

    /// A bit for each zone of origin. An empty list does not mean what Linux forwards from interfaces that are not the policy's.
    pub(super) fn origin_mask(&self, zones: &[String]) -> Result<u64, CompileError> {
        let mask = self.zone_mask(zones)?;
        Ok(match self.other {
            Some(other) if zones.is_empty() => mask & !(1 << other),
            _ => mask,
        })
    }

    /// The place of an interface.
    pub(super) fn interface(&self, name: &str) -> Result<PortId, CompileError> {
        let place = self.interfaces.iter().position(|interface| interface == name);
        place.map(|place| PortId(place as u16)).ok_or_else(|| CompileError::UnknownInterface(name.to_owned()))
    }

    /// Places of interfaces.
    pub(super) fn interfaces(&self, names: &[String]) -> Result<Vec<u16>, CompileError> {
        names.iter().map(|name| Ok(self.interface(name)?.0)).collect()
    }
}
