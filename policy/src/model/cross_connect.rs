//! Cross-connections of ATM.

pub use wire::atm::Connection;

/// A cross-connection: cells that come by one end leave by the other, with its identifiers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrossConnect {
    /// Name.
    pub name: String,
    /// Ends: two, both channels or both paths.
    pub ends: Vec<ConnectionEnd>,
}

/// End of a virtual connection at a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionEnd {
    /// Interface that has the line.
    pub line: String,
    /// Connection on the line.
    pub connection: Connection,
}
