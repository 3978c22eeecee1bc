//! Dynamic sets: named sets of addresses whose elements come and go while the policy stays.

use wire::Nanos;

/// A named set of addresses whose elements change without a reload, used as `@name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamicSet {
    /// Name, without the `@`: unique among sets of both kinds.
    pub name: String,
    /// Most elements at a time.
    pub size: u32,
    /// Lifetime of elements that are added without one of their own; `None`: until they are removed.
    pub timeout: Option<Nanos>,
    /// Source of the elements.
    pub source: SetSource,
}

/// Source of the elements of a dynamic set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SetSource {
    /// Rules with `add-source`, and requests to the gateway.
    #[default]
    Rules,
    /// A file, read by the gateway.
    File(String),
    /// A file that the gateway fetches.
    Url {
        /// Address of the file.
        url: String,
        /// Time between two fetches.
        refresh: Nanos,
    },
}

impl DynamicSet {
    /// Most elements where the policy says nothing.
    pub const SIZE: u32 = 65_536;

    /// Most elements that a policy may ask for.
    pub const MOST_SIZE: u32 = 1 << 22;

    /// Most dynamic sets in a policy.
    pub const MOST: usize = 32;

    /// Most uses in conditions, of rules, classes, translations and policy routes together: each set counts once as a source and once as a
    /// destination, and each rule whose rate is a condition once. One less than a header has bits for them: the last one stands for destination
    /// NAT.
    pub const MOST_USES: usize = 31;

    /// Time between two fetches where the policy says nothing.
    pub const REFRESH: Nanos = Nanos::from_secs(3_600);

    /// Shortest time between two fetches.
    pub const LEAST_REFRESH: Nanos = Nanos::from_secs(60);

    /// Returns an empty set that rules and requests fill.
    pub fn new(name: &str) -> DynamicSet {
        DynamicSet { name: name.to_owned(), size: DynamicSet::SIZE, timeout: None, source: SetSource::Rules }
    }
}
