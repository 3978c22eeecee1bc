//! Selectors: packets that a security association may carry (RFC 4301, section 4.4.1.1).
//!
//! A selector names its sides as the gateway sees them: local is the source of a packet that leaves by the tunnel, and the destination of
//! one that has come out of it.

use lookup::classify::{self, AddressSpan, Choice, Header, Pattern, PortSpan, Task};
use tally::{Op, Tally};
use wire::header::Protocol;

use super::Address;

/// Addresses, protocol and ports of packets that are to be protected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// Addresses on the gateway's side.
    pub local: AddressSpan,
    /// Addresses on the peer's side, of the same family.
    pub remote: AddressSpan,
    /// Protocol; any where there is none.
    pub protocol: Option<Protocol>,
    /// Ports on the gateway's side; any, and packets without ports, where there are none.
    pub local_ports: Option<PortSpan>,
    /// Ports on the peer's side likewise.
    pub remote_ports: Option<PortSpan>,
}

/// Fields of a packet that selectors ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Address on the gateway's side.
    pub local: Address,
    /// Address on the peer's side.
    pub remote: Address,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Ports, or 0 where the protocol has none; `None` where they are in another fragment.
    pub ports: Option<Ports>,
}

/// Ports of both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// On the gateway's side.
    pub local: u16,
    /// On the peer's side.
    pub remote: u16,
}

/// Match of a packet and a selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Place of the first selector that the packet matches.
    At(usize),
    /// A selector asks for ports, and this fragment does not show them.
    Unknown,
    /// No selector.
    None,
}

/// Selectors in order, with their search.
pub struct Selectors {
    list: Vec<Selector>,
    search: Option<Search>,
}

/// Search of many selectors.
struct Search {
    whole: Choice,
    /// Without ports: for fragments that do not show any.
    without_ports: Option<Choice>,
}

/// Number of selectors that are looked at one after the other.
const FEW: usize = 64;

/// Instructions of comparing a packet with a selector: family, 1; four bounds of addresses, 8; protocol, 2; ports, 3.
const COMPARE: u32 = 14;

impl Selector {
    /// True if it asks for ports.
    pub fn has_ports(&self) -> bool {
        self.local_ports.is_some() || self.remote_ports.is_some()
    }

    /// True if a packet matches, as far as it shows.
    fn may_fit(&self, ends: &Ends) -> bool {
        let has = |span: &AddressSpan, address: Address| {
            span.v6 == address.v6 && (span.first..=span.last).contains(&address.bits)
        };
        let lets = |span: Option<PortSpan>, port: fn(Ports) -> u16| {
            let within = |span: PortSpan, ports| (span.first..=span.last).contains(&port(ports));
            span.is_none_or(|span| ends.ports.is_none_or(|ports| within(span, ports)))
        };
        has(&self.remote, ends.remote)
            && has(&self.local, ends.local)
            && self.protocol.is_none_or(|protocol| protocol == ends.protocol)
            && lets(self.local_ports, |ports| ports.local)
            && lets(self.remote_ports, |ports| ports.remote)
    }

    fn pattern(&self) -> Pattern {
        let ports = |span: Option<PortSpan>| span.into_iter().collect();
        Pattern {
            source: Some(vec![self.local]),
            destination: Some(vec![self.remote]),
            protocols: self.protocol.iter().map(|protocol| protocol.0).collect(),
            sports: ports(self.local_ports),
            dports: ports(self.remote_ports),
            ..Pattern::default()
        }
    }
}

impl Ends {
    fn header(&self) -> Header {
        let Ports { local, remote } = self.ports.unwrap_or_default();
        Header {
            source: self.local.bits,
            destination: self.remote.bits,
            family: self.local.family(),
            protocol: self.protocol.0,
            sport: local,
            dport: remote,
            ..Header::default()
        }
    }
}

impl Selectors {
    /// No selectors: a security association without any carries all packets.
    pub const NONE: Selectors = Selectors { list: Vec::new(), search: None };

    /// Selectors in their order, of which the first counts that a packet matches.
    pub fn new(list: Vec<Selector>) -> Selectors {
        let choice = |patterns: Vec<Pattern>| {
            let bounds = classify::Bounds::of(patterns.len());
            Choice::new(Task { patterns, wanted: None, bounds })
        };
        let search = (list.len() > FEW).then(|| Search {
            whole: choice(list.iter().map(Selector::pattern).collect()),
            without_ports: list.iter().any(Selector::has_ports).then(|| {
                let bare = Selector::without_ports;
                choice(list.iter().map(|selector| bare(selector).pattern()).collect())
            }),
        });
        Selectors { list, search }
    }

    /// The selectors, in their order.
    pub fn list(&self) -> &[Selector] {
        &self.list
    }

    /// True if there is none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the place of the first that a packet matches.
    pub fn find<T: Tally>(&self, ends: &Ends, tally: &mut T) -> Fit {
        let place = match &self.search {
            None => {
                let place = self.list.iter().position(|selector| selector.may_fit(ends));
                let compared = place.map_or(self.list.len(), |place| place + 1) as u32;
                tally.instructions(COMPARE * compared);
                tally.execute(Op::Branch, 6 * compared);
                place
            }
            Some(Search { whole, without_ports }) => {
                let choice = without_ports.as_ref().filter(|_| ends.ports.is_none()).unwrap_or(whole);
                let header = ends.header();
                classify::tell(choice.classifier.as_ref(), &header, tally);
                choice.classifier.classify(&header).map(|place| place as usize)
            }
        };
        match place.and_then(|place| Some((place, self.list.get(place)?))) {
            Some((_, selector)) if ends.ports.is_none() && selector.has_ports() => Fit::Unknown,
            Some((place, _)) => Fit::At(place),
            None => Fit::None,
        }
    }

    /// Bytes of the search in the rules' memory of a network processor.
    pub(crate) fn region_bytes(&self) -> u64 {
        let Some(Search { whole, without_ports }) = &self.search else { return 0 };
        let bytes = |choice: &Choice| choice.classifier.region_bytes();
        bytes(whole) + without_ports.as_ref().map_or(0, bytes)
    }

    /// Instructions of the search in an engine's control store.
    pub(crate) fn program(&self) -> u32 {
        self.search.as_ref().map_or(COMPARE + 8, |search| search.whole.classifier.program())
    }
}

impl Selector {
    fn without_ports(&self) -> Selector {
        Selector { local_ports: None, remote_ports: None, ..self.clone() }
    }
}
