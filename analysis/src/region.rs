//! Sets of headers in a form that can be read: as few products as can easily be had.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use biodivine_lib_bdd::{Bdd, BddPointer};
use lookup::classify::bdd::field::{Field, ORDER, Version};
use lookup::classify::bdd::product::{Product, Span, Spans, merged};
use lookup::classify::{ClassSpan, Header};
use wire::Family;

pub use policy::model::{AddressRange, PortRange};

use super::algebra::{Algebra, Spent};

/// Headers that have in each field one of some values, whatever they have in the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    pub(super) families: Families,
    pub(super) product: Product,
}

/// Versions of IP in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Families {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
    /// Both; no address is asked for.
    Both,
}

impl Region {
    /// True if the header is in it.
    pub fn contains(&self, header: &Header) -> bool {
        let of_family = match header.family {
            Family::V4 => self.families != Families::V6,
            Family::V6 => self.families != Families::V4,
            Family::Other => false,
        };
        let within = |field: Field| {
            let spans = self.product.get(field);
            let value = field.of(header);
            spans.is_none_or(|spans| spans.iter().any(|span| span.first <= value && value <= span.last))
        };
        // Zones go with interfaces.
        let fields = ORDER.into_iter().filter(|field| !matches!(field, Field::From | Field::To));
        of_family && fields.into_iter().all(within)
    }

    /// One header, whatever its zones.
    pub(super) fn of(header: &Header, version: Version) -> Region {
        let mut product = Product::all();
        for field in ORDER.into_iter().filter(|field| !matches!(field, Field::From | Field::To)) {
            let value = field.of(header);
            product.limit(field, Some(vec![Span { first: value, last: value }]), version);
        }
        let families = match version {
            Version::V4 => Families::V4,
            Version::V6 => Families::V6,
        };
        Region { families, product }
    }

    /// Returns the versions of IP in the region.
    pub fn families(&self) -> Families {
        self.families
    }

    /// Interfaces of origin, by number; all where `None`.
    pub fn origins(&self) -> Option<Vec<u16>> {
        self.values(Field::Ingress)
    }

    /// Interfaces of destination likewise, [`LOCAL`](dataplane::tables::LOCAL) for the gateway itself.
    pub fn ends(&self) -> Option<Vec<u16>> {
        self.values(Field::Egress)
    }

    /// Classes of source MAC addresses, as spans in order.
    pub fn source_macs(&self) -> Option<Vec<ClassSpan>> {
        let spans = self.product.get(Field::SourceMac)?;
        Some(
            spans.iter().map(|span| ClassSpan { first: span.first as u16, last: span.last as u16 }).collect(),
        )
    }

    /// Transport protocols.
    pub fn protocols(&self) -> Option<Vec<u8>> {
        self.values(Field::Protocol)
    }

    /// TCP flags, each combination by itself.
    pub fn flags(&self) -> Option<Vec<u8>> {
        self.values(Field::Flags)
    }

    /// Memberships in dynamic sets: for each byte of [`Header::sets`] the values that it may have; all where `None`.
    pub fn sets(&self) -> [Option<Vec<u8>>; 4] {
        [0, 1, 2, 3].map(|number| self.values(Field::Sets(number)))
    }

    /// Code points.
    pub fn dscp(&self) -> Option<Vec<u8>> {
        self.values(Field::Dscp)
    }

    /// Source ports, in order.
    pub fn sports(&self) -> Option<Vec<PortRange>> {
        self.ports(Field::Sport)
    }

    /// Destination ports, in order; of ICMP, type << 8 | code.
    pub fn dports(&self) -> Option<Vec<PortRange>> {
        self.ports(Field::Dport)
    }

    /// Source addresses, in order.
    pub fn source(&self) -> Option<Vec<AddressRange>> {
        self.addresses(Field::Source)
    }

    /// Destination addresses, in order.
    pub fn destination(&self) -> Option<Vec<AddressRange>> {
        self.addresses(Field::Destination)
    }

    fn values<T: TryFrom<u128>>(&self, field: Field) -> Option<Vec<T>> {
        let spans = self.product.get(field)?;
        Some(
            spans
                .iter()
                .flat_map(|span| span.first..=span.last)
                .filter_map(|one| one.try_into().ok())
                .collect(),
        )
    }

    fn ports(&self, field: Field) -> Option<Vec<PortRange>> {
        let spans = self.product.get(field)?;
        Some(
            spans.iter().map(|span| PortRange { first: span.first as u16, last: span.last as u16 }).collect(),
        )
    }

    fn addresses(&self, field: Field) -> Option<Vec<AddressRange>> {
        let spans = self.product.get(field)?;
        let range = |span: &Span| AddressRange {
            first: address(span.first, self.families),
            last: address(span.last, self.families),
        };
        Some(spans.iter().map(range).collect())
    }
}

fn address(bits: u128, families: Families) -> IpAddr {
    match families {
        Families::V6 => Ipv6Addr::from_bits(bits).into(),
        Families::V4 | Families::Both => Ipv4Addr::from_bits(bits as u32).into(),
    }
}

/// Disjoint products that are `set` together; `most` of them at the most, and not all then.
pub(super) fn products(
    set: &Bdd,
    version: Version,
    most: usize,
    algebra: &mut Algebra<'_>,
) -> Result<Vec<Product>, Spent> {
    let mut walk = Walk { set, version, most, found: Vec::new(), algebra };
    let mut product = Product::all();
    walk.from(set.root_pointer(), 0, &mut product)?;
    Ok(fewer(walk.found, version))
}

/// Field after field: which values lead to the same rest.
struct Walk<'a, 'b> {
    set: &'a Bdd,
    version: Version,
    most: usize,
    found: Vec<Product>,
    algebra: &'a mut Algebra<'b>,
}

impl Walk<'_, '_> {
    fn from(&mut self, node: BddPointer, place: usize, product: &mut Product) -> Result<(), Spent> {
        if node.is_zero() || self.found.len() >= self.most {
            return Ok(());
        }
        self.algebra.spend(1)?;
        let Some(field) = ORDER.get(place).copied().filter(|_| !node.is_one()) else {
            self.found.push(product.clone());
            return Ok(());
        };
        let first = field.first_variable(self.version);
        let end = first + field.bits(self.version);
        if self.variable(node) >= end {
            return self.from(node, place + 1, product);
        }
        let mut rests: BTreeMap<BddPointer, Spans> = BTreeMap::new();
        self.split(node, first, end, 0, &mut rests)?;
        // In the order of the field's values.
        let mut rests: Vec<(BddPointer, Spans)> =
            rests.into_iter().map(|(rest, spans)| (rest, merged(spans))).collect();
        rests.sort_by(|(_, one), (_, other)| one.cmp(other));
        for (rest, spans) in rests {
            product.limit(field, Some(spans), self.version);
            self.from(rest, place + 1, product)?;
        }
        product.limit(field, None, self.version);
        Ok(())
    }

    /// For each rest behind the field, the values that lead to it.
    fn split(
        &mut self,
        node: BddPointer,
        variable: u16,
        end: u16,
        value: u128,
        rests: &mut BTreeMap<BddPointer, Spans>,
    ) -> Result<(), Spent> {
        if node.is_zero() {
            return Ok(());
        }
        self.algebra.spend(1)?;
        let free = u32::from(end - variable);
        let at = self.variable(node);
        if at >= end {
            let last = value | u128::MAX.checked_shr(128 - free).unwrap_or(0);
            rests.entry(node).or_default().push(Span { first: value, last });
            return Ok(());
        }
        let half = value | 1 << (free - 1);
        let (low, high) = if at > variable {
            (node, node)
        } else {
            (self.set.low_link_of(node), self.set.high_link_of(node))
        };
        self.split(low, variable + 1, end, value, rests)?;
        self.split(high, variable + 1, end, half, rests)
    }

    /// The variable that a node decides on; none of them where it is the end.
    fn variable(&self, node: BddPointer) -> u16 {
        if node.is_terminal() { u16::MAX } else { self.set.var_of(node).to_index() as u16 }
    }
}

/// Joins products that differ in one field only, as long as there are any.
pub(super) fn fewer(mut products: Vec<Product>, version: Version) -> Vec<Product> {
    let mut joined = true;
    while joined {
        joined = false;
        let mut kept: Vec<Product> = Vec::with_capacity(products.len());
        for product in products {
            match kept.iter_mut().find_map(|one| Some((one.joined(&product, version)?, one))) {
                Some((both, one)) => {
                    *one = both;
                    joined = true;
                }
                None => kept.push(product),
            }
        }
        products = kept;
    }
    products
}

/// Regions of both versions: those that are the same in both, and ask for no address, are one.
pub(super) fn regions(v4: Vec<Product>, v6: Vec<Product>) -> Vec<Region> {
    let mut only_v6 = v6;
    let mut regions = Vec::new();
    for product in v4 {
        let same = only_v6.iter().position(|other| {
            *other == product && product.get(Field::Source).or(product.get(Field::Destination)).is_none()
        });
        let families = match same {
            Some(place) => {
                only_v6.remove(place);
                Families::Both
            }
            None => Families::V4,
        };
        regions.push(Region { families, product });
    }
    regions.extend(only_v6.into_iter().map(|product| Region { families: Families::V6, product }));
    regions
}
