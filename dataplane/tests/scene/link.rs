//! Hosts on the links, and the neighbour events that gateways get of them.

use dataplane::Tables;
use dataplane::hop::Wanted;
use dataplane::tables::Neighbour;
use wire::Nanos;
use wire::ethernet::Mac;

use super::Gateway;

/// Number of bytes that an event is made of.
pub const BYTES: usize = 2;

/// Neighbour cache of a host that resolves addresses and updates gateways.
#[derive(Default)]
pub struct Link {
    known: Vec<(Wanted, Mac)>,
    asked: Vec<Wanted>,
    told: u32,
}

impl Link {
    /// Takes the neighbours that the gateways want, which must be the same, and applies the event of these bytes.
    pub fn happen(&mut self, bytes: &[u8; BYTES], now: Nanos, gateways: &mut [Gateway]) {
        let wanted: Vec<Vec<Wanted>> = gateways
            .iter_mut()
            .map(|gateway| std::iter::from_fn(|| gateway.shard.hops.wanted()).collect())
            .collect();
        assert!(wanted.windows(2).all(|pair| pair[0] == pair[1]), "other neighbours are wanted: {wanted:?}");
        for one in wanted.into_iter().next().into_iter().flatten() {
            if !self.asked.contains(&one) {
                self.asked.push(one);
            }
        }
        let [kind, which] = *bytes;
        let place = |many: usize| usize::from(which).checked_rem(many);
        let (asked, known) = (place(self.asked.len()), place(self.known.len()));
        match kind % 16 {
            0..=4 => {
                for wanted in std::mem::take(&mut self.asked) {
                    self.tell(wanted, gateways);
                }
            }
            5..=7 => {
                if let Some(place) = asked {
                    let wanted = self.asked.remove(place);
                    self.tell(wanted, gateways);
                }
            }
            8 | 9 => {
                if let Some(place) = asked {
                    let wanted = self.asked.remove(place);
                    self.lose(wanted, Gateway::unreachable, gateways);
                }
            }
            10 | 11 => {
                if let Some(place) = known {
                    self.lose(self.known[place].0, Gateway::forget, gateways);
                }
            }
            12 => {
                if let Some(place) = known {
                    self.lose(self.known[place].0, Gateway::unreachable, gateways);
                }
            }
            13 => {
                // Another machine has the address now.
                if let Some(place) = known {
                    self.tell(self.known[place].0, gateways);
                }
            }
            _ => {}
        }
        if kind & 64 != 0 {
            gateways.iter_mut().for_each(|gateway| gateway.tend(now));
        }
    }

    fn tell(&mut self, wanted: Wanted, gateways: &mut [Gateway]) {
        self.told += 1;
        let [a, b, c, d] = self.told.to_be_bytes();
        let mac = Mac([0x06, 0x99, a, b, c, d]);
        self.known.retain(|(known, _)| *known != wanted);
        self.known.push((wanted, mac));
        gateways.iter_mut().for_each(|gateway| gateway.learn(wanted, mac));
    }

    fn lose(&mut self, wanted: Wanted, how: fn(&mut Gateway, Wanted), gateways: &mut [Gateway]) {
        self.known.retain(|(known, _)| *known != wanted);
        gateways.iter_mut().for_each(|gateway| how(gateway, wanted));
    }

    /// Follows a reload: gateways get updates of neighbours still on a link, or must resolve them again.
    pub fn swapped(&mut self, old: &Tables, retold: bool, gateways: &mut [Gateway]) {
        let [first, ..] = gateways else { return };
        let new = first.tables.clone();
        let here = |wanted: &Wanted| {
            let interface = new.interface_named(&old.interface(wanted.interface)?.name)?;
            Some(Wanted { interface, ..*wanted })
        };
        self.asked.clear();
        let known = std::mem::take(&mut self.known);
        self.known =
            known.iter().filter(|_| retold).filter_map(|(to, mac)| Some((here(to)?, *mac))).collect();
        let neighbours: Vec<Neighbour> = self
            .known
            .iter()
            .map(|(to, mac)| Neighbour { interface: to.interface, address: to.address, mac: *mac })
            .collect();
        if retold {
            for gateway in gateways {
                gateway.shard.replace_neighbours(&new, &neighbours).expect("there is room");
            }
        }
    }

    /// True if a frame goes to a host that is known.
    pub fn knows(&self, frame: &[u8]) -> bool {
        self.known.iter().any(|(_, mac)| frame.starts_with(&mac.0))
    }
}
