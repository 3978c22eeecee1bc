//! Types of messages.

/// Adds an SA; answers a request for one; tells of a new one.
pub const NEWSA: u16 = 16;
/// Removes an SA; tells of a removed one.
pub const DELSA: u16 = 17;
/// Asks for one SA or all.
pub const GETSA: u16 = 18;
/// Adds a policy; answers a request for one; tells of a new one.
pub const NEWPOLICY: u16 = 19;
/// Removes a policy; tells of a removed one.
pub const DELPOLICY: u16 = 20;
/// Asks for one policy or all.
pub const GETPOLICY: u16 = 21;
/// Asks for an SPI that is not in use.
pub const ALLOCSPI: u16 = 22;
/// Tells that a packet needs an SA.
pub const ACQUIRE: u16 = 23;
/// Tells that a lifetime has ended.
pub const EXPIRE: u16 = 24;
/// Adds a policy or changes it.
pub const UPDPOLICY: u16 = 25;
/// Changes an SA, or fills one of which only the SPI is allocated.
pub const UPDSA: u16 = 26;
/// Tells that the lifetime of a policy has ended.
pub const POLEXPIRE: u16 = 27;
/// Removes all SAs.
pub const FLUSHSA: u16 = 28;
/// Removes all policies.
pub const FLUSHPOLICY: u16 = 29;
/// Sets the numbers and lifetimes used of an SA; answers a request for them.
pub const NEWAE: u16 = 30;
/// Asks for the numbers and lifetimes used of an SA.
pub const GETAE: u16 = 31;
/// Moves SAs to other addresses.
pub const MIGRATE: u16 = 33;
/// Answers a request for counts of SAs.
pub const NEWSADINFO: u16 = 34;
/// Asks for counts of SAs.
pub const GETSADINFO: u16 = 35;
/// Sets thresholds of the policies' hash tables; answers a request for counts of policies.
pub const NEWSPDINFO: u16 = 36;
/// Asks for counts of policies.
pub const GETSPDINFO: u16 = 37;
/// Tells that the peer of an SA sends from another address or port.
pub const MAPPING: u16 = 38;
/// Asks for a connection's events, on the Unix socket only: a type that netlink leaves to protocols' own control.
pub const SUBSCRIBE: u16 = 15;
